"""The receiver stepped by hand against a master made by hand: where bytes land, wherever the stream is cut."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.hello import REPEATED
from engine.protocol.ha.wire import FRAME_HEADER, REPORT, REPORT_BYTES, CloseReason
from engine.replication.receiver import Receiver, open_role
from engine.shared_memory.failures import FILES_GONE
from ipc import waiting
from store.recovery.overlap import LOWEST_START
from tests.harness.conditions import SECONDS
from tests.harness.ha_node import Node
from tests.harness.sockets import exactly

SEGMENT, SEGMENTS = 16 * 1024, 5
HALF = SEGMENT // 2
NOW_MS = 1_000_000


class Bench:
    """A receiver, its connection's other end, and every segment there may be."""

    def __init__(self, directory: Path, end: int = 0) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        port = self.listening.getsockname()[1]
        self.node = Node(directory, master=port, mappedFileSizeCommitLog=SEGMENT, syncFromLastFile=True)
        for number in range(SEGMENTS):
            self.node.files.reserve(number * SEGMENT)
        waiting.publish(self.node.counters.allocated_offset, SEGMENTS * SEGMENT)
        waiting.publish(self.node.counters.max_physical_offset, end)
        self.receiver: Receiver = open_role(self.node.config, self.node.counters)
        self.now_ms = NOW_MS
        self.until(lambda: self.receiver.client.state is HaClientState.TRANSFER)
        self.accept()

    def accept(self) -> None:
        """Be a RocketMQ master that has what the slave has."""
        self.master, _ = self.listening.accept()
        self.master.settimeout(SECONDS)
        self.step()
        request = exactly(self.master, REPEATED * REPORT_BYTES)
        assert request == request[:REPORT_BYTES] * REPEATED
        (self.asked_offset,) = REPORT.unpack_from(request)
        if self.end:
            body = self.node.log()[self.asked_offset :]
            self.master.sendall(FRAME_HEADER.pack(self.asked_offset, len(body)) + body)
            self.until(lambda: not self.receiver.client.is_opening)

    def step(self) -> None:
        self.receiver.do_work(self.now_ms)

    def until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            self.step()
            if is_reached():
                return
            client = self.receiver.client
            assert time.monotonic() < deadline, f"not reached: {self.end} {client.state} {client.reason}"
            self.receiver.idle(20)

    @property
    def end(self) -> int:
        return self.node.counters.max_physical_offset.read()

    def reports(self) -> list[int]:
        """What the slave reported so far."""
        self.receiver.do_work(self.now_ms)
        data = self.master.recv(1 << 16)
        return [REPORT.unpack_from(data, at)[0] for at in range(0, len(data) - REPORT_BYTES + 1, REPORT_BYTES)]

    def behind_the_end(self) -> bytes:
        base = self.node.files.base_of(self.end)
        with self.node.files.open(base) as segment:
            return bytes(segment.view[self.end - base :])

    def close(self) -> None:
        self.receiver.close()
        self.master.close()
        self.listening.close()
        self.node.close()


@contextmanager
def opened(directory: Path, end: int = 0) -> Iterator[Bench]:
    bench = Bench(directory, end)
    try:
        yield bench
    finally:
        bench.close()


def frames(data: bytes, start: int, size_of: Callable[[], int]) -> bytes:
    """`data` as a master sends it from `start` on."""
    stream, at = b"", 0
    while at < len(data):
        size = min(size_of(), SEGMENT - (start + at) % SEGMENT, len(data) - at)
        stream += FRAME_HEADER.pack(start + at, size) + data[at : at + size]
        at += size
    return stream


def test_the_first_report_goes_out_with_the_connection_and_the_end_is_reported_once_it_is_compared(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, end=777) as bench:
        assert (bench.asked_offset, bench.reports()) == (LOWEST_START, [777])


