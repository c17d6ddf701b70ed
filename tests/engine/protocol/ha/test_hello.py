"""The greeting between ours: who is believed to be who, and what a stranger can make of it."""

from __future__ import annotations

import json
import random

import pytest

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.group_transfer import Claim, identities
from engine.protocol.ha.hello import (
    CONTROL_BYTES_MAX,
    CONTROL_OFFSET,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    UNSIGNED,
    Identity,
    Introduction,
    MasterGreeting,
    SlaveGreeting,
    first_report,
    flushed_word,
    is_of_ours,
    refusal,
    words_of,
)
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, REPORT_BYTES, CloseReason, PeerError
from store.epochs import Epoch

SECRET, NONCE, OTHER_NONCE = b"a secret of theirs", bytes(NONCE_BYTES), b"\x01" * NONCE_BYTES
MASTER, SLAVE = Identity("c", "broker-a", 0), Identity("c", "broker-a", 1)
LIMITS = ConnectionLimits(1000, 300, 5000, 20_000, 3000)


def body_of(frame: bytes) -> bytes:
    offset, size = FRAME_HEADER.unpack_from(frame)
    assert offset == CONTROL_OFFSET and size == len(frame) - FRAME_HEADER_BYTES <= CONTROL_BYTES_MAX
    return frame[FRAME_HEADER_BYTES:]


def hear(master: MasterGreeting, words: bytes) -> bytes:
    answer = b""
    for at in range(0, len(words), REPORT_BYTES):
        word = words[at : at + REPORT_BYTES]
        assert REPORT.unpack(word)[0] < 0, "no offset"
        answer += master.hear(word[1:])
    return answer


def greet(
    master_secret: bytes, slave_secret: bytes, *, master: Introduction | None = None, slave: Introduction | None = None
) -> tuple[MasterGreeting, SlaveGreeting]:
    ours = MasterGreeting(master or Introduction(MASTER, 0, 500), master_secret, NONCE)
    theirs = SlaveGreeting(slave or Introduction(SLAVE, 0, 400), slave_secret, OTHER_NONCE)
    welcome = hear(ours, theirs.take(body_of(ours.challenge())))
    theirs.take(body_of(welcome))
    return ours, theirs


@pytest.mark.parametrize(
    ("master_secret", "slave_secret", "is_signed"), [(SECRET, SECRET, True), (b"", b"", False), (SECRET, b"", False)]
)
def test_a_name_is_proved_by_the_secret_of_both(master_secret: bytes, slave_secret: bytes, is_signed: bool) -> None:
    ours, theirs = greet(master_secret, slave_secret)
    assert ours.replica is not None and theirs.welcome is not None
    assert (ours.replica.facts.identity, ours.replica.is_signed) == (SLAVE, is_signed)
    assert theirs.welcome.is_signed == is_signed and theirs.master == Introduction(MASTER, 0, 500)


@pytest.mark.parametrize("secrets", [(b"", SECRET), (SECRET, b"another secret altogether")])
def test_a_peer_with_a_secret_refuses_one_without_it(secrets: tuple[bytes, bytes]) -> None:
    with pytest.raises(PeerError) as raised:
        greet(*secrets)
    assert raised.value.reason is CloseReason.SIGNATURE


def test_a_recorded_hello_proves_nothing_on_another_connection() -> None:
    recorded = SlaveGreeting(Introduction(SLAVE, 0, 400), SECRET, OTHER_NONCE).take(
        body_of(MasterGreeting(Introduction(MASTER, 0, 500), SECRET, NONCE).challenge())
    )
    with pytest.raises(PeerError) as raised:
        hear(MasterGreeting(Introduction(MASTER, 0, 500), SECRET, OTHER_NONCE), recorded)
    assert raised.value.reason is CloseReason.SIGNATURE


def test_a_signature_is_of_this_hello_and_of_this_side() -> None:
    master = MasterGreeting(Introduction(MASTER, 0, 500), SECRET, NONCE)
    words = SlaveGreeting(Introduction(SLAVE, 0, 400), SECRET, OTHER_NONCE).take(body_of(master.challenge()))
    message = b"".join(words[at + 1 : at + REPORT_BYTES] for at in range(0, len(words), REPORT_BYTES))
    length = int.from_bytes(message[:2], "big")
    forged = message[2 : 2 + length].replace(b'"id": 1', b'"id": 2')
    with pytest.raises(PeerError) as raised:
        hear(master, words_of(forged))
    assert raised.value.reason is CloseReason.SIGNATURE


