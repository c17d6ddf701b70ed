"""The remoting server over real sockets: answers in order, bounds, and peers that send what is no frame."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from engine.net import log_lines
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from engine.remoting.sockets import server as remoting_server
from engine.remoting.sockets.connections import CONNECTIONS_MIN
from engine.remoting.sockets.server import Answer, RemotingServer, ServerLimits
from tests.harness.conditions import await_that

HOST, TIMEOUT = "127.0.0.1", 120.0
MUTATED_FRAMES = 2000


class Peer:
    """A client that sends bytes and takes frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self._splitter = reader, writer, FrameSplitter()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answers(self, count: int) -> list[RemotingCommand]:
        found: list[RemotingCommand] = []
        while len(found) < count:
            data = await asyncio.wait_for(self.reader.read(65536), TIMEOUT)
            assert data, "hung up"
            found += [decode(frame) for frame in self._splitter.feed(data)]
        return found

    async def is_hung_up(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), TIMEOUT) == b""
        except ConnectionError:
            return True


def echo(request: RemotingCommand, connection: int) -> RemotingCommand | None:
    answer = request.answer(0, str(connection), body=bytes(request.body), version=407)
    return None if request.is_oneway else answer


def served(
    limits: ServerLimits,
    check: Callable[[Callable[[], Awaitable[Peer]], list[int]], Awaitable[None]],
    answer: Answer = echo,
    is_kept: Callable[[int], bool] = lambda _connection: False,
) -> None:
    """Run `check(connect, closed)` beside a server that answers with the request's body, or as `answer` says."""

    async def run() -> None:
        closed: list[int] = []
        server = RemotingServer(answer, closed.append, limits, is_kept)
        port = await server.start(HOST, 0)

        peers: list[Peer] = []

        async def connect() -> Peer:
            peers.append(Peer(*await asyncio.open_connection(HOST, port)))
            return peers[-1]

        await check(connect, closed)
        await server.stop()
        for peer in peers:
            peer.writer.close()
            with suppress(ConnectionError):
                await peer.writer.wait_closed()

    uvloop.run(run())


def test_answers_come_in_order_of_a_pipelined_connection() -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        peer = await connect()
        bodies = [b"x" * (n * 37) for n in range(200)]
        frames = [encode(RemotingCommand(10, opaque=n, body=body)) for n, body in enumerate(bodies)]
        oneway = encode(RemotingCommand(15, flag=2))
        await peer.send(oneway.join(frames))
        answers = await peer.answers(len(frames))
        assert [answer.opaque for answer in answers] == list(range(len(frames)))
        assert [bytes(answer.body) for answer in answers] == bodies

    served(ServerLimits(), check)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x00\x00\x00\x04\x09\x00\x00\x00"]
)
def test_what_is_no_frame_ends_its_own_connection_only(sent: bytes) -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], closed: list[int]) -> None:
        good, bad = await connect(), await connect()
        await good.send(encode(RemotingCommand(1)))
        assert (await good.answers(1))[0].remark == "1"
        await bad.send(sent)
        assert await bad.is_hung_up()
        await asyncio.to_thread(await_that, lambda: closed == [2], "it is noted")
        await good.send(encode(RemotingCommand(1)))
        assert len(await good.answers(1)) == 1

    served(ServerLimits(), check)


def test_frames_above_the_bound_and_silent_peers_are_hung_up_on() -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        large = await connect()
        await large.send((1001).to_bytes(4))
        assert await large.is_hung_up()

    async def check_silence(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        assert await (await connect()).is_hung_up()

    served(ServerLimits(frame_bytes=1000), check)
    served(ServerLimits(idle_seconds=0.2), check_silence)


async def is_answered(peer: Peer, body: bytes = b"") -> bool:
    await peer.send(encode(RemotingCommand(1, body=body)))
    return bytes((await peer.answers(1))[0].body) == body


def test_an_idle_flood_locks_nobody_out(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "AGAIN_SECONDS", 600.0)

    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        first = await connect()
        assert await is_answered(first)
        flood = [await connect() for _ in range(100)]
        assert await is_answered(await connect())
        assert await is_answered(first), "who has said something stays"
        assert [await peer.is_hung_up() for peer in flood[:80]] == [True] * 80, "the oldest silent ones made room"

    served(ServerLimits(connections=10), check)
    lines = [record for record in caplog.records if "10 connections, the limit" in record.message]
    assert 1 <= len(lines) <= 3, "told, and not once for each"


def test_kept_connections_stay_and_the_newcomer_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        kept = [await connect() for _ in range(3)]
        assert [await is_answered(peer) for peer in kept] == [True] * 3
        assert await (await connect()).is_hung_up()
        assert [await is_answered(peer) for peer in kept] == [True] * 3

    served(ServerLimits(connections=3), check, is_kept=lambda number: number <= 3)
    assert "refused, all 3 connections" in caplog.text


def test_unfinished_frames_of_many_take_no_more_memory_than_all_may(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "AGAIN_SECONDS", 600.0)
    length, part = (400_000).to_bytes(4), b"x" * 390_000

    async def check(connect: Callable[[], Awaitable[Peer]], closed: list[int]) -> None:
        flood = [await connect() for _ in range(20)]
        for peer in flood:
            with suppress(ConnectionError):
                await peer.send(length + part)
        assert await is_answered(await connect(), b"y" * 300_000)
        assert [await peer.is_hung_up() for peer in flood[:17]] == [True] * 17
        await asyncio.to_thread(await_that, lambda: len(closed) >= 17, "they are noted")

    served(ServerLimits(frame_bytes=1 << 20, bytes_in_flight=1 << 20), check)
    assert 1 <= caplog.text.count("bytes are in flight") <= 3


def test_a_frame_that_does_not_end_in_time_is_hung_up_on() -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        slow = await connect()
        await slow.send((1000).to_bytes(4) + b"x")
        assert await slow.is_hung_up()

    served(ServerLimits(frame_seconds=0.2, idle_seconds=1000), check)


def test_answers_that_nobody_reads_are_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_server, "WRITE_SECONDS", 0.2)
    asked: list[int] = []

    def answer(request: RemotingCommand, connection: int) -> RemotingCommand:
        asked.append(request.opaque)
        return request.answer(0, body=bytes(1 << 22 if connection == 1 else 1), version=407)

    async def check(connect: Callable[[], Awaitable[Peer]], closed: list[int]) -> None:
        deaf, good = await connect(), await connect()
        await deaf.send(b"".join(encode(RemotingCommand(1, opaque=n)) for n in range(1000)))
        await good.send(encode(RemotingCommand(1)))
        assert len(await good.answers(1)) == 1
        while 1 not in closed:
            assert len(await good_answer(good)) == 1

    async def good_answer(good: Peer) -> list[RemotingCommand]:
        await good.send(encode(RemotingCommand(1, opaque=-1)))
        return await good.answers(1)

    served(ServerLimits(), check, answer)
    assert len([opaque for opaque in asked if opaque > 0]) < 20


