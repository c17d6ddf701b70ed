"""The sender stepped by hand, its slave made by hand: what is on the wire, and how it ends."""

from __future__ import annotations

import itertools
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_kernel import STEP_MS, STEPS
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha.wire import FRAME_HEADER, REPORT, CloseReason
from engine.replication.replica_words import CATCH_UP_BYTES
from engine.replication.sender import FRAMES_MAX, Confirming, Sender
from engine.replication.sender_kernel import FIRST, LATE, LAZY_AFTER, FrameWord
from engine.shared_memory.cursors import HaSlotState
from ipc import waiting
from ipc.clock import monotonic_ms
from tests.harness.ha_node import WAIT_MS, Node, wait_for, wait_until
from tests.harness.sockets import exactly

SEGMENT, BATCH, NOW_MS = 16 * 1024, 1000, 1_000_000


def read_all(sock: socket.socket, stream: bytearray) -> None:
    """Read until the other side hangs up."""
    while part := sock.recv(1 << 20):
        stream += part


class Bench:
    """A sender without its reading thread, and the other end of its connection."""

    def __init__(
        self,
        directory: Path,
        flow_limit: int = UNLIMITED,
        segment_bytes: int = SEGMENT,
        confirms: bool = False,
        slot: int = 0,
        heartbeat_ms: int = 5000,
        housekeeping_ms: int = 20_000,
    ) -> None:
        self.node = Node(directory, mappedFileSizeCommitLog=segment_bytes)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.slave = socket.create_connection(listening.getsockname(), timeout=120)
            accepted, _ = listening.accept()
        flow = FlowMonitor(NOW_MS)
        waiting.publish(self.node.counters.ha_flow_control_enable, int(flow_limit != UNLIMITED))
        waiting.publish(self.node.counters.max_ha_transfer_byte_in_second, flow_limit)
        limits = ConnectionLimits(segment_bytes, BATCH, heartbeat_ms, housekeeping_ms, 3000)
        connection = HaConnection(limits, flow, NOW_MS)
        confirming = Confirming(is_by_sender=confirms)
        self.sender = Sender(self.node.counters, slot, self.node.files, connection, NOW_MS, confirming=confirming)
        self.sender.attach(accepted, accepted.getpeername(), NOW_MS)
        self.words = self.node.counters.ha[slot]

    def expect(self, offset: int, body: bytes) -> None:
        """The next frame on the wire is this one."""
        expected = FRAME_HEADER.pack(offset, len(body)) + body
        assert exactly(self.slave, len(expected)) == expected

    def close(self) -> None:
        self.slave.close()
        self.sender.close()
        self.node.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_what_the_log_has_goes_out_in_frames_from_the_segments(bench: Bench) -> None:
    data = random.Random(1).randbytes(SEGMENT + 2500)
    bench.node.append(data)
    bench.sender.take_reports(REPORT.pack(SEGMENT - 1500), NOW_MS)
    bench.sender.do_work(NOW_MS)
    start = SEGMENT - 1500
    for size in (1000, 500, 1000, 1000, 500):
        bench.expect(start, data[start : start + size])
        start += size
    assert bench.words.next_transfer_offset.read() == start
    assert bench.words.transferred_bytes.read() == 4000 + 5 * 12


def test_a_heartbeat_when_idle(bench: Bench) -> None:
    bench.sender.take_reports(REPORT.pack(0), NOW_MS)
    assert bench.sender.do_work(NOW_MS + 5000) == 0
    bench.sender.do_work(NOW_MS + 5001)
    bench.expect(0, b"")


