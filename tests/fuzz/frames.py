"""Frames that are nearly right: captured requests of real RocketMQ processes, changed in many ways."""

from __future__ import annotations

import base64
import json
import lzma
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.protocol.remoting.frame import FrameSplitter, MalformedFrame, RemotingCommand, Serialize, decode, encode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SECONDS = 60.0
READ_BYTES = 1 << 20
VALUES = ("", "0", "-1", "7", "true", "9" * 40, "null", "x" * 5000, "\x01\x02\x00", "é\U0001f4a5", "%s%n", "NaN")
BODIES = (b"", b"{}", b"[]", b"{" * 2000, b"[" * 2000, b"\0" * 50)
NAMES = ("topic", "brokerId", "clusterName", "brokerName", "brokerAddr", "groupName", "namespace", "key", "bodyCrc32")
NUMBERS = (0, 1, -1, 127, 128, 255, 2**15 - 1, 2**15, 2**24 - 1, 2**31 - 1, -(2**31))


def captured_requests(*servers: str) -> list[RemotingCommand]:
    """One request of every code and form that a server of that kind was sent."""
    found: dict[tuple[int, Serialize, int], RemotingCommand] = {}
    for path in sorted(GOLDEN.glob("rocketmq-*/*remoting*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            for line in map(json.loads, lines):
                if line["kind"] != "response" and line["server"].startswith(servers):
                    command = decode(base64.b64decode(line["frame"])[4:])
                    found.setdefault((command.code, command.serialize, bool(len(command.body))), command)
    return list(found.values())


class Mutator:
    """Changed frames without end, the same ones for the same seed."""

    def __init__(self, requests: list[RemotingCommand], seed: int) -> None:
        self._requests, self._random = requests, random.Random(seed)

    def frames(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self._frame()

    def _frame(self) -> bytes:
        dice = self._random
        request = replace(dice.choice(self._requests), opaque=dice.getrandbits(31))
        if dice.random() < 0.5:
            request = self._with_other_fields(request)
        try:
            frame = bytearray(encode(request))
        except MalformedFrame:  # a number that its form has no room for
            frame = bytearray(encode(replace(request, code=1, serialize=Serialize.JSON)))
        for _ in range(dice.choice((0, 1, 1, 2, 8))):
            self._change(frame)
        return bytes(frame)

    def _with_other_fields(self, request: RemotingCommand) -> RemotingCommand:
        dice, ext = self._random, dict(request.ext_fields or {})
        for _ in range(dice.randint(1, 4)):
            name = dice.choice([*ext, *NAMES])
            if dice.random() < 0.3:
                ext.pop(name, None)
            else:
                ext[name] = dice.choice(VALUES)
        code = dice.choice((request.code, request.code, dice.choice(NUMBERS)))
        body = bytes(request.body)
        if dice.random() < 0.3:
            body = dice.choice((*BODIES, body[: len(body) // 2], dice.randbytes(50)))
        version = dice.choice((request.version, 0, 36, 401, 479))
        return replace(request, code=code, ext_fields=dice.choice((ext, None)), body=body, version=version)

    def _change(self, frame: bytearray) -> None:
        dice, at = self._random, self._random.randrange(len(frame))
        match dice.randrange(7):
            case 0:
                frame[at] = dice.randrange(256)
            case 1:
                frame[at] ^= 1 << dice.randrange(8)
            case 2:
                del frame[at : at + dice.randint(1, 40)]
            case 3:
                frame[at:at] = dice.randbytes(dice.randint(1, 40))
            case 4:
                frame[at:at] = frame[at : at + dice.randint(1, 200)]
            case 5 if len(frame) >= 8:  # a length
                frame[(at % 2) * 4 : (at % 2) * 4 + 4] = (dice.choice(NUMBERS) & 0xFFFFFFFF).to_bytes(4)
            case _:
                frame[at : at + 4] = dice.randbytes(4)
        if not frame:
            frame += b"\0"


class Attacker:
    """Sends frames to one port of 127.0.0.1, reads what comes back, begins anew where it is hung up on."""

    def __init__(self, port: int) -> None:
        self._port, self._splitter = port, FrameSplitter()
        self._socket: socket.socket | None = None
        self.sent = self.connections = 0

    def send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS)
            self._splitter, self.connections = FrameSplitter(), self.connections + 1
        try:
            self._socket.sendall(frame)
            self.sent += 1
            self._socket.setblocking(False)
            while data := self._socket.recv(READ_BYTES):
                for answer in self._splitter.feed(data):
                    assert decode(answer).is_response, "whatever comes back is an answer"
            self.hang_up()
        except BlockingIOError:
            self._socket.settimeout(SECONDS)
        except ConnectionError:
            self.hang_up()
        if leaves_waiting(frame):
            self.hang_up()  # it would take the next frames for the rest of this one

    def hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def leaves_waiting(frame: bytes) -> bool:
    """Whether the other side waits for more of it, or hangs up."""
    splitter = FrameSplitter()
    try:
        splitter.feed(frame)
    except MalformedFrame:
        return True
    return bool(splitter.pending_bytes)


def still_answers(port: int, code: int) -> bool:
    """A good request on a new connection gets its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as peer:
        peer.sendall(encode(RemotingCommand(code, 77, ext_fields={}, version=407)))
        splitter, frames = FrameSplitter(), list[bytes]()
        while not frames:
            data = peer.recv(READ_BYTES)
            if not data:
                return False
            frames = splitter.feed(data)
        answer = decode(frames[0])
        return (answer.opaque, answer.code) == (77, 0)