def test_a_handler_that_fails_ends_its_own_connection_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "AGAIN_SECONDS", 600.0)

    def answer(request: RemotingCommand, _connection: int) -> RemotingCommand:
        if request.code == 2:
            raise LookupError("a fault of ours")
        return request.answer(0, version=407)

    async def check(connect: Callable[[], Awaitable[Peer]], closed: list[int]) -> None:
        good = await connect()
        for _ in range(20):
            bad = await connect()
            await bad.send(encode(RemotingCommand(2)))
            assert await bad.is_hung_up()
        assert await is_answered(good)
        await asyncio.to_thread(await_that, lambda: len(closed) == 20, "all are noted")

    served(ServerLimits(), check, answer)
    assert caplog.text.count("Traceback") == 1


def test_one_hung_up_on_while_its_answer_is_made_is_answered_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """It made room for others: that is no failure of its request, and what it sent behind it is not done."""
    asked: list[int] = []
    begun, resume = asyncio.Event(), asyncio.Event()

    async def later(request: RemotingCommand) -> RemotingCommand:
        begun.set()
        await resume.wait()
        return request.answer(0, version=407)

    def answer(request: RemotingCommand, connection: int) -> RemotingCommand | Awaitable[RemotingCommand]:
        asked.append(connection)
        return later(request) if connection == 1 else request.answer(0, version=407)

    async def check(connect: Callable[[], Awaitable[Peer]], closed: list[int]) -> None:
        first = await connect()
        await first.send(encode(RemotingCommand(1)) * 50)
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        while 1 in asked and not first.reader.at_eof() and len(asked) < 20:
            assert await is_answered(await connect())
        assert await first.is_hung_up()
        resume.set()
        while 1 not in closed:
            assert await is_answered(await connect())

    served(ServerLimits(connections=CONNECTIONS_MIN), check, answer)
    assert asked.count(1) == 1
    assert "its request failed" not in caplog.text and "Traceback" not in caplog.text


def test_an_answer_too_large_for_a_frame_becomes_an_error() -> None:
    def answer(request: RemotingCommand, _connection: int) -> RemotingCommand:
        return request.answer(0, "r" * request.code, version=407)

    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        peer = await connect()
        for code, expected in ((1 << 22, 1), (3, 0)):
            await peer.send(encode(RemotingCommand(code)))
            assert (await peer.answers(1))[0].code == expected

    served(ServerLimits(), check, answer)


def test_a_pipeline_of_costly_requests_leaves_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_server, "TURN_SECONDS", 0.0)
    order: list[int] = []

    def answer(request: RemotingCommand, _connection: int) -> RemotingCommand:
        order.append(request.code)
        return request.answer(0, version=407)

    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        greedy, good = await connect(), await connect()
        assert await is_answered(good)
        await greedy.send(encode(RemotingCommand(7)) * 1000)
        await good.send(encode(RemotingCommand(8)))
        assert len(await good.answers(1)) == 1
        assert len(await greedy.answers(1000)) == 1000

    served(ServerLimits(), check, answer)
    assert order.index(8) < len(order) - 1


def test_mutated_frames_do_no_harm() -> None:
    chance = random.Random(11)

    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        peer = await connect()
        for _ in range(MUTATED_FRAMES):
            frame = bytearray(encode(RemotingCommand(chance.randrange(400), ext_fields={"a": "b"}, body=b"body")))
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
            try:
                await peer.send(bytes(frame))
            except ConnectionError:
                peer = await connect()
            if peer.reader.at_eof():
                peer = await connect()
        last = await connect()
        await last.send(encode(RemotingCommand(1)))
        assert len(await last.answers(1)) == 1

    served(ServerLimits(), check)
