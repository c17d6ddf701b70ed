"""A crowd at a broker's port: thousands of connections, half frames, readers that never read; and one who notices.

Python sockets alone: what Java's client would not do is what is tried.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from engine.protocol.remoting.frame import RemotingCommand, encode
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.fuzz.attack import SERVING, SIZES, own_memory
from tests.harness.conditions import await_that
from tests.interop.remoting import Client
from tools.common.local_broker import LocalBroker

PULL, TOPICS = 11, 21
TOPIC, MESSAGES, BODY_BYTES = "Crowd", 400, 1000
GREEDY_PULLS = 2000
FILES_LEFT = 200  # of this process, for other things


class Outcome(NamedTuple):
    """What became of the broker, and of those who behaved."""

    connections: int
    served: int
    grown_bytes: int
    grown_again_bytes: int  # by a second crowd like the first, when that had gone
    restarts: int
    files_left_open: int


def crowd(directory: Path, connections: int, *, compat: str = "4.9") -> Outcome:
    """So many connections at once, and what somebody who sends and reads meanwhile has of it."""
    connections = min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_LEFT)
    with LocalBroker(directory / "broker", compat=compat, **SIZES) as broker:
        await_that(lambda: _listens(broker.port), "the front listens")
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        processes = [psutil.Process(pid) for role in SERVING if (pid := counters.pids[role].read())]
        _exchanges(broker.port, MESSAGES)
        before, files = own_memory(processes), _files(processes)
        served, with_one = _beside_a_crowd(broker.port, connections, processes, files)
        again, with_another = _beside_a_crowd(broker.port, connections, processes, files)
        served = min(served, again) + _exchanges(broker.port, 10)
        restarts = sum(word.read() for word in counters.restarts.values())
        left = max(0, _files(processes) - files)
        return Outcome(connections, served, with_one - before, with_another - with_one, restarts, left)


def _beside_a_crowd(port: int, connections: int, processes: Sequence[psutil.Process], files: int) -> tuple[int, int]:
    """How many exchanges went well while it was there, and what the processes had then; it is gone afterwards."""
    with ExitStack() as stack:
        crowded = [stack.enter_context(_connected(port)) for _ in range(connections)]
        for number, each in enumerate(crowded):
            kind = KINDS[number % 100] if number % 100 < len(KINDS) else _idle
            kind(each)
        served, memory = _exchanges(port, MESSAGES), own_memory(processes)
    await_that(lambda: _files(processes) <= files + len(KINDS), "the front lets go of those that went")
    return served, memory


def _listens(port: int) -> bool:
    with suppress(OSError), _connected(port):
        return True
    return False


def _connected(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return sock


def _files(processes: Sequence[psutil.Process]) -> int:
    return sum(process.num_fds() for process in processes)


def _pull(offset: int = 0) -> bytes:
    fields = {"consumerGroup": "crowd", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
              "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
              "subVersion": "1", "expressionType": "TAG"}  # fmt: skip
    return encode(RemotingCommand(PULL, 1, ext_fields=fields, version=407))


def _idle(sock: socket.socket) -> None:
    """Nothing is said."""


def _half_open(sock: socket.socket) -> None:
    """A frame that never ends."""
    sock.sendall((1 << 20).to_bytes(4) + b"\0\0\0\x10{")


def _never_reading(sock: socket.socket) -> None:
    """Asks for messages as fast as it can, and reads none."""
    sock.setblocking(False)
    with suppress(OSError):
        for _ in range(GREEDY_PULLS):
            sock.send(_pull())


def _slow(sock: socket.socket) -> None:
    """Asks for much, reads one byte."""
    sock.setblocking(False)
    with suppress(OSError):
        for _ in range(100):
            sock.send(encode(RemotingCommand(TOPICS, 1, ext_fields={}, version=407)))
        sock.recv(1)


KINDS = (_half_open, _never_reading, _slow, _idle)


def _exchanges(port: int, count: int) -> int:
    """Messages that a well-behaved client sent and read back meanwhile."""
    served = 0
    with Client(port) as client:
        for n in range(count):
            client.send(TOPIC, 0, b"%d" % n * (BODY_BYTES // len(b"%d" % n)))
            fields = {"consumerGroup": "crowd", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1,
                      "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
                      "expressionType": "TAG"}  # fmt: skip
            answer, body = client.exchange(PULL, fields)
            served += answer["code"] == 0 and len(body) > BODY_BYTES // 2
    return served
