"""The master's side: where a transfer starts, what comes next, which reports are believed."""

from __future__ import annotations

import pytest

from engine.protocol.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha_connection import ConnectionLimits, HaConnection, next_batch, transfer_start
from engine.protocol.ha_wire import REPORT, CloseReason, Frame, PeerError

SEGMENT, BATCH, HEARTBEAT_MS, HOUSEKEEPING_MS = 1000, 300, 5000, 20_000
LIMITS = ConnectionLimits(SEGMENT, BATCH, HEARTBEAT_MS, HOUSEKEEPING_MS)


def connect(request: int | None, end: int, *, first: int = 0, now_ms: int = 0, limit: int = UNLIMITED) -> HaConnection:
    connection = HaConnection(LIMITS, FlowMonitor(now_ms, limit), now_ms)
    if request is not None:
        connection.receive(REPORT.pack(request), now_ms, first, end)
    return connection


def frames(connection: HaConnection, end: int, now_ms: int = 0) -> list[Frame]:
    found = []
    while (frame := connection.next_frame(now_ms, end)) is not None:
        found.append(frame)
    return found


@pytest.mark.parametrize(
    ("why", "start", "end", "expected"),
    [
        ("nothing new", 500, 500, 0),
        ("all there is", 500, 700, 200),
        ("no more than a batch", 0, 900, 300),
        ("never across a segment's end", 900, 1200, 100),
        ("a whole segment's end", 2000, 2001, 1),
    ],
)
def test_next_batch(why: str, start: int, end: int, expected: int) -> None:
    assert next_batch(start, end, SEGMENT, BATCH) == expected, why


@pytest.mark.parametrize(
    ("why", "asked", "end", "expected"),
    [
        ("an empty slave gets the last segment only", 0, 2500, 2000),
        ("a last segment that is still empty", 0, 2000, 2000),
        ("an empty master", 0, 0, 0),
        ("everybody else goes on", 1234, 2500, 1234),
    ],
)
def test_transfer_start(why: str, asked: int, end: int, expected: int) -> None:
    assert transfer_start(asked, end, SEGMENT) == expected, why


def test_nothing_is_sent_before_the_first_report() -> None:
    assert connect(None, 500).next_frame(60_000, 500) is None


def test_frames_follow_each_other_to_the_end_of_the_log() -> None:
    connection = connect(700, 1100)
    assert frames(connection, 1100) == [Frame(700, 300), Frame(1000, 100)]
    assert connection.next_transfer_offset == 1100
    assert frames(connection, 1105) == [Frame(1100, 5)]


def test_heartbeat_only_after_more_than_the_interval_and_with_the_next_offset() -> None:
    connection = connect(500, 500)
    assert connection.next_frame(HEARTBEAT_MS, 500) is None
    assert connection.next_frame(HEARTBEAT_MS + 1, 500) == Frame(500, 0)
    assert connection.next_frame(HEARTBEAT_MS + 2, 500) is None


def test_a_slave_that_reports_late_gets_a_heartbeat_before_the_first_data() -> None:
    connection = connect(None, 500)
    connection.receive(REPORT.pack(400), 5020, 0, 500)
    assert frames(connection, 500, 5020) == [Frame(400, 0), Frame(400, 100)]


def test_data_takes_the_place_of_a_heartbeat() -> None:
    connection = connect(0, 0)
    connection.next_frame(4000, 10)
    assert connection.next_frame(HEARTBEAT_MS + 1, 10) is None
    assert connection.wait_ms(HEARTBEAT_MS + 1) == 4000


def test_a_request_above_the_masters_end_is_refused() -> None:
    with pytest.raises(PeerError) as caught:
        connect(501, 500)
    assert caught.value.reason is CloseReason.REQUEST_ABOVE_END


@pytest.mark.parametrize("request_offset", [999, 1, -1])
def test_a_request_below_the_masters_first_segment_is_refused(request_offset: int) -> None:
    with pytest.raises(PeerError) as caught:
        connect(request_offset, 2500, first=1000)
    assert caught.value.reason is CloseReason.REQUEST_BELOW_MIN


def test_an_empty_slave_may_come_to_a_master_that_dropped_its_first_segments() -> None:
    assert frames(connect(0, 2100, first=1000), 2100) == [Frame(2000, 100)]


def test_what_the_slave_has_already_counts_as_acknowledged() -> None:
    assert connect(400, 500).slave_ack_offset == 400


def test_an_acknowledgement_of_what_was_not_sent_ends_the_connection_and_is_counted() -> None:
    connection = connect(100, 500)
    assert connection.next_frame(0, 500) == Frame(100, 300)
    connection.receive(REPORT.pack(400), 1, 0, 500)
    with pytest.raises(PeerError) as caught:
        connection.receive(REPORT.pack(401), 2, 0, 500)
    assert caught.value.reason is CloseReason.ACK_NOT_SENT
    assert (connection.slave_ack_offset, connection.acks_rejected) == (400, 1)


def test_an_acknowledgement_that_falls_ends_the_connection_and_is_counted() -> None:
    connection = connect(100, 500)
    frames(connection, 500)
    connection.receive(REPORT.pack(300) + REPORT.pack(300), 1, 0, 500)
    with pytest.raises(PeerError) as caught:
        connection.receive(REPORT.pack(299), 2, 0, 500)
    assert caught.value.reason is CloseReason.ACK_FELL
    assert (connection.slave_ack_offset, connection.acks_rejected) == (300, 1)


def test_a_forged_number_hidden_among_good_ones_is_found() -> None:
    connection = connect(100, 500)
    frames(connection, 500)
    with pytest.raises(PeerError):
        connection.receive(REPORT.pack(200) + REPORT.pack(1 << 40) + REPORT.pack(300), 1, 0, 500)
    assert connection.slave_ack_offset == 200


def test_reports_cut_at_every_byte_mean_the_same() -> None:
    stream = b"".join(REPORT.pack(offset) for offset in (100, 100, 250, 400, 500))
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            connection = HaConnection(LIMITS, FlowMonitor(0), 0)
            for part in (stream[:8], stream[8:first], stream[max(first, 8) : second], stream[max(second, 8) :]):
                if part:
                    connection.receive(part, 1, 0, 500)
                frames(connection, 500)
            assert (connection.slave_request_offset, connection.slave_ack_offset) == (100, 500)


def test_reports_one_byte_at_a_time_mean_the_same() -> None:
    connection = HaConnection(LIMITS, FlowMonitor(0), 0)
    for byte in REPORT.pack(100) + REPORT.pack(400):
        connection.receive(bytes([byte]), 1, 0, 500)
        frames(connection, 500)
    assert connection.slave_ack_offset == 400


def test_a_silent_slave_is_dropped_only_after_the_housekeeping_interval() -> None:
    connection = connect(0, 0, now_ms=1000)
    assert not connection.is_silent(1000 + HOUSEKEEPING_MS)
    assert connection.is_silent(1001 + HOUSEKEEPING_MS)


def test_flow_control_cuts_the_frame_and_then_waits_without_empty_frames() -> None:
    connection = connect(0, 0, limit=400)
    assert frames(connection, 900) == [Frame(0, 300), Frame(300, 100)]
    assert connection.wait_ms(100) == 900
    assert frames(connection, 900, 1000) == [Frame(400, 300), Frame(700, 100)]


def test_wait_ms_is_the_time_until_a_heartbeat() -> None:
    connection = connect(0, 0)
    connection.next_frame(0, 0)
    assert connection.wait_ms(1000) == HEARTBEAT_MS + 1 - 1000
    assert connect(None, 0).wait_ms(0) == HOUSEKEEPING_MS