@pytest.mark.parametrize("seed", range(4))
def test_many_small_frames_in_one_read_across_segments(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(4 * SEGMENT + 100)
    stream = frames(data, 0, lambda: rng.choice([0, 1, 11, 12, 13, 300, HALF, HALF + 1]))
    with opened(tmp_path) as bench:
        while stream:
            cut = rng.choice([1, 12, 13, 500, 5000, 20_000])
            bench.master.sendall(stream[:cut])
            stream = stream[cut:]
            bench.step()
        bench.until(lambda: bench.end == len(data))
        reports = bench.reports()
        while reports[-1] < len(data):  # one that the kernel has not delivered yet
            reports += bench.reports()
        assert reports == sorted(reports)
        assert reports[-1] == len(data)
        assert bench.node.log() == data
        assert not any(bench.behind_the_end()), "zeros, as the allocator made them"


def test_every_cut_of_small_frames(tmp_path: Path) -> None:
    data = bytes(range(1, 31))
    stream = frames(data, 0, iter([5, 0, 1, 13, 0, 11]).__next__)
    for cut in range(1, len(stream)):
        with opened(tmp_path / str(cut)) as bench:
            bench.master.sendall(stream[:cut])
            bench.step()
            bench.master.sendall(stream[cut:])
            bench.until(lambda bench=bench: bench.end == len(data))
            assert bench.node.log() == data
            assert not any(bench.behind_the_end())


@pytest.mark.parametrize("good", [b"", b"a good one"])
def test_a_bad_frame_leaves_nothing_behind_the_end(tmp_path: Path, good: bytes) -> None:
    bad = FRAME_HEADER.pack(9999, 20) + b"\xff" * 20
    with opened(tmp_path, end=100) as bench:
        stream = FRAME_HEADER.pack(100, len(good)) + good if good else b""
        bench.master.sendall(stream + bad)
        bench.until(lambda: bench.receiver.client.state is HaClientState.READY)
        assert bench.node.counters.ha_client.reason.read() == CloseReason.OFFSET_MISMATCH
        assert bench.end == 100 + len(good)
        assert not any(bench.behind_the_end())


def test_what_a_killed_receiver_left_unjudged_is_wiped(tmp_path: Path) -> None:
    with opened(tmp_path, end=100) as bench:
        with bench.node.files.open(0, writable=True) as segment:
            segment.view[100 : 100 + HALF] = b"\xff" * HALF
        bench.master.sendall(FRAME_HEADER.pack(100, 5) + b"valid")
        bench.until(lambda: bench.end == 105)
        assert not any(bench.behind_the_end())


def test_a_connection_that_breaks_inside_a_body_keeps_what_came(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.master.sendall(FRAME_HEADER.pack(0, 1000) + b"x" * 400)
        bench.until(lambda: bench.end == 400)
        bench.master.close()
        bench.until(lambda: bench.receiver.client.state is HaClientState.READY)
        assert bench.node.counters.ha_client.reason.read() == CloseReason.PEER_CLOSED
        bench.now_ms += 10_000
        bench.until(lambda: bench.receiver.client.state is HaClientState.TRANSFER)
        bench.accept()
        assert bench.reports() == [400]


def test_a_master_that_hangs_up_before_its_first_frame_refuses(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.master.close()
        bench.until(lambda: bench.receiver.client.state is HaClientState.READY)
        assert bench.node.counters.ha_client.reason.read() == CloseReason.REFUSED


def test_a_slave_whose_disk_failed_reports_no_more(tmp_path: Path) -> None:
    """Also where nobody waits for its disk: what it holds may be gone, or out of reach."""
    with opened(tmp_path) as bench:
        bench.master.sendall(FRAME_HEADER.pack(0, 100) + bytes(100))
        bench.until(lambda: bench.end == 100)
        assert bench.reports()[-1] == 100
        waiting.publish(bench.node.counters.flush_errno, FILES_GONE)
        bench.until(lambda: bench.receiver.client.reason is CloseReason.DISK_FAILED)
        assert (bench.end, bench.master.recv(1)) == (100, b"")
        bench.now_ms += 10**9
        bench.step()
        assert bench.receiver.client.state is HaClientState.READY


def test_a_silent_master_is_given_up_after_the_housekeeping_interval(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.now_ms = NOW_MS + bench.node.config.ha_housekeeping_interval_ms
        bench.step()
        assert bench.receiver.client.state is HaClientState.TRANSFER
        bench.now_ms += 1
        bench.receiver.do_work(bench.now_ms)
        assert bench.node.counters.ha_client.reason.read() == CloseReason.HOUSEKEEPING


def test_nobody_at_the_masters_address_is_tried_ever_more_seldom(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # the port is taken, and nobody listens
        node = Node(tmp_path, master=nobody.getsockname()[1], mappedFileSizeCommitLog=SEGMENT)
        receiver = open_role(node.config, node.counters)
        for now_ms in range(NOW_MS, NOW_MS + 5000, 10):
            receiver.do_work(now_ms)
            receiver.idle(1)
    assert node.counters.ha_client.reason.read() == CloseReason.NO_LISTENER
    assert 5 <= receiver.client.failures <= 14
    receiver.close()
    node.close()
