"""Many clients, slow ones, silent ones and those that leave: none of them costs the others, nor the server's memory."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from spark_bridge.flight import client, streams
from spark_bridge.flight import server as server_module
from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.connections import (
    UNASKED_LEAST,
    UNASKED_MAX,
    Peer,
    Unasked,
    established,
    hang_up,
    peer_of,
)
from spark_bridge.flight.errors import ServerStopping, ServerUnreachable, TooManyStreams
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.served import ServedStore
from spark_bridge.flight.streams import Limits
from spark_bridge.options.read import parse_options
from spark_bridge.plan.planner import plan_read
from spark_bridge.records import reader
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import TOKEN, FlightProcess, first_ticket, remote_rows, served
from tests.spark_bridge.stores import SmallStore, read_rows

BODY_BYTES, BODIES = 1 << 18, 192  # 48 MiB: far more than sockets and gRPC hold
SLOW = 8
BODY = ScanRequest(("orders",), ("body",), {"minPartitions": "1"})  # one ticket


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    made = SmallStore(tmp_path_factory.mktemp("large") / "store", 4 << 20)
    for number in range(BODIES):
        made.put("orders", bytes([number]) * BODY_BYTES)
    made.dispatch()
    return made


def test_slow_clients_cost_a_batch_or_two_and_the_others_nothing(large: SmallStore) -> None:
    with FlightProcess(large.root, "--no-token") as running:
        serving, asking = psutil.Process(running.process.pid), psutil.Process()
        with RemoteStore(running.location) as slow, RemoteStore(running.location) as other:
            ticket = slow.plan(BODY).tickets[0]
            assert sum(batch.num_rows for batch in other.read(ticket)) == BODIES
            before = _own_memory(serving), _own_memory(asking)
            streams = [slow.read(ticket) for _ in range(SLOW)]
            for stream in streams:
                next(stream)
            for _ in range(3):  # meanwhile the server could make all of what they have not taken
                assert sum(batch.num_rows for batch in other.read(ticket)) == BODIES
            half = SLOW * BODIES * BODY_BYTES // 2
            assert _own_memory(serving) - before[0] < half // 2
            assert _own_memory(asking) - before[1] < half
            assert all(sum(batch.num_rows for batch in stream) > BODIES // 2 for stream in streams), "nothing is lost"


def _own_memory(process: psutil.Process) -> int:
    """What a process has for itself, without the pages of mapped files and what ours keeps for batches to come."""
    pa.default_memory_pool().release_unused()
    info = process.memory_info()
    return int(info.rss - info.shared)


def test_two_hundred_clients_at_once(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are plans and streams at a time: who is told so asks again."""
    monkeypatch.setattr(client, "RETRY_S", 600.0)  # the last one's turn comes late on a busy machine
    with served(large.root, limits=Limits(plans_waiting=30, streams=20, streams_of_peer=16)) as running:
        request = ScanRequest(("orders",), ("queueOffset", "bodyLength"))
        with ThreadPoolExecutor(200) as pool:
            counts = list(pool.map(lambda _: len(remote_rows(running.location, request)), range(200)))
        assert counts == [BODIES] * 200
        await_that(lambda: len(running._streams) == 0, "they have ended")


