"""A client of RocketMQ's remoting protocol, as much as a test needs: requests one after the other, JSON headers."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

STORED = (0, 10, 11, 12)  # all well; flush too slow, no slave, slave too slow: the message is there all the same
SEND_MESSAGE, UPDATE_BROKER_CONFIG, GET_ROUTE = 10, 25, 105
ANSWER_SECONDS = 120


class Client:
    """Sends messages as a RocketMQ client does, JSON headers, one after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._opaque = itertools.count(1)

    def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> int:
        """The physical offset of the message in the broker's log."""
        answer = self.put(topic, queue_id, body, properties)
        if answer["code"] not in STORED:
            raise RuntimeError(f"send: code {answer['code']}: {answer.get('remark')}")
        return int(answer["extFields"]["msgId"][16:], 16)

    def put(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> dict[str, Any]:
        """The header of the answer, whatever it says."""
        fields = {
            "producerGroup": "interop", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": time.time_ns() // 1_000_000, "flag": 0,
            "properties": properties, "reconsumeTimes": 0, "unitMode": False, "batch": False,
        }  # fmt: skip
        return self.request(SEND_MESSAGE, fields, body)

    def request(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> dict[str, Any]:
        """Any request; the header of its answer."""
        return self.exchange(code, fields, body)[0]

    def exchange(
        self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Any request; header and body of its answer."""
        named = {key: str(value).lower() if value is False else str(value) for key, value in (fields or {}).items()}
        request = {"code": code, "language": "PYTHON", "version": 409, "opaque": next(self._opaque), "flag": 0}
        header = json.dumps({**request, "extFields": named}).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        return self._answer()

    def _answer(self) -> tuple[dict[str, Any], bytes]:
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        header_length = int.from_bytes(frame[1:4], "big")
        answer: dict[str, Any] = json.loads(frame[4 : 4 + header_length])
        return answer, frame[4 + header_length :]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RuntimeError("the broker hung up")
            data += part
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()
