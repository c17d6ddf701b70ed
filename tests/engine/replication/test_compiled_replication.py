"""The compiled loops of sender and receiver decide what the protocol's objects decide, word for word."""

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

from engine.board.cursors import Board
from engine.protocol.ha import client as ha_client
from engine.protocol.ha.client import ClientLimits, HaClient
from engine.protocol.ha.connection import ConnectionLimits, HaConnection
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, PeerError
from engine.replication import receiver_kernel, sender_kernel
from store.files.pointer import COUNTERS_FILE

SEGMENT, NOW_MS = 4096, 1_000_000
LIMITS = ConnectionLimits(SEGMENT, 700, 5000, 20_000, 3000)
EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels compile


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    with tempfile.TemporaryDirectory() as directory:
        made = Board.create(Path(directory) / COUNTERS_FILE)
        yield made
        made.counters.close()


def pair(limit: int, request: int, acked: int) -> tuple[HaConnection, HaConnection]:
    both = [HaConnection(LIMITS, FlowMonitor(NOW_MS, limit), NOW_MS) for _ in range(2)]
    for one in both:
        one.slave_request_offset, one.slave_ack_offset = request, acked
    return both[0], both[1]


steps = st.lists(st.tuples(st.integers(-50, 6000), st.integers(0, 3000)), max_size=40)


@EXAMPLES
@given(st.integers(-1, 5000), st.sampled_from([UNLIMITED, 1, 650, 2000]), steps)
def test_the_same_frames_at_the_same_times(request_offset: int, limit: int, moves: list[tuple[int, int]]) -> None:
    pure, compiled = pair(limit, request_offset, request_offset)
    now_ms, end = NOW_MS, max(request_offset, 0)
    for elapsed_ms, appended in moves:
        now_ms, end = now_ms + elapsed_ms, end + appended
        for _ in range(3):
            frame = pure.next_frame(now_ms, end)
            offset, size = sender_kernel.next_frame(compiled.words, compiled.flow.words, LIMITS, now_ms, end)
            assert (None if size == sender_kernel.NOTHING else (offset, size)) == frame
            assert compiled.words.tolist() == pure.words.tolist()
            assert compiled.flow.words.tolist() == pure.flow.words.tolist()


@EXAMPLES
@given(
    st.integers(-1, 100), st.integers(0, 200),
    st.lists(st.tuples(st.lists(st.integers(0, 320), min_size=1, max_size=4), st.integers(0, 8)), max_size=10),
)  # fmt: skip
def test_what_the_kernel_believes_the_protocol_believes(
    request_offset: int, sent: int, reads: list[tuple[list[int], int]]
) -> None:
    pure, compiled = pair(UNLIMITED, request_offset, request_offset)
    for one in (pure, compiled):
        one.next_transfer_offset = request_offset + sent if request_offset >= 0 else -1
    for offsets, cut in reads:
        data = b"".join(REPORT.pack(offset) for offset in offsets)
        data = data[: len(data) - cut]
        before = compiled.words.tolist()
        acked = sender_kernel.believes(compiled.words, np.frombuffer(data + b"\0", np.uint8).copy(), len(data))
        assert compiled.words.tolist() == before, "judging changes nothing"
        try:
            pure.receive(data, NOW_MS, 0, 100)
        except PeerError:
            assert acked == -1
            return
        if acked >= 0:
            assert acked == pure.slave_ack_offset
            compiled.slave_ack_offset = acked
        else:
            assert cut or request_offset < 0, "whole reports that are believed are the kernel's"
            return


class Slave:
    """The compiled receiver over a file, its socket's bytes given by hand; and the pure one beside it."""

    def __init__(self, board: Board, end: int, file: IO[bytes]) -> None:
        limits = ClientLimits(SEGMENT, 5000, 20_000, 5000)
        self.pure, self.client = HaClient(limits, end), HaClient(limits, end)
        board.counters.words[board.max_physical_offset.index] = end
        self.line = receiver_kernel.line_of(board, self.client)
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
        end = int(held[receiver_kernel.END])
        inbox[end : end + len(data)] = np.frombuffer(data, np.uint8)
        held[receiver_kernel.END] += len(data)
        while (outcome := receiver_kernel.take(self.line, self.target, SEGMENT)) == receiver_kernel.UNREAD:
            pass
        return int(outcome)

    def told(self, data: bytes) -> None:
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
def a_slave(board: Board, end: int) -> Iterator[Slave]:
    with tempfile.TemporaryFile() as file:
        yield Slave(board, end, file)


