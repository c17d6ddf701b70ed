"""The remoting server over real sockets: answers in order, bounds, and peers that send what is no frame."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from engine.protocol.remoting import FrameSplitter, RemotingCommand, decode, encode
from engine.remoting_server import Limits, RemotingServer

HOST, TIMEOUT = "127.0.0.1", 20.0
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


def served(
    limits: Limits, check: Callable[[Callable[[], Awaitable[Peer]], list[int]], Awaitable[None]]
) -> None:
    """Run `check(connect, closed)` beside a server that answers with the request's body."""

    async def run() -> None:
        closed: list[int] = []

        def answer(request: RemotingCommand, connection: int) -> RemotingCommand | None:
            echo = request.answer(0, str(connection), body=bytes(request.body), version=407)
            return None if request.is_oneway else echo

        server = RemotingServer(answer, closed.append, limits)
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

    served(Limits(), check)


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
        assert closed == [2]
        await good.send(encode(RemotingCommand(1)))
        assert len(await good.answers(1)) == 1

    served(Limits(), check)


def test_frames_above_the_bound_and_silent_peers_are_hung_up_on() -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        large, silent = await connect(), await connect()
        await large.send((1001).to_bytes(4))
        assert await large.is_hung_up()
        assert await silent.is_hung_up()

    served(Limits(frame_bytes=1000, idle_seconds=0.2), check)


def test_no_more_connections_than_allowed() -> None:
    async def check(connect: Callable[[], Awaitable[Peer]], _closed: list[int]) -> None:
        first = await connect()
        await first.send(encode(RemotingCommand(1)))
        assert len(await first.answers(1)) == 1
        assert await (await connect()).is_hung_up()
        await first.send(encode(RemotingCommand(1)))
        assert len(await first.answers(1)) == 1

    served(Limits(connections=1), check)


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

    served(Limits(), check)
