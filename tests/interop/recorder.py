"""Between clients and a broker: hands on what both say, keeps it, and tells what the broker's part of it looks like.

The name server's routes name the recorder in the broker's place, so clients speak through it. What a broker says is
reduced to forms: its fields in their order with their values, but for moments, hosts and offsets, each by its name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, Serialize, decode

READ_BYTES = 1 << 16
START_SECONDS = 120.0
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
OF_A_MOMENT = frozenset(
    "msgId transactionId queueOffset queueId nextBeginOffset minOffset maxOffset offset commitLogOffset bornTimestamp"
    " storeTimestamp bornHost storeHost tranStateTableOffset groupSysFlag topicSysFlag offsetMsgId properties"
    " lastUpdateTimestamp messageRT timestamp indexLastUpdateTimestamp indexLastUpdatePhyoffset consumerGroup".split()
)  # of an answer or a push: what another run would say otherwise
ORDERS = re.compile(rb'"(\w+)":')


class Said(NamedTuple):
    """One frame. A connection's number, and who said it."""

    connection: int
    by_broker: bool
    frame: bytes

    @property
    def command(self) -> RemotingCommand:
        """What it holds."""
        return decode(self.frame)


class Form(NamedTuple):
    """What a broker said to a request of that code, or by itself, without what is never the same twice."""

    request: int
    is_push: bool
    code: int
    text: str

    def __str__(self) -> str:
        what = "push" if self.is_push else "answer to"
        return f"{what} {self.request}: {self.code} {self.text}"


class Recorder:
    """Runs in a thread of its own until the context ends. `address` is the name server for the clients."""

    def __init__(self, name_server: str, broker_port: int) -> None:
        self.said: list[Said] = []
        self._names_port, self._broker_port = int(name_server.rpartition(":")[2]), broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections = 0
        self._servers: list[asyncio.Server] = []
        self.port = 0

    def __enter__(self) -> Recorder:
        self._thread.start()
        self.port = self._do(self._serve(self._broker_port, is_broker=True))
        self.address = f"127.0.0.1:{self._do(self._serve(self._names_port, is_broker=False))}"
        return self

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _serve(self, target: int, *, is_broker: bool) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connected(reader, writer, target, is_broker)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, is_broker: bool
    ) -> None:
        self._connections += 1
        number = self._connections
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._hand_on(reader, server_writer, number, by_server=False, is_broker=is_broker),
            self._hand_on(server_reader, writer, number, by_server=True, is_broker=is_broker),
        )

    async def _hand_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        number: int,
        *,
        by_server: bool,
        is_broker: bool,
    ) -> None:
        splitter = FrameSplitter()
        try:
            while data := await reader.read(READ_BYTES):
                for frame in map(bytes, splitter.feed(data)):
                    if is_broker:
                        self.said.append(Said(number, by_server, frame))
                    elif by_server:
                        frame = self._rerouted(frame)
                    writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    def _rerouted(self, frame: bytes) -> bytes:
        """A name server's answer with the recorder in the broker's place."""
        header = 4 + int.from_bytes(frame[1:4])
        body = frame[header:].replace(b":%d" % self._broker_port, b":%d" % self.port)
        return frame[:header] + body

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def keep(self, path: Path) -> None:
        """The clients' requests, one of each code and form, as lines that `kept` reads."""
        seen: dict[tuple[int, Serialize, bool, frozenset[str]], bytes] = {}
        for each in self.said:
            if not each.by_broker and not (command := each.command).is_response:
                names = frozenset(command.ext_fields or ())
                seen.setdefault((command.code, command.serialize, bool(len(command.body)), names), each.frame)
        path.write_text("".join(base64.b64encode(frame).decode() + "\n" for frame in seen.values()))


def kept(path: Path) -> list[RemotingCommand]:
    """What `Recorder.keep` wrote."""
    return [decode(base64.b64decode(line)) for line in path.read_text().split()]


def forms(said: Iterable[Said]) -> dict[int, set[Form]]:
    """By request code: the different forms in which the broker answered, or asked by itself."""
    found: dict[int, set[Form]] = defaultdict(set)
    for request, answer, frame, is_push in _pairs(said):
        found[request].add(Form(request, is_push, answer.code, _text(answer, frame)))
    return found


def _pairs(said: Iterable[Said]) -> Iterator[tuple[int, RemotingCommand, bytes, bool]]:
    """Requests and answers, pushes; not the answer to a pull that crossed the goodbye of its group.

    Java's consumer pulls until its connection ends, which is after its goodbye was answered: any broker says 24 then
    (`test_pull_answers`), and whether one comes that late is a matter of luck.
    """
    asked: dict[tuple[int, int], RemotingCommand] = {}
    gone: set[tuple[int, str | None]] = set()
    for each in said:
        command = each.command
        if not each.by_broker:
            if command.code == RequestCode.UNREGISTER_CLIENT:
                gone.add((each.connection, _group(command)))
            if not command.is_response:
                asked[each.connection, command.opaque] = command
        elif not command.is_response:
            yield command.code, command, each.frame, True
        elif (request := asked.get((each.connection, command.opaque))) is not None:
            is_late = (each.connection, _group(request)) in gone and request.code in PULLS
            if not is_late or command.code != ResponseCode.SUBSCRIPTION_NOT_EXIST:
                yield request.code, command, each.frame, False


def _group(request: RemotingCommand) -> str | None:
    return (request.ext_fields or {}).get("consumerGroup")


def _text(command: RemotingCommand, frame: bytes) -> str:
    order: list[str] = []
    if command.serialize is Serialize.JSON:
        header = frame[4 : 4 + int.from_bytes(frame[1:4])]
        order = list(json.loads(header))
        order += list(json.loads(header).get("extFields") or ())
    ext = {name: "*" if name in OF_A_MOMENT else _masked(value) for name, value in (command.ext_fields or {}).items()}
    fields = {
        "remark": _masked(command.remark),
        "ext": ext,
        "order": order,
        "flag": command.flag,
        "language": command.language,
        "version": command.version,
        "serialize": command.serialize.name,
        "body": _body(bytes(command.body)),
    }
    return json.dumps(fields, sort_keys=True)


def _body(body: bytes) -> str:
    """Which fields a body of JSON has, in their order; of another one only that it is there."""
    if body[:1] in (b"{", b"["):
        return ",".join(dict.fromkeys(name.decode() for name in ORDERS.findall(body)))
    return "bytes" if body else ""


def _masked(text: str | None) -> str | None:
    """Without numbers and hosts."""
    if text is None:
        return None
    text = re.sub(r"group-[\w-]+|(?<=Scene-)[\w-]+", "*", re.sub(r"[\w.]+:\d+", "HOST", str(text)))
    return re.sub(r"\d+", "N", re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "HOST", text)) if not text.isdigit() else text
