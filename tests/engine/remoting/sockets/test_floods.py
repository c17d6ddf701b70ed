"""Floods at real processes: idle connections beyond their descriptors, and frames that never end."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from engine.net import log_lines
from store.reading import extent
from tests.fuzz.frames import still_answers
from tests.harness.conditions import await_that
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

SMALL = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20}
ALL_TOPICS, CLUSTER_INFO = 21, 106
SECONDS, MIB = 60.0, 1 << 20


def connected(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))


def is_served(port: int) -> bool:
    """Whether it is by the deadline: a broker binds its ports after its store is ready."""

    def is_bound() -> bool:
        try:
            return still_answers(port, ALL_TOPICS)
        except ConnectionRefusedError:
            return False

    return await_that(is_bound, f"port {port} is served", SECONDS)


def test_idle_connections_beyond_all_descriptors_lock_nobody_out_of_a_broker(tmp_path: Path) -> None:
    limited = ("prlimit", "--nofile=300:300")
    began = time.monotonic()
    with LocalBroker(tmp_path / "broker", inside=limited, **SMALL) as broker, ExitStack() as stack:
        ports = (broker.port, broker.port - 2)
        for port in ports:
            assert is_served(port)
            for _ in range(350):
                connected(stack, port)
        for _ in range(3):
            assert all(still_answers(port, ALL_TOPICS) for port in ports)
        assert extent.running(broker.store) is not None
        lines = broker.log.read_text()
        periods = 1 + int((time.monotonic() - began) // log_lines.AGAIN_SECONDS)
        assert 1 <= lines.count(", to admit ") <= 8 * periods
        assert "Too many open files" not in lines


def test_frames_that_never_end_take_bounded_memory_of_a_name_server(tmp_path: Path) -> None:
    server = OurNameServer(tmp_path / "names", "5.3.3")
    try:
        port, process = int(server.address.rpartition(":")[2]), psutil.Process(server.pid)
        assert still_answers(port, CLUSTER_INFO)
        before = process.memory_info().rss
        with ExitStack() as stack:
            for _ in range(60):
                peer = connected(stack, port)
                try:
                    peer.sendall((16 * MIB - 1).to_bytes(4) + bytes(15 * MIB))
                except ConnectionError:
                    continue  # hung up on, to make room
            assert still_answers(port, CLUSTER_INFO)
            assert process.memory_info().rss - before < 256 * MIB
    finally:
        server.stop()
