"""How a slave's connection begins: what it compares, where it finds the beginning of a log, whom it believes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.protocol.ha.client import HaClient
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.hello import REPEATED, Identity, Introduction, MasterGreeting, SlaveGreeting
from engine.protocol.ha.opening import NO_TAIL, QUIET_MS, Tail
from engine.protocol.ha.wire import FRAME_HEADER, REPORT, REPORT_BYTES, CloseReason, PeerError

SEGMENT = 1000
LIMITS = ClientLimits(SEGMENT, 5000, 20_000, 5000)
OWN = bytes(range(200))


def comparing(start: int = 300) -> HaClient:
    client = HaClient(LIMITS, start + len(OWN))
    client.connected(0, Tail(start, OWN))
    assert client.report(0) == REPORT.pack(start)
    return client


def searching() -> HaClient:
    return HaClient(LIMITS, 0, from_last_file=False)


def frame(offset: int, body: bytes = b"") -> bytes:
    return FRAME_HEADER.pack(offset, len(body)) + body


def take(client: HaClient, data: bytes, now_ms: int = 0) -> bytes:
    """Feed the opening; what it left."""
    return data[client.take(memoryview(data), now_ms) :]


def asks(client: HaClient, now_ms: int = 0) -> int:
    """Connect; where it asks from."""
    client.connected(now_ms, NO_TAIL)
    report = client.report(now_ms)
    assert report is not None and len(report) == REPORT_BYTES
    return int(REPORT.unpack(report)[0])


def reason_of(act: Callable[[], object]) -> CloseReason:
    with pytest.raises(PeerError) as raised:
        act()
    return raised.value.reason


@pytest.mark.parametrize("cut", range(1, 250, 7))
def test_what_is_equal_is_taken_and_the_rest_of_the_frame_goes_into_the_log(cut: int) -> None:
    client = comparing()
    stream = frame(300, OWN[:50]) + frame(350, OWN[50:] + b"new bytes")
    left = take(client, stream[:cut]) + stream[cut:]
    left = take(client, left) if client.is_opening else left
    assert (left, client.body_left, client.end) == (b"new bytes", 9, 500)
    assert not client.is_opening and client.report(1) == REPORT.pack(500), "now it acknowledges"


@pytest.mark.parametrize("at", [0, 1, 49, 50, 199])
def test_one_other_byte_is_another_history(at: int) -> None:
    client, other = comparing(), bytearray(OWN)
    other[at] ^= 1
    stream = frame(300, bytes(other[:50])) + frame(350, bytes(other[50:]))
    assert reason_of(lambda: take(client, stream)) is CloseReason.DIVERGED
    assert client.opening is not None and client.opening.difference is not None
    assert client.opening.difference.offset == 300 + at
    assert client.opening.difference.own[:1] == OWN[at : at + 1] != client.opening.difference.masters[:1]
    assert client.report(4000) is None, "nothing is acknowledged"


def test_nothing_is_acknowledged_before_all_is_compared() -> None:
    client = comparing()
    take(client, frame(300, OWN[:199]))
    assert client.report(4999) is None
    assert client.report(10_001) == REPORT.pack(300), "a sign of life, after twice the usual time"


def test_a_master_that_has_nothing_more_is_behind_us() -> None:
    client = comparing()
    take(client, frame(300, OWN[:100]), 1000)
    take(client, frame(400), 6000)
    assert client.report(6000 + QUIET_MS - 1) is None and client.wait_ms(6000) == QUIET_MS
    assert reason_of(lambda: client.report(6000 + QUIET_MS)) is CloseReason.AHEAD


def test_a_master_that_was_held_up_or_may_send_nothing_in_this_second_is_waited_for() -> None:
    client = comparing()
    take(client, frame(300) * 50, 7000)
    take(client, frame(300, OWN[:100]), 7000 + QUIET_MS - 1)
    assert client.report(9000) is None
    take(client, frame(400), 9000)
    take(client, frame(400, OWN[100:]), 9000 + QUIET_MS - 1)
    assert not client.is_opening and client.report(20_000) == REPORT.pack(500)


@pytest.mark.parametrize(
    ("why", "sent", "reason"),
    [
        ("elsewhere", frame(301, b"x"), CloseReason.OFFSET_MISMATCH),
        ("below zero", frame(-5, b"x"), CloseReason.OFFSET_MISMATCH),
        ("beyond the segment", FRAME_HEADER.pack(300, 701), CloseReason.BODY_SIZE),
        ("less than nothing", FRAME_HEADER.pack(300, -1), CloseReason.BODY_SIZE),
    ],
)
def test_an_invalid_frame_is_refused_by_its_header(why: str, sent: bytes, reason: CloseReason) -> None:
    assert reason_of(lambda: take(comparing(), sent)) is reason, why


def test_a_log_that_is_asked_for_whole_begins_with_byte_one() -> None:
    """A RocketMQ master takes 0 for its last segment: the first byte, which is zero, is not asked for."""
    client = searching()
    assert asks(client) == 1
    assert take(client, frame(1, b"\x00\x00\x64")[:12]) == b""
    assert (client.max_physical_offset, client.end, client.body_left, client.is_opening) == (1, 0, 3, 0)


def test_a_searching_slaves_log_begins_at_the_first_frame_with_bytes() -> None:
    client = searching()
    assert asks(client) == 1
    assert take(client, frame(3000)) == b""
    assert client.is_opening and client.end == 0, "a heartbeat says where, and begins nothing"
    assert take(client, frame(3000, b"x" * 5)) == b"x" * 5
    assert (client.max_physical_offset, client.body_left) == (3000, 5)


def rocketmq(begin: int, end: int, asked: int) -> bytes:
    """The first frame of a RocketMQ master whose log lies there, to who asks from `asked`."""
    start = asked or end - end % SEGMENT
    return frame(start, b"x") if begin <= start < end else frame(start)


@pytest.mark.parametrize("seed", range(200))
def test_the_beginning_of_a_log_is_searched_by_halves(seed: int) -> None:
    rng = random.Random(seed)
    begin = rng.choice([0, 1, 2, 5, rng.randint(0, 60)]) * SEGMENT
    end = begin + rng.choice([2, SEGMENT, 2 * SEGMENT, rng.randint(1, 60 * SEGMENT)])
    client, now_ms, probes = searching(), 0, 0
    while True:
        asked = asks(client, now_ms)
        probes += 1
        try:
            take(client, rocketmq(begin, end, asked), now_ms + 6000)
            if client.is_opening:
                client.report(now_ms + 6000 + QUIET_MS)
        except PeerError as error:
            assert error.reason is CloseReason.HISTORY_SEARCH
            client.closed(error.reason, now_ms)
            now_ms += 10_000
            continue
        if client.is_opening and end % SEGMENT == 0:  # the last segment is empty, and is all there is
            assert begin == end - end % SEGMENT or asked == 0
            return
        break
    first = 1 if begin == 0 else begin
    assert client.max_physical_offset == first, (begin, end)
    assert probes <= 10


def test_a_segment_that_expires_during_the_search_is_not_taken_for_the_first() -> None:
    client, begin, end, now_ms = searching(), 2 * SEGMENT, 9 * SEGMENT + 1, 0
    for number in range(60):
        asked = asks(client, now_ms)
        if number == 4:
            begin = 6 * SEGMENT
        try:
            take(client, rocketmq(begin, end, asked), now_ms + 6000)
            if client.is_opening:
                client.report(now_ms + 6000 + QUIET_MS)
        except PeerError as error:
            client.closed(error.reason, now_ms)
            now_ms += 10_000
            continue
        break
    assert client.max_physical_offset == begin


def test_a_heartbeat_before_bytes_says_nothing_about_what_there_is() -> None:
    client = searching()
    assert asks(client) == 1
    take(client, frame(1), 100)
    client.report(100 + QUIET_MS - 1)
    take(client, frame(1, b"\x00" * 7)[:12], 200)
    assert client.max_physical_offset == 1


def test_with_a_greeting_the_request_is_said_four_times() -> None:
    client = searching()
    client.connected(0, NO_TAIL, SlaveGreeting(Introduction(Identity("c", "n", 1), 0, 0), b"", bytes(16)))
    assert client.report(0) == REPORT.pack(1) * REPEATED


@pytest.mark.parametrize("from_last_file", [False, True])
def test_a_log_that_has_begun_and_lost_all_its_bytes_goes_on_where_it_begins(from_last_file: bool) -> None:
    """A power cut may leave the first segment of a slave and nothing in it; its master is elsewhere by then."""
    client = HaClient(LIMITS, SEGMENT, from_last_file=from_last_file)
    facts = Introduction(Identity("c", "n", 0), 0, 3 * SEGMENT)
    greeting = SlaveGreeting(Introduction(Identity("c", "n", 1), SEGMENT, SEGMENT), b"", bytes(16))
    client.connected(0, Tail(SEGMENT, b""), greeting)
    assert client.report(0) == REPORT.pack(SEGMENT) * REPEATED
    greeting.take(MasterGreeting(facts, b"", bytes(16)).challenge()[FRAME_HEADER.size :])
    assert take(client, frame(SEGMENT, b"1234567890")) == b"1234567890"
    assert (client.end, client.body_left, bool(client.is_opening)) == (SEGMENT, 10, False)


def test_an_empty_slave_acknowledges_no_byte_to_a_slipstream_master() -> None:
    client = searching()
    facts = Introduction(Identity("c", "n", 0), 0, 500)
    challenge = MasterGreeting(facts, b"", bytes(16)).challenge()
    client.connected(0, NO_TAIL, SlaveGreeting(Introduction(Identity("c", "n", 1), 0, 0), b"", bytes(16)))
    assert client.report(0) == REPORT.pack(1) * REPEATED
    late_ms = 1 + 2 * client.limits.send_heartbeat_interval_ms
    assert client.report(late_ms) == REPORT.pack(1), "not yet: to RocketMQ it would say another thing"
    take(client, challenge, late_ms)
    assert client.report(late_ms) not in (None, REPORT.pack(1))
    assert client.report(2 * late_ms) == REPORT.pack(0)