def test_readers_that_share_few_maps_lose_nothing(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that another reader puts out of the cache stays whole for whoever holds it."""
    monkeypatch.setattr(reader, "SEGMENTS_KEPT_MAX", 1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        splits = plan_read(parse_options({"path": str(large.root), "splitBytes": "1048576"}))
        with ThreadPoolExecutor(8) as pool:
            counts = list(pool.map(lambda _: len(read_rows(splits, ["queueOffset"])), range(16)))
    finally:
        sys.setswitchinterval(before)
    assert counts == [BODIES] * 16


def test_streams_above_the_limit_are_refused(large: SmallStore) -> None:
    with served(large.root, limits=Limits(streams=3, streams_of_peer=2)) as running:
        ticket = first_ticket(running, BODY)
        with RemoteStore(running.location, TOKEN) as store:
            taken = [store.read(ticket) for _ in range(2)]
            for stream in taken:
                next(stream)
            with pytest.raises(TooManyStreams, match="one address"):
                next(store.read(ticket))
            for stream in taken:
                stream.close()
            await_that(lambda: len(running._streams) == 0, "a client that leaves gives its place back")
            assert sum(batch.num_rows for batch in store.read(ticket)) == BODIES


def test_a_client_that_takes_nothing_is_closed(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOOK_S", 0.05)
    with served(large.root) as running:
        ticket = first_ticket(running, BODY)
        with RemoteStore(running.location, TOKEN) as idle:
            stream = idle.read(ticket)
            next(stream)
            monkeypatch.setattr(running._streams, "_limits", Limits(idle_s=0.5))  # from now on
            await_that(lambda: len(running._streams) == 0, "the server has given it up")
            with pytest.raises(ServerUnreachable):
                list(stream)
        assert len(remote_rows(running.location, ScanRequest(("orders",), ("queueId",)))) == BODIES


def test_a_slow_reader_is_served_on_after_the_server_was_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How long nothing comes counts from when more is asked for."""
    now_s = 0.0
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=lambda _seconds: None))
    batch = pa.RecordBatch.from_pydict({"queueId": [1, 2]})

    class Once:
        """A server that is gone behind its first batch, and is there again when it is asked once more."""

        def read(self, _ticket: bytes, skip_rows: int) -> Iterator[pa.RecordBatch]:
            yield batch
            if not skip_rows:
                raise ServerUnreachable("grpc://a:1", "gone")

    read = client.read_ticket([cast(RemoteStore, Once())], b"")
    assert next(read).num_rows == 2
    now_s = 10 * client.RETRY_S
    assert sum(one.num_rows for one in read) == 2


def test_connections_that_never_call_or_are_too_many(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOOK_S", 0.05)
    with served(large.root, limits=Limits(connections=4)) as running:
        with RemoteStore(running.location, TOKEN) as store:
            assert store.store()["brokerName"]
            silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(8)]
            await_that(lambda: len(established(running.port)) <= 4, "the silent ones go")
            assert store.store()["brokerName"], "who called stays"
            for one in silent:
                one.close()
        monkeypatch.setattr(server_module, "STRANGER_S", 0.2)
        with socket.create_connection(("127.0.0.1", running.port)) as stranger:
            stranger.settimeout(60)
            await_that(lambda: _is_over(stranger), "a stranger who says nothing goes")


