"""A broker, or a name server, whose answers a test chooses: it listens in a thread of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from tests.harness.conditions import SECONDS

Answer = Callable[[RemotingCommand], RemotingCommand | None]  # None: it does not answer
TURN_SECONDS = 0.01
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class PlayedBroker:
    """A context manager; `answer` is called in its thread, for each request, which `asked` keeps."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[RemotingCommand]()
        self._writers = set[asyncio.StreamWriter]()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def sends(self) -> list[RemotingCommand]:
        """The messages that it was sent."""
        return [request for request in list(self.asked) if request.code in SENDS]

    def codes(self) -> list[int]:
        """What it was asked, without heartbeats."""
        return [request.code for request in list(self.asked) if request.code != RequestCode.HEART_BEAT]

    def push(self, command: RemotingCommand) -> None:
        """Ask all clients that are connected."""
        self._loop.call_soon_threadsafe(lambda: [writer.write(encode(command)) for writer in self._writers])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = FrameSplitter()
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                for request in map(decode, splitter.feed(data)):
                    self.asked.append(replace(request, body=bytes(request.body)))
                    answer = self.answer(request)
                    if answer is not None and not request.is_oneway:
                        writer.write(encode(answer))
        except ConnectionResetError:
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Hang up on all clients, those too that are being accepted now."""
        self._server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.wait(others, timeout=TURN_SECONDS)


def said(
    request: RemotingCommand, code: int = ResponseCode.SUCCESS, body: bytes = b"", **fields: str
) -> RemotingCommand:
    """An answer."""
    return request.answer(code, None if code == ResponseCode.SUCCESS else "as the test wants", fields, body, version=1)


def stored(request: RemotingCommand, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    """The answer to a message that was stored in the queue which it names."""
    queue_id = (request.ext_fields or {})["e"]
    return said(request, code, msgId="7F00000100002A9F00000000000004D2", queueId=queue_id, queueOffset="7")


def route(*brokers: tuple[str, str], queues: int = 2, perm: int = 6) -> bytes:
    """A topic's route: names and addresses of masters."""
    datas = [{"brokerName": name, "brokerAddrs": {"0": address}, "cluster": "c"} for name, address in brokers]
    counts = {"perm": perm, "readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": 0}
    return json.dumps({"brokerDatas": datas, "queueDatas": [{"brokerName": n, **counts} for n, _ in brokers]}).encode()
