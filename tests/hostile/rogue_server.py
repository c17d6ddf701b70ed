"""A name server and a master in one, by hand, that answer as a stranger would who wants files where they do not belong."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from dataclasses import replace
from types import TracebackType

from engine.protocol.ha.wire import FRAME_HEADER, REPORT_BYTES
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, Serialize, decode, encode
from store.message.record import encode as encode_record

RECORD_FIELDS = {"body": b"x", "queue_id": 0}
MANY, LONG = 20_000, 60_000


def tables(names: list[str]) -> dict[int, bytes]:
    """Answers to what a slave asks its master, each with these names wherever there is one, and with very many."""
    config = {"order": False, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicFilterType": "SINGLE_TAG"}
    version = {"counter": 9, "timestamp": 9, "stateVersion": 0}
    many = [*names, *(f"t{number}" for number in range(MANY)), "n" * LONG]
    offsets = {f"{name}@{name}": {"0": 7, "-1": 1 << 62} for name in many}
    groups = {name: {"groupName": name, "consumeEnable": True, "retryMaxTimes": 16} for name in many}
    topics = {name: {**config, "topicName": name} for name in many}
    values: dict[int, object] = {
        RequestCode.GET_ALL_TOPIC_CONFIG: {"dataVersion": version, "topicConfigTable": topics},
        RequestCode.GET_ALL_CONSUMER_OFFSET: {"dataVersion": version, "offsetTable": offsets},
        RequestCode.GET_ALL_DELAY_OFFSET: {"dataVersion": version, "offsetTable": dict.fromkeys(names, 3)},
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {"dataVersion": version, "subscriptionGroupTable": groups},
    }
    return {int(code): json.dumps(value).encode() for code, value in values.items()}


class RogueServer:
    """Listens at three ports that lie as a broker's do: remoting, the one two below, HA; a context manager."""

    def __init__(self, port: int, names: list[str]) -> None:
        self.port = port
        self.asked: Counter[int] = Counter()
        self.reported = threading.Event()  # a slave has said that it holds all of our log
        self._names, self._tables = names, tables(names)
        self._listening = [socket.create_server(("127.0.0.1", each)) for each in (port, port - 2, port + 1)]
        self._threads = [threading.Thread(target=self._accept, args=(sock,), daemon=True) for sock in self._listening]

    def __enter__(self) -> RogueServer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        for listening in self._listening:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    @property
    def log(self) -> bytes:
        """Records whose topics are these names."""
        log = b""
        for name in self._names:
            topic = name.encode()[:127].decode(errors="ignore")
            log += encode_record(topic, queue_offset=0, physical_offset=len(log), store_timestamp_ms=1, **RECORD_FIELDS)
        return log

    def _accept(self, listening: socket.socket) -> None:
        is_of_slaves = listening.getsockname()[1] == self.port + 1
        while True:
            try:
                peer, _address = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._send_log if is_of_slaves else self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        splitter = FrameSplitter()
        with peer:
            try:
                while data := peer.recv(1 << 16):
                    for frame in splitter.feed(data):
                        request = decode(frame)
                        if not request.is_oneway:
                            peer.sendall(encode(self._answer_to(request)))
                        self.asked[request.code] += 1
            except OSError:
                return  # it hung up

    def _answer_to(self, request: RemotingCommand) -> RemotingCommand:
        answer = request.answer(0, version=request.version, serialize=Serialize.JSON)
        if request.code == RequestCode.REGISTER_BROKER:
            kinds = [f"127.0.0.1:{self.port}"] * 2 + ["../../x:10911", "h" * LONG + ":1", "[::1:", ""]
            master = kinds[self.asked[request.code] % len(kinds)]
            ha = f"127.0.0.1:{self.port + 1}" if master == kinds[0] else master
            body = json.dumps({"table": dict.fromkeys(self._names, "broker:8")}).encode()
            return replace(answer, ext_fields={"masterAddr": master, "haServerAddr": ha}, body=body)
        return replace(answer, body=self._tables.get(request.code, b"{}"))

    def _send_log(self, peer: socket.socket) -> None:
        log = self.log
        with peer:
            try:
                peer.recv(REPORT_BYTES, socket.MSG_WAITALL)
                peer.sendall(FRAME_HEADER.pack(0, len(log)) + log)
                while data := peer.recv(1 << 12):
                    if int.from_bytes(data[-REPORT_BYTES:], "big") == len(log):
                        self.reported.set()
            except OSError:
                return  # it hung up
