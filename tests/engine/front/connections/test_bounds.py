"""Clients that ask for more than they take, or say more than anybody needs: bounded, and the others do not notice."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.front.connections import peer as peers
from engine.front.connections import reception, relay
from engine.front.connections.peer import ANSWERS_BYTES_MAX, DEAF_BYTES, WAITING_BYTES_MAX
from engine.front.pulls.pulls import Pulls
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.links import exchange
from engine.remoting.links.exchange import Bells, Kind, Pipe
from engine.remoting.links.front_links import FrontLinks
from tests.engine.front.pulls.test_pulls import HOLDS, Shop, opened, pull
from tests.harness.certificates import Authority, server_file
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.played_clients import PlayedClients

UNKNOWN = 777
LONG_MS = 3_600_000
GREEDY_PULLS, SMALL_BUFFER = 400, 16 * 1024


@pytest.fixture
def shop(region_dir: Path) -> Iterator[Shop]:
    with opened(region_dir) as one:
        yield one


def pulls_of(shop: Shop) -> Pulls:
    return shop.front._pulls


def only_peer(shop: Shop, port: int) -> peers.Peer:
    """A connection's other end, by the port that it comes from."""

    def found() -> peers.Peer | None:
        return next((each for each in list(shop.front._reception.peers.values()) if each.address.port == port), None)

    return await_that(found, "it is there")  # type: ignore[return-value]


class Clogged(asyncio.Transport):
    """A socket that takes nothing."""

    waiting = 1

    def get_write_buffer_size(self) -> int:
        return self.waiting


class Greedy(FrontClient):
    """Asks for all the log many times, in one write; it has little room for answers."""

    def __init__(self, shop: Shop, count: int = GREEDY_PULLS) -> None:
        super().__init__(shop.port)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        self.count = count
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.asking.start()

    def _ask(self) -> None:
        try:
            self.send(*(pull(number % 64, opaque=number) for number in range(self.count)))
        except OSError:
            self.is_cut = True


@pytest.mark.parametrize("size", [1000, 20_000])
def test_a_client_that_reads_no_answers_costs_little_memory_and_is_closed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(reception, "WRITE_SECONDS", float(LONG_MS))
    shop.put(50 if size > 10_000 else 100, size=size)
    greedy = Greedy(shop)
    behind = only_peer(shop, greedy.sock.getsockname()[1])
    await_that(lambda: behind.stuck_since, "it is behind")
    most = behind.answers_bytes

    def is_ended() -> bool:
        nonlocal most
        most = max(most, behind.answers_bytes)
        behind.stuck_since = -2.0 * LONG_MS  # it took something last long ago; of the other one nobody says that
        assert shop.ask(7).code == ResponseCode.SUCCESS, "another one is served meanwhile"
        return not behind.is_open

    await_that(is_ended, "it is hung up on")
    assert 0 < most <= ANSWERS_BYTES_MAX + 33 * (size + 200), "one answer more than is kept at most"