def test_the_words_of_a_slot_tell_of_its_connection(bench: Bench) -> None:
    words = bench.words
    assert words.peer.read() == 0x7F000001 << 16 | bench.slave.getsockname()[1]
    assert (words.state.read(), words.connected_at_ms.read()) == (1, NOW_MS)
    bench.node.append(bytes(500))
    bell = bench.node.counters.ack_bell
    bell.words[bell.index + 1] += 1  # somebody listens
    bench.sender.take_reports(REPORT.pack(200)[:3], NOW_MS + 1)
    assert (words.state.read(), bell.read()) == (1, 0)
    bench.sender.take_reports(REPORT.pack(200)[3:], NOW_MS + 2)
    assert (words.state.read(), words.slave_request_offset.read(), words.slave_ack_offset.read()) == (
        HaSlotState.TRANSFER,
        200,
        200,
    )
    assert (words.last_read_ms.read(), bell.read()) == (NOW_MS + 2, 1)


def test_a_slave_that_does_not_read_holds_up_a_frame_not_the_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path, segment_bytes=1 << 24)
    data = random.Random(2).randbytes(14_000_000)
    bench.node.append(data)
    bench.sender.take_reports(REPORT.pack(1), NOW_MS)
    while bench.sender.do_work(NOW_MS):
        sent = bench.words.transferred_bytes.read()
    assert sent < len(data), "the socket is full, and the turn ended at its deadline"
    stream = bytearray()
    reader = threading.Thread(target=read_all, args=(bench.slave, stream))
    reader.start()
    while bench.words.next_transfer_offset.read() < len(data) or bench.sender._has_rest():
        bench.sender.do_work(NOW_MS)
    bench.sender.close()
    reader.join()
    received = bytes(stream)
    body, at = bytearray(), 0
    while at < len(received):
        offset, size = FRAME_HEADER.unpack_from(received, at)
        assert offset == 1 + len(body)
        body += received[at + 12 : at + 12 + size]
        at += 12 + size
    assert body == data[1:]
    bench.close()


@pytest.mark.parametrize(
    ("why", "report", "reason"),
    [
        ("hung up", None, CloseReason.PEER_CLOSED),
        ("a number that was not sent", 501, CloseReason.ACK_NOT_SENT),
        ("a number that fell", 99, CloseReason.ACK_FELL),
    ],
)
def test_the_end_of_a_connection_frees_the_slot(
    bench: Bench, why: str, report: int | None, reason: CloseReason
) -> None:
    bench.node.append(bytes(500))
    bench.sender.take_reports(REPORT.pack(100), NOW_MS)
    bench.sender.take_reports(b"" if report is None else REPORT.pack(report), NOW_MS)
    assert (bench.sender.ended, bench.sender.reason) == (True, reason), why
    assert bench.words.state.read() == HaSlotState.FREE
    assert bench.words.acks_rejected.read() == (report is not None)
    assert bench.sender.do_work(NOW_MS) == 0
    assert bench.slave.recv(100) == b""


def test_a_silent_slave_is_dropped(bench: Bench) -> None:
    bench.sender.take_reports(REPORT.pack(0), NOW_MS)
    bench.sender.do_work(NOW_MS + 20_000)
    assert not bench.sender.ended
    bench.sender.do_work(NOW_MS + 20_001)
    assert bench.sender.reason is CloseReason.HOUSEKEEPING


def full_socket(directory: Path) -> Bench:
    """A slave that asked for the log and reads none of it: a frame is begun, and does not fit the socket's buffers."""
    bench = Bench(directory, segment_bytes=1 << 24)
    bench.node.append(bytes(14_000_000))
    bench.sender.take_reports(REPORT.pack(1), NOW_MS)
    while bench.sender.do_work(NOW_MS):
        pass
    assert bench.sender._has_rest()
    return bench


def test_a_slave_that_reads_nothing_is_dropped_in_the_middle_of_a_frame(tmp_path: Path) -> None:
    bench = full_socket(tmp_path)
    bench.sender.do_work(NOW_MS + 20_000)
    assert not bench.sender.ended
    bench.sender.do_work(NOW_MS + 20_001)
    assert bench.sender.reason is CloseReason.HOUSEKEEPING
    assert bench.words.state.read() == HaSlotState.FREE
    bench.close()


