"""The loop of a client at its end, and a connection whose peer sends what nobody expects."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NoReturn

import pytest

from engine.clients.connection import Connection
from engine.clients.loop_thread import ClientClosed, LoopThread
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from tests.harness.conditions import SECONDS


class User:
    """A client."""


def test_work_submitted_while_the_loop_ends_is_refused_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    user, is_ending, may_end = User(), threading.Event(), threading.Event()

    async def last() -> None:
        is_ending.set()
        await asyncio.to_thread(may_end.wait)

    thread = LoopThread(user, "t", last)
    monkeypatch.setattr(thread, "require_owned", lambda: None)  # which another thread passed before the end
    closing = threading.Thread(target=thread.close)
    closing.start()
    assert is_ending.wait(SECONDS)
    with pytest.raises(ClientClosed):
        thread.run(last())
    may_end.set()
    closing.join()


def test_a_push_of_another_shape_ends_no_connection() -> None:
    def push(_command: RemotingCommand) -> Any:
        return [].get("offsetTable")  # type: ignore[attr-defined]

    connection = Connection("127.0.0.1:1", 1.0, on_push=push)
    connection._take(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 1, 0, body=b"[]"))


def test_an_answer_that_cannot_be_read_ends_its_connection_and_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> NoReturn:
        raise AttributeError("not a frame")

    async def program() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(1000))
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            connection = Connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", SECONDS)
            with monkeypatch.context() as broken:
                broken.setattr("engine.clients.connection.decode", bad)
                with pytest.raises(Exception, match="not a frame"):
                    await connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            assert connection._writer is None
            await connection.close()

    asyncio.run(program())