def test_few_answers_are_made_for_a_client_whose_socket_is_full(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FrontClient(shop.port)
    peer = only_peer(shop, client.sock.getsockname()[1])
    assert peer.room == ANSWERS_BYTES_MAX
    monkeypatch.setattr(peer, "_transport", Clogged())
    assert peer.room == WAITING_BYTES_MAX - Clogged.waiting, "and that is enough for it to be deaf"
    assert WAITING_BYTES_MAX > DEAF_BYTES, "else nobody would tell when it takes more"


def test_little_is_read_of_a_new_connection_at_first(shop: Shop) -> None:
    client = FrontClient(shop.port)
    peer = only_peer(shop, client.sock.getsockname()[1])
    assert len(peer.get_buffer(-1)) == peers.FIRST_BYTES
    assert shop.ask(0, client=client).code is not None
    assert len(peer.get_buffer(-1)) == len(shop.front.buffer) > peers.FIRST_BYTES


def test_a_client_that_asks_for_much_and_reads_gets_all_answers_in_order(shop: Shop) -> None:
    shop.put(100, size=2000)
    greedy = Greedy(shop)
    for number in range(greedy.count):
        answer, offset = greedy.take(), number % 64
        assert (answer.opaque, answer.code) == (number, ResponseCode.SUCCESS)
        count = int(answer.ext_fields["nextBeginOffset"]) - offset
        assert count > 0 and bytes(answer.body) == shop.stored(0, offset, count)
    assert shop.ask(0, client=greedy).code == ResponseCode.SUCCESS, "and what it asks afterwards"


def test_thousands_of_pulls_that_wake_at_once_are_answered_to_who_reads(shop: Shop) -> None:
    count, held = 600, shop.counters.fronts[0].pulls_held
    greedy = FrontClient(shop.port)
    greedy.send(*(pull(0, opaque=number, sysFlag=HOLDS) for number in range(count)))
    await_that(lambda: held.read() == count, "they are held")
    shop.put(1, size=20_000)
    assert shop.ask(0).code == ResponseCode.SUCCESS, "another one is served meanwhile"
    behind = only_peer(shop, greedy.sock.getsockname()[1])
    assert behind.answers_bytes <= ANSWERS_BYTES_MAX + 32 * 21_000
    opaques = set()
    for _ in range(count):
        answer = greedy.take()
        assert bytes(answer.body) == shop.stored(0, 0, 1)
        opaques.add(answer.opaque)
    assert len(opaques) == count


@pytest.fixture
def tls_shop(region_dir: Path, tmp_path: Path) -> Iterator[Shop]:
    """One that takes both, with 100 messages; its test's certificate is verified nowhere."""
    where = server_file(tmp_path / "tls.properties", Authority(tmp_path / "ca").issue("server"))
    with opened(region_dir, **{"tls.server.mode": "permissive", "tls.config.file": where}) as one:
        one.put(100, size=20_000)
        yield one


def slow_client(shop: Shop, *, is_tls: bool) -> FrontClient:
    """One with little room for answers."""
    client = FrontClient(shop.port)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    if is_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.sock = context.wrap_socket(client.sock)
    return client


def test_pulls_over_tls_are_whole_also_for_a_slow_reader(tls_shop: Shop) -> None:
    for client in (slow_client(tls_shop, is_tls=True), tls_shop.client):
        client.send(*(pull(n % 64, opaque=n) for n in range(100)))  # buffers hold them; one thread at a time speaks TLS
        for number in range(100):
            answer, offset = client.take(), number % 64
            count = int(answer.ext_fields["nextBeginOffset"]) - offset
            assert answer.opaque == number and bytes(answer.body) == tls_shop.stored(0, offset, count)


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_client_that_reads_a_little_of_its_answers_is_seen_to_read(
    tls_shop: Shop, monkeypatch: pytest.MonkeyPatch, is_tls: bool
) -> None:
    monkeypatch.setattr(reception, "WRITE_SECONDS", float(LONG_MS))
    client = slow_client(tls_shop, is_tls=is_tls)
    behind = only_peer(tls_shop, client.sock.getsockname()[1])
    client.send(*(pull(n % 64, opaque=n) for n in range(100)))
    since = await_that(lambda: behind.stuck_since, "it is behind")
    taken = 0
    while taken < 8 * SMALL_BUFFER:  # much less than the kernel and the transport keep for it
        taken += len(client.sock.recv(SMALL_BUFFER))
    await_that(lambda: behind.stuck_since != since, "what it took is seen")


def test_what_a_held_pull_keeps_is_its_fields_and_these_are_bounded(shop: Shop) -> None:
    holds = pulls_of(shop)._held
    for number in range(20):
        request = pull(0, opaque=number, sysFlag=HOLDS, suspendTimeoutMillis=LONG_MS)
        shop.client.send(RemotingCommand(request.code, number, ext_fields=request.ext_fields, body=bytes(1 << 20)))
    await_that(lambda: holds.count == 20, "they are held")
    assert holds.bytes < 20 * 1000, "nobody reads a pull's body"
    many = {f"x{n}": "y" * 900 for n in range(1000)}
    large = {"sysFlag": HOLDS, "suspendTimeoutMillis": LONG_MS, **many}
    shop.client.send(*(pull(0, opaque=100 + n, **large) for n in range(20)))
    refused = [shop.client.take() for _ in range(2)]
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
    other = FrontClient(shop.port)
    other.send(pull(0, sysFlag=HOLDS))
    await_that(lambda: holds.count == 39, "another one's is held")
    shop.put(1)
    assert other.take().code == ResponseCode.SUCCESS
    assert {shop.client.take().code for _ in range(38)} == {ResponseCode.SUCCESS}
    await_that(lambda: (holds.count, holds.bytes) == (0, 0), "nothing is kept of those that were answered")


def test_pulls_whose_group_is_asked_for_are_bounded(shop: Shop) -> None:
    shop.clients.answers_questions = False
    many = {f"x{n}": "y" * 900 for n in range(1000)}
    shop.clients.answer_question = lambda _what, _fields: None  # type: ignore[method-assign]
    pulls = pulls_of(shop)
    shop.client.send(*(pull(0, opaque=n, consumerGroup=f"new{n}", **many) for n in range(50)))
    refused = [shop.client.take() for _ in range(3)]
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
    await_that(lambda: pulls._kept_bytes > (31 << 20), "the others wait")
    assert pulls._kept_bytes <= 32 << 20
    shop.put(1)
    assert FrontClient(shop.port).ask(UNKNOWN, b"x").body == b"x"


def test_a_subscription_that_nobody_can_mean_is_not_looked_into(shop: Shop) -> None:
    shop.put(1)
    assert shop.ask(subscription="||".join("ab" * 30_000)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert shop.ask(subscription="a" * 60_000).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_heartbeats_that_are_kept_are_bounded_and_the_largest_goes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "KEPT_BYTES_MAX", 100_000)
    clients = [FrontClient(shop.port) for _ in range(30)]
    for number, client in enumerate(clients):
        size = 40_000 if number % 10 == 5 else 1000
        assert client.ask(RequestCode.HEART_BEAT, json.dumps({"clientID": "c" * size}).encode()).code == 0
    kept = [len(each.heartbeat) for each in shop.front._reception.peers.values() if each.heartbeat]
    assert len([size for size in kept if size < 2000]) == 27, "who says little is remembered"
    assert sum(kept) == shop.front._relay._kept_bytes <= 100_000
    for client in clients:
        client.ask(RequestCode.UNREGISTER_CLIENT)
        client.sock.close()
    await_that(lambda: shop.front._relay._kept_bytes == 0, "nothing is kept for who left")


def test_an_internal_fault_is_answered_and_costs_no_connection(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object, **_more: object) -> None:
        raise OSError(24, "too many open files")

    shop.put(1)
    monkeypatch.setattr(pulls_of(shop)._view, "catch", fails)
    answer = shop.ask()
    assert answer.code == ResponseCode.SYSTEM_ERROR and "its log says why" in str(answer.remark)
    monkeypatch.undo()
    assert shop.ask().code == ResponseCode.SUCCESS


# what the clients role says, to a front that does not take it


def test_a_front_that_takes_nothing_is_not_heard_until_it_does(region_dir: Path) -> None:
    exchange.create(region_dir, 1)
    bells = Bells.make(1)
    up = Pipe(region_dir, 0, is_front=True, bells=bells)
    down = Pipe(region_dir, 0, is_front=False, bells=bells)
    large, asked = bytes(2 << 20), 40
    for number in range(asked):
        assert up.send(Kind.FRAME, number, b"a question")
    answered: list[int] = []

    def answer() -> None:
        for message in down.receive():
            assert down.send(Kind.FRAME, message.number, large), "nothing is lost"
            answered.append(message.number)

    for _ in range(10):
        answer()
    assert 0 < len(answered) < 12 and not down.has_more, "it is not heard, and nobody turns round and round for it"
    taken: list[int] = []
    while len(taken) < asked:
        before = len(taken), len(answered)
        taken += [message.number for message in up.receive()]
        answer()
        assert (len(taken), len(answered)) != before or up.has_more or down.kept_bytes, "both go on"
    assert taken == answered == list(range(asked))
    up.close()
    down.close()
    bells.close()


def test_a_side_that_never_lacked_room_is_not_woken_when_its_messages_are_taken(region_dir: Path) -> None:
    exchange.create(region_dir, 1)
    bells = Bells.make(1)
    up = Pipe(region_dir, 0, is_front=True, bells=bells)
    down = Pipe(region_dir, 0, is_front=False, bells=bells)
    for size, asked in ((10, 1), (exchange.RING_BYTES // 20, 30)):
        for number in range(asked):
            assert up.send(Kind.FRAME, number, bytes(size))
        lacked_room, taken, rung = up.kept_bytes > 0, 0, 0
        while taken < asked:
            taken += len(list(down.receive()))
            with suppress(BlockingIOError):
                rung += os.eventfd_read(bells.fronts[0])
                assert not list(up.receive()), "but what was kept goes on"
        assert lacked_room == (size > 10) == (rung > 0)
    up.close()
    down.close()
    bells.close()


def test_a_front_that_missed_a_part_of_a_table_gets_the_whole_table(
    region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "KEPT_BYTES_MAX", 1 << 20)
    exchange.create(region_dir, 1)
    bells = Bells.make(1)
    clients = PlayedClients({"topics": {"all": {}}})
    links = FrontLinks(clients._loop, region_dir, 1, bells, clients)
    links.begin()
    front = Pipe(region_dir, 0, is_front=True, bells=bells)
    for number in range(80):
        clients.tables["topics"] = {f"t{number}": {"text": "x" * 100_000}}
        links.note("topics", list(clients.tables["topics"]))
    clients.tables["topics"] = {"all": {}}
    assert links._untold == {0}
    told = []
    while links._untold or front.has_more:
        told += [message.fields for message in front.receive() if message.kind is Kind.TABLE]
        links._on_bell()
    assert len(told) < 80 and told[-1]["whole"] and told[-1]["entries"] == {"all": {}}
    front.close()
    links.close()
    clients._loop.close()
    bells.close()
