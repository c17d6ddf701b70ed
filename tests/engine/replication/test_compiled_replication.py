"""What sender and receiver decide compiled: as plain Python says it, and however the bytes come in parts."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol.ha import connection_kernel
from engine.protocol.ha.client import HaClient
from engine.protocol.ha.client_kernel import ClientLimits, ClientWord
from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_kernel import FlowWord
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, Frame, PeerError
from engine.replication import receiver_kernel
from engine.replication.receiver_kernel import HeldWord, Outcome
from engine.shared_memory.cursors import BrokerCounters
from store.files.pointer import COUNTERS_FILE

SEGMENT, NOW_MS, LATER_MS = 4096, 1_000_000, 1_000_007
LIMITS = ConnectionLimits(SEGMENT, 700, 5000, 20_000, 3000)
EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels compile


@pytest.fixture(scope="module")
def counters() -> Iterator[BrokerCounters]:
    with tempfile.TemporaryDirectory() as directory:
        made = BrokerCounters.create(Path(directory) / COUNTERS_FILE)
        yield made
        made.region.close()


class Master:
    """What a connection sends, said again in plain Python: the frames that the compiled function must choose."""

    def __init__(self, limit: int, request: int) -> None:
        self.limit, self.request = limit, request
        self.next, self.written_ms = -1, NOW_MS
        self.window_ms, self.in_window = NOW_MS, 0

    def next_frame(self, now_ms: int, end: int) -> Frame | None:
        if self.request < 0:
            return None
        if self.next < 0:
            self.next = self.request
        if now_ms > self.written_ms + LIMITS.send_heartbeat_interval_ms:
            self.written_ms = now_ms
            return Frame(self.next, 0)
        if self.next == end:
            return None
        if not self.window_ms <= now_ms < self.window_ms + 1000:
            self.window_ms, self.in_window = now_ms, 0
        steps = (now_ms - self.window_ms) // 20 + 1
        allowed = max(min(-(-self.limit // 50) * steps, self.limit) - self.in_window, 0)
        segment_end = (self.next // SEGMENT + 1) * SEGMENT
        frame = Frame(
            self.next, min(end, segment_end, self.next + LIMITS.transfer_batch_bytes, self.next + allowed) - self.next
        )
        if not frame.body_bytes:
            return None
        self.next, self.in_window, self.written_ms = (
            self.next + frame.body_bytes,
            self.in_window + frame.body_bytes,
            now_ms,
        )
        return frame


def connection_of(limit: int, request: int) -> HaConnection:
    connection = HaConnection(LIMITS, FlowMonitor(NOW_MS, limit), NOW_MS)
    connection.slave_request_offset = connection.slave_ack_offset = connection.start_offset = request
    return connection


steps = st.lists(st.tuples(st.integers(-50, 6000), st.integers(0, 3000)), max_size=40)


@EXAMPLES
@given(st.integers(-1, 5000), st.sampled_from([UNLIMITED, 1, 650, 2000]), steps)
def test_compiled_and_plain_senders_send_the_same_frames_at_the_same_times(
    request_offset: int, limit: int, moves: list[tuple[int, int]]
) -> None:
    plain, compiled = Master(limit, request_offset), connection_of(limit, request_offset)
    now_ms, end = NOW_MS, max(request_offset, 0)
    for elapsed_ms, appended in moves:
        now_ms, end = now_ms + elapsed_ms, end + appended
        for _ in range(3):
            assert compiled.next_frame(now_ms, end) == plain.next_frame(now_ms, end)
            assert compiled.next_transfer_offset == plain.next
            assert compiled.last_write_ms == plain.written_ms
            assert compiled.flow.words[FlowWord.IN_WINDOW] == plain.in_window


@EXAMPLES
@given(
    st.integers(-1, 100),
    st.integers(0, 200),
    st.lists(st.tuples(st.lists(st.integers(0, 320), min_size=1, max_size=4), st.integers(0, 8)), max_size=10),
)
def test_reports_in_one_piece_are_believed_as_they_are_one_by_one(
    request_offset: int, sent: int, reads: list[tuple[list[int], int]]
) -> None:
    one_by_one, at_once = (connection_of(UNLIMITED, request_offset) for _ in range(2))
    for one in (one_by_one, at_once):
        one.next_transfer_offset = request_offset + sent if request_offset >= 0 else -1
    for offsets, cut in reads:
        data = b"".join(REPORT.pack(offset) for offset in offsets)
        data = data[: max(len(data) - cut, 1)]
        before = at_once.words.tolist()
        acked = connection_kernel.take_acks(
            at_once.words, np.frombuffer(bytearray(data + b"\0"), np.uint8), len(data), LATER_MS
        )
        if acked < 0:
            assert at_once.words.tolist() == before, "what is not believed changes nothing"
        try:
            for byte in data:  # a report that comes in parts is looked at by itself
                one_by_one.receive(bytes([byte]), LATER_MS, 0, 100)
        except PeerError:
            assert acked == connection_kernel.NOTHING
            return
        if acked < 0:
            assert cut or request_offset < 0, "whole reports that are believed need nobody else"
            return
        assert at_once.words.tolist() == one_by_one.words.tolist()
        assert acked == at_once.slave_ack_offset


class Slave:
    """The compiled receiver over a file, its socket's bytes given by hand; and the pure one beside it."""

    def __init__(self, counters: BrokerCounters, end: int, file: IO[bytes]) -> None:
        limits = ClientLimits(SEGMENT, 5000, 20_000, 5000)
        self.pure, self.client = HaClient(limits, end), HaClient(limits, end)
        counters.region.words[counters.max_physical_offset.index] = end
        self.line = receiver_kernel.line_of(counters, self.client)
        for one in (self.pure, self.client):
            one.connected(NOW_MS)
        self.file = file
        file.truncate(4 * SEGMENT)
        self.target = receiver_kernel.Target(file.fileno(), 0, 4 * SEGMENT)
        self.expected = bytearray(4 * SEGMENT)

    def compiled(self, data: bytes) -> int:
        """What the loop does behind its recv."""
        held, inbox = self.line.held, self.line.inbox
        receiver_kernel.make_room(self.line)
        end = int(held[HeldWord.END])
        inbox[end : end + len(data)] = np.frombuffer(data, np.uint8)
        held[HeldWord.END] += len(data)
        while (outcome := receiver_kernel.take(self.line, self.target, SEGMENT)) == Outcome.UNREAD:
            pass
        return int(outcome)

    def interpreted(self, data: bytes) -> None:
        """The same for the pure one. Raises PeerError."""
        while data:
            room = self.pure.body_left
            at, count = self.pure.max_physical_offset, min(len(data), room + len(self.pure.header_space))
            body, header = data[: min(count, room)], data[min(count, room) : count]
            self.expected[at : at + len(body)] = body
            self.pure.header_space[: len(header)] = header
            self.pure.received(count, NOW_MS)
            data = data[count:]