def test_a_stranger_who_sends_more_than_requests_have_is_hung_up_on(
    large: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC reads a request to its end before anybody sees that it has no token: how long it may be nobody asks."""
    ended: list[int] = []
    monkeypatch.setattr(server_module, "STRANGER_S", 3600.0)
    monkeypatch.setattr(server_module, "hang_up", lambda port, on: ended.append(hang_up(port, on)))
    command = flight.FlightDescriptor.for_command(bytes(UNASKED_MAX + (1 << 20)))
    with served(large.root) as running:
        stranger = flight.connect(running.location)
        with pytest.raises(flight.FlightError):
            stranger.get_flight_info(command)
        await_that(lambda: sum(ended) > 0, "it is hung up on, in the middle or though it calls no more")
        with RemoteStore(running.location, TOKEN) as store:
            assert store.store()["brokerName"], "the next one is served"
        stranger.close()


def test_what_is_asked_for_is_never_too_much() -> None:
    one, other, streaming = (Peer("127.0.0.1", number) for number in range(3))
    unasked = Unasked()
    assert not unasked.too_much({one: UNASKED_MAX, streaming: 1 << 40}, {streaming})
    assert unasked.too_much({one: UNASKED_MAX + 1, streaming: (1 << 40) + UNASKED_MAX}, ()) == {one}
    unasked.let_in(one)
    assert not unasked.too_much({one: UNASKED_MAX + 1}, ()), "a call of this one's was let in"
    assert not unasked.too_much({one: 2 * UNASKED_MAX}, ())
    assert unasked.too_much({one: 2 * UNASKED_MAX + 2}, ()) == {one}
    assert not unasked.too_much({other: 0}, ()), "who has gone is forgotten"
    assert unasked.too_much({other: 0, one: UNASKED_MAX + 1}, ()) == {one}


def test_many_strangers_have_less_each() -> None:
    unasked, peers = Unasked(), [Peer("127.0.0.1", number) for number in range(256)]
    assert not unasked.too_much(dict.fromkeys(peers, UNASKED_LEAST), ()), "none is hung up on for a request"
    sizes = {peer: UNASKED_LEAST + number % 2 for number, peer in enumerate(peers)}
    assert unasked.too_much(sizes, ()) == set(peers[1::2])


def test_a_caller_between_two_looks_is_no_stranger(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOOK_S", 3600.0)
    there: list[Peer] = []
    with served(large.root) as running:
        monkeypatch.setattr(server_module, "established", lambda _port: list(there))
        caller, silent = Peer("127.0.0.1", 1), Peer("127.0.0.1", 2)
        running._known.add(caller)  # it came and called behind the look at connections
        assert running._unwelcome(0.0) == set()
        there[:] = [caller, silent]
        assert running._unwelcome(1.0) == set()
        assert running._unwelcome(1000.0) == {silent}
        there.clear()
        for now in (1001.0, 1002.0):
            running._unwelcome(now)
        assert not running._known and not running._first_seen, "who has gone is forgotten"


def test_plans_above_the_waiting_limit_are_refused(large: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(_store: object, _request: object) -> None:
        begun.release()
        go_on.wait(120)
        raise ServerStopping("as a plan that takes its time ends here")

    monkeypatch.setattr(ServedStore, "plan", slow)
    monkeypatch.setattr(streams, "TURN_WAIT_S", 0.2)
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    limits = Limits(plans=2, plans_waiting=1)
    with served(large.root, limits=limits) as running, ThreadPoolExecutor(2) as pool:
        plans = [pool.submit(remote_rows, running.location, BODY) for _ in range(2)]
        for _ in plans:
            assert begun.acquire(timeout=120)
        with pytest.raises(TooManyStreams, match="within 0 s"):
            remote_rows(running.location, BODY)
        assert running._plans.asking.acquire(blocking=False), "one more may wait"
        with pytest.raises(TooManyStreams, match="as many plans"):
            remote_rows(running.location, BODY)
        go_on.set()
        for plan in plans:
            with pytest.raises(ServerStopping):
                plan.result(120)


def _is_over(peer: socket.socket) -> bool:
    """Whether the other side has hung up; what gRPC says first is read away."""
    try:
        return peer.recv(4096, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_server_that_stops_ends_its_streams(large: SmallStore) -> None:
    with served(large.root) as running:
        ticket = first_ticket(running, BODY)
        store = RemoteStore(running.location, TOKEN)
        streams = [store.read(ticket) for _ in range(3)]
        for stream in streams:
            next(stream)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        for stream in streams:
            with pytest.raises((ServerStopping, ServerUnreachable)):
                list(stream)
        stopping.join(120)
        assert not stopping.is_alive()
        store.close()


def test_peers_are_read_as_grpc_writes_them() -> None:
    assert peer_of("ipv4:10.0.0.7:42") == ("10.0.0.7", 42)
    assert peer_of("ipv6:%5B::1%5D:42") == peer_of("ipv6:[::1]:42") == ("::1", 42)
    assert peer_of("ipv6:[::ffff:10.0.0.7]:1") == ("10.0.0.7", 1)
    for text in ("unix:", "", "ipv4:nobody:1", "ipv4:1.2.3.4:x"):
        with pytest.raises(ValueError, match=r"."):
            peer_of(text)


def test_only_the_ports_own_connections_are_hung_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for server in (one, other)]
        port = one.getsockname()[1]
        assert established(port) == [("127.0.0.1", pairs[0][0].getsockname()[1])]
        assert hang_up(port, lambda _peer: True) == 1
        assert pairs[0][0].recv(1) == b"" and not _is_over(pairs[1][0])
        for pair in pairs:
            for end in pair:
                end.close()


def test_no_descriptor_is_left(large: SmallStore) -> None:
    with served(large.root) as running:
        remote_rows(running.location, ScanRequest(("orders",), ("queueId",)))
        before = psutil.Process().num_fds()
        for _ in range(20):
            remote_rows(running.location, ScanRequest(("orders",), ("queueId",)))
        await_that(lambda: psutil.Process().num_fds() <= before + 4, "connections and leases are let go of")