def test_epochs_go_with_the_greeting_and_who_has_seen_a_newer_one_fences() -> None:
    first, second = Epoch(1, 100, "broker-a:1", 5), Epoch(2, 300, "broker-a:0", 6)
    ours, theirs = greet(SECRET, SECRET, master=Introduction(MASTER, 0, 500, (first, second)))
    assert theirs.master is not None and theirs.master.epochs == (first, second)
    with pytest.raises(PeerError) as raised:
        greet(b"", b"", master=Introduction(MASTER, 0, 500), slave=Introduction(SLAVE, 0, 400, (first,)))
    assert raised.value.reason is CloseReason.FENCED, "the master sees it, and says so"
    old, new = MasterGreeting(Introduction(MASTER, 0, 500), SECRET, NONCE), Introduction(SLAVE, 0, 400, (first,))
    slave = SlaveGreeting(new, SECRET, OTHER_NONCE)
    with pytest.raises(PeerError):
        hear(old, slave.take(body_of(old.challenge())))
    assert old.newer_epoch == 1, "the slave says it before it hangs up"
    with pytest.raises(PeerError) as raised:  # ... which it does, whatever such a master answers
        slave.take(UNSIGNED + b"{}")
    assert raised.value.reason is CloseReason.FENCED
    for secret, newer in ((SECRET, 2), (b"", 0)):
        ours = MasterGreeting(Introduction(MASTER, 0, 500, (first,)), secret, NONCE)
        facts = Introduction(SLAVE, 0, 400, (first, second))
        with pytest.raises(PeerError) as raised:  # one that says it all the same
            hear(ours, hello_of(facts, secret, ours))
        assert (raised.value.reason, ours.newer_epoch) == (CloseReason.FENCED, newer), "proved, or only said"


def hello_of(facts: Introduction, secret: bytes, master: MasterGreeting) -> bytes:
    """The hello of a slave that does not mind what its master says of epochs."""
    from engine.protocol.ha import hello

    text, challenge = hello._json(facts, OTHER_NONCE), body_of(master.challenge())[SIGNATURE_BYTES:]
    return words_of(hello.signature(secret, b"slave", challenge, text) + text)


def test_another_cluster_is_refused_by_either_side() -> None:
    with pytest.raises(PeerError) as raised:
        greet(b"", b"", slave=Introduction(Identity("d", "broker-a", 1), 0, 0))
    assert raised.value.reason is CloseReason.OTHER_CLUSTER


def test_a_refusal_has_words_and_a_reason() -> None:
    error = PeerError(CloseReason.REQUEST_ABOVE_END, 7, "the master's log ends at 5")
    with pytest.raises(PeerError) as raised:
        SlaveGreeting(Introduction(SLAVE, 0, 400), b"", NONCE).take(body_of(refusal(error)))
    assert raised.value.reason is CloseReason.AHEAD and "ends at 5" in raised.value.detail
    unknown = bytes(SIGNATURE_BYTES) + json.dumps({"refused": "NEVER_HEARD_OF", "why": [1]}).encode()
    with pytest.raises(PeerError) as raised:
        SlaveGreeting(Introduction(SLAVE, 0, 400), b"", NONCE).take(unknown)
    assert raised.value.reason is CloseReason.REFUSED


@pytest.mark.parametrize("seed", range(30))
def test_nothing_that_a_stranger_says_is_more_than_refused(seed: int) -> None:
    rng = random.Random(seed)
    good = json.dumps({"v": 1, "cluster": "c", "name": "n", "id": 1, "min": 0, "end": 1, "epochs": []}).encode()
    for _ in range(300):
        text = bytearray(rng.choice([good, b"[" * 3000, rng.randbytes(rng.randint(0, 60)), b'{"epochs":[[]]}']))
        for _ in range(rng.randint(0, 4)):
            if text:
                text[rng.randrange(len(text))] = rng.randrange(256)
        message = bytes(SIGNATURE_BYTES) + bytes(text)
        for say in (say_to_master, say_to_slave):
            try:
                say(message)
            except PeerError as error:
                assert error.reason in (CloseReason.HANDSHAKE, CloseReason.OTHER_CLUSTER, CloseReason.REFUSED)


def say_to_master(message: bytes) -> None:
    hear(MasterGreeting(Introduction(MASTER, 0, 500), b"", NONCE), words_of(message))


def say_to_slave(message: bytes) -> None:
    SlaveGreeting(Introduction(SLAVE, 0, 1), b"", NONCE).take(message)


def test_only_a_report_repeated_four_times_at_once_is_a_slipstream_slaves() -> None:
    assert is_of_ours(first_report(5))
    assert not is_of_ours(REPORT.pack(5) * 3) and not is_of_ours(REPORT.pack(5) * 3 + REPORT.pack(6))


