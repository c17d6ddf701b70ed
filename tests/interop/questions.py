"""Questions put to a real RocketMQ process and to ours, and their answers compared field by field.

Bodies are compared as bytes. What may differ has a name: addresses and times of either side (`masks`), and the place in
Java's code where an exception was thrown.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, Serialize, decode, encode

ANSWER_SECONDS = 120.0
SETTLE_SECONDS = 60.0  # 5.x changes some tables a moment after it has answered
JAVA_LINE = re.compile(r", [\w.$/]+\.[\w$<>]+\([^)]*\)$")  # where an exception was thrown


class Question(NamedTuple):
    """A request; those of one `connection` go over one connection, at the port `port` below the listening one."""

    code: int
    ext: Mapping[str, str] | None = None
    body: bytes = b""
    version: int = 409
    serialize: Serialize = Serialize.JSON
    connection: int = 0
    port: int = 0
    settles: bool = False  # asked again until both say the same


class Peer:
    """One process that is asked: `main` is its port, `masks` says what its own texts (patterns) become."""

    def __init__(self, main: int, masks: Mapping[str, str] | None = None) -> None:
        self.main, self._masks = main, dict(masks or {})
        self._connections: dict[tuple[int, int], tuple[socket.socket, FrameSplitter]] = {}
        self._opaque = 0

    def ask(self, question: Question) -> RemotingCommand:
        """The answer to it."""
        self._opaque += 1
        request = RemotingCommand(
            question.code,
            self._opaque,
            0,
            None,
            question.ext,
            question.body,
            "JAVA",
            question.version,
            question.serialize,
        )
        sock, splitter = self._connection(question)
        sock.sendall(encode(request))
        while True:
            data = sock.recv(65536)
            assert data, f"hung up on {question}"
            for answer in map(decode, splitter.feed(data)):
                if answer.is_response and answer.opaque == self._opaque:
                    return answer

    def _connection(self, question: Question) -> tuple[socket.socket, FrameSplitter]:
        key = question.port, question.connection
        if key not in self._connections:
            sock = socket.create_connection(("127.0.0.1", self.main - question.port), timeout=ANSWER_SECONDS)
            self._connections[key] = sock, FrameSplitter()
        return self._connections[key]

    def hang_up(self, connection: int) -> None:
        """End one connection."""
        for key in [key for key in self._connections if key[1] == connection]:
            self._connections.pop(key)[0].close()

    def close(self) -> None:
        """End all of them."""
        for sock, _splitter in self._connections.values():
            sock.close()

    def told(self, answer: RemotingCommand) -> dict[str, Any]:
        """What an answer says, its own texts masked."""
        remark = answer.remark if answer.remark is None else JAVA_LINE.sub("", answer.remark)
        return {
            "code": answer.code,
            "remark": self._masked(remark),
            "ext": self._masked(answer.ext_fields),
            "order of ext": list(answer.ext_fields or ()),
            "flag": answer.flag,
            "language": answer.language,
            "version": answer.version,
            "serialize": answer.serialize.name,
            "body": self._masked(bytes(answer.body).decode("latin-1")),
        }

    def _masked(self, value: Any) -> Any:
        text = json.dumps(value, default=repr)
        for own, name in self._masks.items():
            text = re.sub(own, name, text)
        return json.loads(text)


@contextmanager
def both(real: Peer, ours: Peer) -> Iterator[None]:
    """Hang up on both at the end."""
    try:
        yield
    finally:
        real.close()
        ours.close()


def differences(real: Peer, ours: Peer, questions: Iterable[Question]) -> list[str]:
    """Put the questions to both in turn; what is not answered alike."""
    return [text for question in questions for text in _difference(real, ours, question)]


def _difference(real: Peer, ours: Peer, question: Question) -> list[str]:
    deadline, pause = time.monotonic() + SETTLE_SECONDS, threading.Event()
    while True:
        theirs, mine = real.told(real.ask(question)), ours.told(ours.ask(question))
        if theirs == mine:
            return []
        if not question.settles or time.monotonic() > deadline:
            break
        pause.wait(0.1)
    parts = [
        f"  {name}: RocketMQ {theirs[name]!r}\n{'':>{len(name)}}    ours     {mine[name]!r}"
        for name in theirs
        if theirs[name] != mine[name]
    ]
    return ["\n".join([str(question), *parts])]
