"""A client's connection to a peer that says nothing, or that asks and does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.clients import connection
from engine.clients.connection import Connection
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from engine.remoting.sockets.client import PeerUnreachable

Serve = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SECONDS = 60.0


async def _with_peer(serve: Serve, work: Callable[[str], Awaitable[None]]) -> int:
    """How many connections a peer got that serves them so, by their number."""
    count = 0

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        try:
            await serve(count, reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    async with server:
        await work(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    return count


async def _answer_from_the_second_on(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    splitter = FrameSplitter()
    while data := await reader.read(4096):
        for request in map(decode, splitter.feed(data)):
            if number > 1:
                writer.write(encode(request.answer(ResponseCode.SUCCESS, version=REQUEST_VERSION)))


@pytest.mark.parametrize(("patience", "connections"), [(0.05, 2), (SECONDS, 1)])
def test_a_silent_connection_is_given_up_but_not_by_an_impatient_question(
    monkeypatch: pytest.MonkeyPatch, patience: float, connections: int
) -> None:
    monkeypatch.setattr(connection, "SILENT_SECONDS", patience)

    async def work(address: str) -> None:
        client = Connection(address, SECONDS)
        other = asyncio.create_task(client.ask(RequestCode.HEART_BEAT))
        with pytest.raises(PeerUnreachable, match=r"no answer within 0\.2 s"):
            await client.ask(RequestCode.HEART_BEAT, timeout=0.2)
        if connections > 1:
            with pytest.raises(PeerUnreachable, match=r"no answer within 0\.2 s"):
                await other
            assert (await client.ask(RequestCode.HEART_BEAT)).code == ResponseCode.SUCCESS
        else:
            assert not other.done()
            other.cancel()
        await client.close()

    assert asyncio.run(_with_peer(_answer_from_the_second_on, work)) == connections


def test_a_peer_that_asks_and_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNREAD_BYTES_MAX", 1 << 16)
    ended = asyncio.Event()

    async def ask_and_never_read(_number: int, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = encode(RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, 1))
        while not ended.is_set():
            writer.write(question * 100)
            try:
                await asyncio.wait_for(writer.drain(), 0.05)
            except (ConnectionError, TimeoutError):
                if writer.is_closing():
                    break

    async def work(address: str) -> None:
        client = Connection(
            address, SECONDS, on_push=lambda asked: asked.answer(0, body=bytes(10_000), version=REQUEST_VERSION)
        )
        with pytest.raises(PeerUnreachable, match="does not read the answers"):
            await client.ask(RequestCode.HEART_BEAT)
        ended.set()
        await client.close()

    assert asyncio.run(_with_peer(ask_and_never_read, work)) == 1