def test_a_slave_that_reads_nothing_is_dropped_by_the_loop_that_keeps_its_own_time(tmp_path: Path) -> None:
    bench = full_socket(tmp_path)
    bench.sender.connection.last_read_ms = monotonic_ms() - 20_001
    bench.sender._transfer(0, FRAMES_MAX, 1000)
    assert bench.sender.reason is CloseReason.HOUSEKEEPING
    bench.close()


def test_the_reading_half_drops_a_silent_slave_when_the_writing_half_is_held_up(tmp_path: Path) -> None:
    bench = full_socket(tmp_path)
    receive_s = struct.pack("@ll", 0, 10_000)  # it looks at the clock whenever this is over
    assert bench.sender._socket is not None
    bench.sender._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, receive_s)
    bench.sender.start_reading(clock_ms=lambda: NOW_MS + 20_001)
    wait_until(bench.words.reason, lambda reason: reason == CloseReason.HOUSEKEEPING)
    bench.close()


def test_an_acknowledgement_that_comes_to_count_by_the_clock_is_seen_whatever_moment_that_is(tmp_path: Path) -> None:
    """The clock moves on between any two looks at it."""
    bench = Bench(tmp_path, housekeeping_ms=10 * WAIT_MS)
    bench.node.append(bytes(1000))
    bench.sender.take_reports(REPORT.pack(500), NOW_MS)
    bench.sender.do_work(NOW_MS)
    bench.sender.take_reports(REPORT.pack(1000), NOW_MS + 1)
    assert bench.words.held_offset.read() == 0, "a put may wait for what lies before"
    clock = itertools.count(NOW_MS + 2999)
    bench.sender.start_reading(clock_ms=lambda: next(clock))
    wait_until(bench.words.held_offset, lambda held: held == 1000)  # not only once the slave must have spoken
    bench.close()


