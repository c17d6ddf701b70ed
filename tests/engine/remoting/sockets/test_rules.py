"""A remoting port with rules: who may not connect gets no byte, who may not ask gets words; all are strangers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from engine.protocol.access import rights
from engine.protocol.access.allow_list import parsed
from engine.protocol.access.rights import Rules
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, Serialize, decode, encode
from engine.remoting.sockets.server import RemotingServer

SECONDS = 120.0
ONEWAY, RESPONSE = 2, 1
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def _a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "is_this_host", lambda _peer, _own: False)


def served(rules: Rules, check: Callable[[Streams, list[int]], Awaitable[None]]) -> None:
    """Run `check(connection, codes that were answered)` beside a server with these rules."""

    async def run() -> None:
        asked: list[int] = []

        def answer(request: RemotingCommand, _connection: int) -> RemotingCommand:
            asked.append(request.code)
            return request.answer(0, version=407)

        server = RemotingServer(answer, lambda _connection: None, rules=rules)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
        await check((reader, writer), asked)
        writer.close()
        await server.stop()

    uvloop.run(run())


async def answers(streams: Streams, count: int) -> list[RemotingCommand]:
    splitter, frames = FrameSplitter(), list[RemotingCommand]()
    while len(frames) < count:
        data = await asyncio.wait_for(streams[0].read(65536), SECONDS)
        assert data, "hung up"
        frames += [decode(frame) for frame in splitter.feed(data)]
    return frames


def test_a_forbidden_address_is_closed_and_the_log_names_the_key(caplog: pytest.LogCaptureFixture) -> None:
    async def check(streams: Streams, asked: list[int]) -> None:
        streams[1].write(encode(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)))
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(streams[0].read(1), SECONDS) == b""
        assert not asked

    with caplog.at_level(logging.WARNING):
        served(Rules(connect=parsed("192.0.2.0/24")), check)
    assert "127.0.0.1" in caplog.text and "remotingAllowList" in caplog.text


@pytest.mark.parametrize("serialize", list(Serialize))
def test_a_refused_request_is_answered_in_words_and_its_handler_never_sees_it(serialize: Serialize) -> None:
    async def check(streams: Streams, asked: list[int]) -> None:
        for opaque, (code, flag) in enumerate(
            ((RequestCode.DELETE_TOPIC_IN_BROKER, 0), (RequestCode.UPDATE_BROKER_CONFIG, ONEWAY),
             (RequestCode.UPDATE_BROKER_CONFIG, RESPONSE), (RequestCode.HEART_BEAT, 0))
        ):  # fmt: skip
            streams[1].write(encode(RemotingCommand(code, opaque=opaque, flag=flag, serialize=serialize)))
        refused, response, answered = await answers(streams, 3)
        assert (refused.code, refused.opaque) == (ResponseCode.NO_PERMISSION, 0)
        assert refused.remark is not None and "adminAllowList" in refused.remark and "127.0.0.1" in refused.remark
        assert (response.opaque, answered.opaque, answered.code) == (2, 3, ResponseCode.SUCCESS)
        assert asked == [RequestCode.UPDATE_BROKER_CONFIG, RequestCode.HEART_BEAT], "the oneway one was not done either"

    served(Rules(), check)


def test_a_listed_address_may_ask_all() -> None:
    async def check(streams: Streams, _asked: list[int]) -> None:
        streams[1].write(encode(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER)))
        (answer,) = await answers(streams, 1)
        assert answer.code == ResponseCode.SUCCESS

    served(Rules(connect=parsed("127.0.0.0/8"), administer=parsed("::ffff:127.0.0.1")), check)