def connection_of(counts_flushed: bool) -> HaConnection:
    connection = HaConnection(LIMITS, FlowMonitor(0), 0, counts_flushed=counts_flushed)
    greeting = MasterGreeting(Introduction(MASTER, 0, 500), b"", NONCE, counts_flushed=counts_flushed)
    slave = SlaveGreeting(Introduction(SLAVE, 0, 400), b"", OTHER_NONCE)
    assert connection.meet(first_report(400), greeting, 0)
    challenge, connection.outgoing = connection.outgoing, b""
    connection.receive(slave.take(body_of(challenge)), 0, 0, 500)
    assert connection.next_frame(0, 500) is None, "not a byte before the welcome is sent"
    slave.take(body_of(connection.outgoing))
    assert slave.welcome is not None and slave.welcome.counts_flushed == counts_flushed
    connection.outgoing = b""
    connection.serve(0, 0, 500)
    while connection.next_frame(0, 500):
        pass
    return connection


@pytest.mark.parametrize(("counts_flushed", "puts_wait"), [(True, True), (True, False), (False, True)])
def test_a_slave_knows_whether_puts_wait_for_its_disk(counts_flushed: bool, puts_wait: bool) -> None:
    slave = SlaveGreeting(Introduction(SLAVE, 0, 400), b"", OTHER_NONCE)
    master = MasterGreeting(
        Introduction(MASTER, 0, 500), b"", NONCE, counts_flushed=counts_flushed, puts_wait=puts_wait
    )
    answer = slave.take(body_of(master.challenge()))
    said = b"".join(master.hear(answer[at + 1 : at + 8]) for at in range(0, len(answer), 8))
    slave.take(body_of(said))
    assert slave.welcome is not None and slave.welcome.puts_wait == (counts_flushed and puts_wait)


def test_a_slave_that_has_not_said_who_it_is_is_not_served_for_a_sign_of_life() -> None:
    """One that waited for its slot said the same again: with frames before the welcome, that would be in its log."""
    connection = HaConnection(LIMITS, FlowMonitor(0), 0)
    slave = SlaveGreeting(Introduction(SLAVE, 0, 400), b"", OTHER_NONCE)
    assert connection.meet(first_report(400), MasterGreeting(Introduction(MASTER, 0, 500), b"", NONCE), 0)
    challenge, connection.outgoing = connection.outgoing, b""
    connection.receive(REPORT.pack(400), 7, 0, 500)
    assert (connection.last_read_ms, connection.slave_request_offset) == (7, -1)
    assert connection.next_frame(8, 500) is None
    connection.receive(REPORT.pack(400) + slave.take(body_of(challenge)) + REPORT.pack(400), 9, 0, 500)
    assert connection.outgoing and connection.next_frame(9, 500) is None
    connection.outgoing = b""
    connection.serve(9, 0, 500)
    assert connection.next_frame(9, 500) is not None


def test_what_counts_is_on_the_slaves_disk_where_that_is_asked_for() -> None:
    connection = connection_of(counts_flushed=True)
    connection.known_offset, connection.proves_from = 500, 0
    connection.receive(REPORT.pack(500), 1, 0, 500)
    assert (connection.slave_ack_offset, connection.held_offset) == (500, 0)
    connection.receive(flushed_word(450), 2, 0, 500)
    assert connection.held_offset == 450
    connection.receive(flushed_word(1 << 50) + REPORT.pack(500), 3, 0, 500)
    assert connection.held_offset == 500, "no more than what it was sent, and acknowledged"
    connection.receive(flushed_word(100), 4, 0, 500)
    assert connection.held_offset == 500, "and it never falls"


def test_without_a_greeting_a_word_that_is_no_offset_ends_the_connection() -> None:
    connection = HaConnection(LIMITS, FlowMonitor(0), 0)
    connection.receive(REPORT.pack(100), 0, 0, 500)
    with pytest.raises(PeerError) as raised:
        connection.receive(flushed_word(450), 2, 0, 500)
    assert raised.value.reason is CloseReason.ACK_FELL


A, B = (1,), (2,)


@pytest.mark.parametrize(
    ("why", "claims", "count"),
    [
        ("two addresses", [Claim(A), Claim(B)], 2),
        ("one address", [Claim(A), Claim(A)], 1),
        ("one name, said from two addresses", [Claim(A, 7), Claim(B, 7)], 1),
        ("two names, said from one address", [Claim(A, 7), Claim(A, 8)], 1),
        ("two names, proved on one host", [Claim(A, 7, True), Claim(A, 8, True)], 2),
        ("one name, proved from two addresses", [Claim(A, 7, True), Claim(B, 7, True)], 1),
        ("a proved one, and one beside it that proved nothing", [Claim(A, 7, True), Claim(A)], 1),
        ("the same, of another host", [Claim(A, 7, True), Claim(B)], 2),
        ("a name proved here and said there", [Claim(A, 7, True), Claim(B, 7)], 1),
        ("a chain", [Claim(A, 7), Claim(B, 7), Claim(B, 8)], 1),
    ],
)
def test_replicas_are_distinct_when_they_can_be_no_other(why: str, claims: list[Claim], count: int) -> None:
    for order in (claims, claims[::-1]):
        assert len(set(identities(order))) == count, why