@contextmanager
def a_slave(counters: BrokerCounters, end: int) -> Iterator[Slave]:
    with tempfile.TemporaryFile() as file:
        yield Slave(counters, end, file)


frames = st.lists(st.tuples(st.integers(0, 900), st.sampled_from([0] * 12 + [1, -1, 5000])), max_size=15)


@EXAMPLES
@given(st.integers(1, 300), frames, st.lists(st.integers(1, 1500), min_size=1, max_size=60))
def test_compiled_and_plain_receivers_write_the_same_bytes(
    counters: BrokerCounters, end: int, sizes: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream, at = b"", end
    for size, wrong in sizes:
        size = min(size, SEGMENT - at % SEGMENT)
        if at + size > 4 * SEGMENT:
            break
        stream += FRAME_HEADER.pack(at + wrong, size if wrong != 5000 else SEGMENT + 1) + os.urandom(size)
        at += size
    with a_slave(counters, end) as slave:
        while stream:
            cut = cuts.pop(0) if cuts else len(stream)
            part, stream = stream[:cut], stream[cut:]
            outcome = slave.compiled(part)
            try:
                slave.interpreted(part)
            except PeerError:
                assert outcome == Outcome.JUDGE
                stream = b""
            else:
                assert outcome == Outcome.MORE
            same = [ClientWord.MAX_PHYSICAL, ClientWord.BODY_LEFT, ClientWord.FRAMES]
            assert slave.client.words[same].tolist() == slave.pure.words[same].tolist()
            assert counters.max_physical_offset.read() == slave.client.end
        assert slave.file.read() == bytes(slave.expected)


def test_many_small_frames_take_more_than_one_system_call(counters: BrokerCounters) -> None:
    count = receiver_kernel.PIECES_MAX * 2 + 7
    stream = b"".join(FRAME_HEADER.pack(1 + at, 1) + b"x" for at in range(count))
    with a_slave(counters, 1) as slave:
        assert slave.compiled(stream) == Outcome.MORE
        assert slave.client.max_physical_offset == 1 + count
        assert slave.file.read(1 + count + 1) == b"\0" + b"x" * count + b"\0"


def test_an_empty_log_is_begun_by_the_protocol_alone(counters: BrokerCounters) -> None:
    with a_slave(counters, 0) as slave:
        before = slave.client.words.tolist()
        assert slave.compiled(FRAME_HEADER.pack(SEGMENT, 10) + bytes(10)) == Outcome.JUDGE
        assert slave.client.words.tolist() == before
        assert slave.line.held[HeldWord.END] - slave.line.held[HeldWord.BEGIN] == FRAME_HEADER_BYTES + 10


def test_a_body_outside_the_open_segment_waits_for_its_own(counters: BrokerCounters) -> None:
    stream = FRAME_HEADER.pack(SEGMENT - 9, 9) + b"the first" + FRAME_HEADER.pack(SEGMENT, 6) + b"second"
    with a_slave(counters, SEGMENT - 9) as slave:
        slave.target = receiver_kernel.Target(slave.file.fileno(), 0, SEGMENT)
        assert slave.compiled(stream) == Outcome.NEEDS_SEGMENT
        assert (slave.client.max_physical_offset, counters.max_physical_offset.read()) == (SEGMENT, SEGMENT)
        slave.target = receiver_kernel.Target(slave.file.fileno(), SEGMENT, 2 * SEGMENT)
        assert slave.compiled(b"") == Outcome.MORE
        assert slave.file.read(6) == b"second", "a segment is a file of its own, from its first byte"


def test_a_file_that_cannot_be_written_is_reported_by_its_errno(counters: BrokerCounters) -> None:
    with a_slave(counters, 1) as slave, open(os.devnull, "rb") as read_only:
        slave.target = receiver_kernel.Target(read_only.fileno(), 0, SEGMENT)
        outcome = slave.compiled(FRAME_HEADER.pack(1, 1) + b"x")
        assert Outcome.DISK - outcome == errno.EBADF
    assert counters.max_physical_offset.read() == 1, "nothing is published that is not in the file"