frames = st.lists(st.tuples(st.integers(0, 900), st.sampled_from([0] * 12 + [1, -1, 5000])), max_size=15)


@EXAMPLES
@given(st.integers(1, 300), frames, st.lists(st.integers(1, 1500), min_size=1, max_size=60))
def test_the_same_bytes_in_the_same_place(
    board: Board, end: int, sizes: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream, at = b"", end
    for size, wrong in sizes:
        size = min(size, SEGMENT - at % SEGMENT)
        if at + size > 4 * SEGMENT:
            break
        stream += FRAME_HEADER.pack(at + wrong, size if wrong != 5000 else SEGMENT + 1) + os.urandom(size)
        at += size
    with a_slave(board, end) as slave:
        while stream:
            cut = cuts.pop(0) if cuts else len(stream)
            part, stream = stream[:cut], stream[cut:]
            outcome = slave.compiled(part)
            try:
                slave.told(part)
            except PeerError:
                assert outcome == receiver_kernel.JUDGE
                stream = b""
            else:
                assert outcome == receiver_kernel.MORE
            same = [ha_client.MAX_PHYSICAL, ha_client.BODY_LEFT, ha_client.FRAMES]
            assert slave.client.words[same].tolist() == slave.pure.words[same].tolist()
            assert board.max_physical_offset.read() == slave.client.end
        assert slave.file.read() == bytes(slave.expected)


def test_many_small_frames_take_more_than_one_system_call(board: Board) -> None:
    count = receiver_kernel.PIECES_MAX * 2 + 7
    stream = b"".join(FRAME_HEADER.pack(1 + at, 1) + b"x" for at in range(count))
    with a_slave(board, 1) as slave:
        assert slave.compiled(stream) == receiver_kernel.MORE
        assert slave.client.max_physical_offset == 1 + count
        assert slave.file.read(1 + count + 1) == b"\0" + b"x" * count + b"\0"


def test_an_empty_log_is_begun_by_the_protocol_alone(board: Board) -> None:
    with a_slave(board, 0) as slave:
        before = slave.client.words.tolist()
        assert slave.compiled(FRAME_HEADER.pack(SEGMENT, 10) + bytes(10)) == receiver_kernel.JUDGE
        assert slave.client.words.tolist() == before
        assert slave.line.held[receiver_kernel.END] - slave.line.held[receiver_kernel.BEGIN] == FRAME_HEADER_BYTES + 10


def test_a_body_outside_the_open_segment_waits_for_its_own(board: Board) -> None:
    stream = FRAME_HEADER.pack(SEGMENT - 9, 9) + b"the first" + FRAME_HEADER.pack(SEGMENT, 6) + b"second"
    with a_slave(board, SEGMENT - 9) as slave:
        slave.target = receiver_kernel.Target(slave.file.fileno(), 0, SEGMENT)
        assert slave.compiled(stream) == receiver_kernel.NEEDS_SEGMENT
        assert (slave.client.max_physical_offset, board.max_physical_offset.read()) == (SEGMENT, SEGMENT)
        slave.target = receiver_kernel.Target(slave.file.fileno(), SEGMENT, 2 * SEGMENT)
        assert slave.compiled(b"") == receiver_kernel.MORE
        assert slave.file.read(6) == b"second", "a segment is a file of its own, from its first byte"


def test_a_file_that_cannot_be_written_is_told_by_its_errno(board: Board) -> None:
    with a_slave(board, 1) as slave, open(os.devnull, "rb") as read_only:
        slave.target = receiver_kernel.Target(read_only.fileno(), 0, SEGMENT)
        outcome = slave.compiled(FRAME_HEADER.pack(1, 1) + b"x")
        assert receiver_kernel.DISK - outcome == errno.EBADF
    assert board.max_physical_offset.read() == 1, "nothing is published that is not in the file"