def test_a_segment_that_is_open_is_sent_to_its_end_though_it_expired(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flow_limit=1000 * STEPS)
    data = bytes(range(256)) * (3 * SEGMENT // 256)
    bench.node.append(data)
    bench.sender.take_reports(REPORT.pack(SEGMENT - 1500), NOW_MS)
    bench.sender.do_work(NOW_MS)
    bench.expect(SEGMENT - 1500, data[SEGMENT - 1500 : SEGMENT - 500])
    for number in (0, 1):  # retention: the cursor, then the file
        waiting.publish(bench.node.counters.min_physical_offset, (number + 1) * SEGMENT)
        bench.node.files.remove(number * SEGMENT)
    bench.sender.do_work(NOW_MS + 1000)
    bench.expect(SEGMENT - 500, data[SEGMENT - 500 : SEGMENT])
    assert bench.sender.reason is CloseReason.GAP and bench.words.state.read() == HaSlotState.FREE
    assert bench.slave.recv(100) == b"", "not a byte of a frame that cannot be finished"
    bench.close()


def test_a_segment_missing_above_the_logs_beginning_is_an_error_of_its_own(bench: Bench) -> None:
    bench.node.append(bytes(2 * SEGMENT))
    bench.node.files.remove(SEGMENT)
    bench.sender.take_reports(REPORT.pack(SEGMENT + 5), NOW_MS)
    with pytest.raises(FileNotFoundError):
        bench.sender.do_work(NOW_MS)


def test_flow_control_holds_back_what_the_second_does_not_allow(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flow_limit=1500 * STEPS)
    data = bytes(range(250)) * 20
    bench.node.append(data)
    bench.sender.take_reports(REPORT.pack(1), NOW_MS)
    for step, sizes in enumerate([(1000, 500), (1000, 500), (1000, 500)]):
        bench.sender.do_work(NOW_MS + STEP_MS * step)
        assert bench.sender.do_work(NOW_MS + STEP_MS * (step + 1) - 1) == 0
        start = 1 + 1500 * step
        for size in sizes:
            bench.expect(start, data[start : start + size])
            start += size
    bench.close()


def test_a_slave_that_catches_up_has_its_own_rate_limit_which_can_change(tmp_path: Path) -> None:
    bench = Bench(tmp_path, segment_bytes=2 * CATCH_UP_BYTES)
    counters = bench.node.counters
    waiting.publish(counters.max_ha_catch_up_byte_in_second, 300 * STEPS)
    bench.node.files.reserve(0)
    waiting.publish(counters.max_physical_offset, CATCH_UP_BYTES + 700)
    bench.sender.take_reports(REPORT.pack(0), NOW_MS)
    assert bench.sender.do_work(NOW_MS) == 0
    assert bench.words.next_transfer_offset.read() == 300
    waiting.publish(counters.max_ha_catch_up_byte_in_second, 500 * STEPS)
    bench.sender.do_work(NOW_MS + 1)
    assert bench.words.next_transfer_offset.read() == 500
    bench.sender.do_work(NOW_MS + STEP_MS)
    assert bench.words.next_transfer_offset.read() == 1000
    bench.sender.do_work(NOW_MS + STEP_MS + 1)
    assert bench.words.next_transfer_offset.read() > 10_000, "less is missing than who catches up lacks"
    bench.close()


def test_a_slave_whose_acknowledgements_come_late_is_served_by_naps_until_it_is_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, confirms=True, heartbeat_ms=1 << 40)
    counters, frame = bench.node.counters, bench.sender._line.frame

    def late() -> int:
        return int(frame[FrameWord.LATE_ACKS])

    def nap() -> None:
        frame[FrameWord.GREW_MS] = monotonic_ms() + 60_000  # the log is growing, however slow this machine is now
        bench.sender.idle(20)

    bench.sender.take_reports(REPORT.pack(0), monotonic_ms())
    bench.sender.start_reading()
    acks = LAZY_AFTER // LATE
    for end in range(1, acks + 1):  # another slave is always first
        bench.node.append(b"x")
        bench.sender.do_work(monotonic_ms())
        bench.expect(end - 1, b"x")
        waiting.publish(counters.confirm_offset, end)
        bench.slave.sendall(REPORT.pack(end))
        wait_for(bench.words.slave_ack_offset, end)
        wait_until(bench.words.wake, lambda _, end=end: late() == end * LATE)
    nap()
    assert late() == LAZY_AFTER, "everything is confirmed: nobody waits for this one"
    bench.node.append(b"y")
    bench.sender.do_work(monotonic_ms())
    bench.expect(acks, b"y")
    nap()
    assert late() == 0, "the other one did not confirm what this one was sent"
    bench.slave.sendall(REPORT.pack(acks + 1))
    wait_for(counters.confirm_offset, acks + 1)
    assert late() == 0
    bench.close()


@pytest.mark.parametrize(
    ("lower_state", "turns", "is_lazy"), [(HaSlotState.FREE, 200, False), (HaSlotState.TRANSFER, 200, True)]
)
def test_all_slaves_but_the_lowest_slots_become_lazy_when_they_take_turns(
    tmp_path: Path, lower_state: int, turns: int, is_lazy: bool
) -> None:
    bench = Bench(tmp_path, confirms=True, slot=1)
    counters, frame = bench.node.counters, bench.sender._line.frame
    waiting.publish(counters.ha[0].state, lower_state)
    bench.node.append(bytes(turns + 1))
    bench.sender.take_reports(REPORT.pack(0), monotonic_ms())
    while bench.words.next_transfer_offset.read() <= turns:
        bench.sender.do_work(monotonic_ms())
    bench.sender.start_reading()
    for acked in range(1, turns + 1):
        if acked % 2:
            waiting.publish(counters.confirm_offset, acked)
        bench.slave.sendall(REPORT.pack(acked))
        wait_for(bench.words.slave_ack_offset, acked)
        wait_for(counters.confirm_offset, acked)
    assert (frame[FrameWord.LATE_ACKS] >= LAZY_AFTER - FIRST - LATE) == is_lazy
    bench.close()
