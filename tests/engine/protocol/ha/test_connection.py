"""The master's side: where a transfer starts, what comes next, which reports are believed."""

from __future__ import annotations

import pytest

from engine.protocol.ha.connection import HaConnection, is_of_a_slave, transfer_start
from engine.protocol.ha.connection_kernel import ConnectionLimits, next_batch
from engine.protocol.ha.flow_kernel import STEPS
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha.wire import LOG_OFFSET_MAX, REPORT, CloseReason, Frame, PeerError

SEGMENT, BATCH, HEARTBEAT_MS, HOUSEKEEPING_MS, TIMEOUT_MS = 1000, 300, 5000, 20_000, 3000
LIMITS = ConnectionLimits(SEGMENT, BATCH, HEARTBEAT_MS, HOUSEKEEPING_MS, TIMEOUT_MS)


def connect(
    request: int | None, end: int, *, first: int = 0, now_ms: int = 0, limit: int = UNLIMITED, known: int = 0
) -> HaConnection:
    connection = HaConnection(LIMITS, FlowMonitor(now_ms, limit), now_ms, known)
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
def test_a_frame_ends_at_the_batch_size_the_segments_end_or_the_logs_end(
    why: str, start: int, end: int, expected: int
) -> None:
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
def test_a_transfer_starts_where_the_slave_asks_or_at_the_last_segment(
    why: str, asked: int, end: int, expected: int
) -> None:
    assert transfer_start(asked, 0, end, SEGMENT) == expected, why


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


def test_a_request_for_the_last_byte_that_any_log_may_have_is_one_of_a_slave() -> None:
    assert is_of_a_slave(LOG_OFFSET_MAX, 500)
    with pytest.raises(PeerError) as caught:
        connect(1 << 40, 500)
    assert caught.value.reason is CloseReason.REQUEST_ABOVE_END


@pytest.mark.parametrize(
    ("why", "offset"),
    [
        ("below zero", -1),
        ("longer than any log", LOG_OFFSET_MAX + 1),
        ("the greatest number", (1 << 63) - 1),
        ("text", int.from_bytes(b"GET / HT", "big")),
        ("TLS", 0x1603010200010001),
        ("remoting with a JSON header", 0x000000F1 << 32 | 0x000000ED),
        ("remoting with a binary header and a body", 0x000100F1 << 32 | 0x010000ED),
    ],
)
def test_what_is_no_position_is_of_no_slave(why: str, offset: int) -> None:
    with pytest.raises(PeerError) as caught:
        connect(offset, 500)
    assert caught.value.reason is CloseReason.NOT_A_SLAVE, why


def test_a_position_on_file_is_one_whatever_its_bytes_look_like() -> None:
    offset = 0x000000F1 << 32 | 0x000000ED
    assert connect(offset, offset + 10).slave_request_offset == offset


@pytest.mark.parametrize("request_offset", [999, 1])
def test_a_request_below_the_masters_first_segment_is_refused(request_offset: int) -> None:
    with pytest.raises(PeerError) as caught:
        connect(request_offset, 2500, first=1000)
    assert caught.value.reason is CloseReason.REQUEST_BELOW_MIN


def test_an_empty_slave_may_come_to_a_master_that_dropped_its_first_segments() -> None:
    assert frames(connect(0, 2100, first=1000), 2100) == [Frame(2000, 100)]


@pytest.mark.parametrize(
    ("why", "request_offset", "known", "held"),
    [
        ("the log was there when the master started, or was sent to it before", 400, 400, 400),
        ("more than it can have: what is known counts", 400, 300, 300),
        ("a stranger that names a number", 400, 0, 0),
        ("nothing", 0, 500, 0),
    ],
)
def test_a_first_report_counts_up_to_what_the_slave_is_known_to_have(
    why: str, request_offset: int, known: int, held: int
) -> None:
    connection = connect(request_offset, 500, known=known)
    assert (connection.slave_ack_offset, connection.held_offset) == (request_offset, held), why


def test_a_stranger_that_names_the_end_confirms_nothing_however_long_it_stays() -> None:
    connection = connect(500, 500)
    for now_ms in (1, TIMEOUT_MS + 1, 10 * TIMEOUT_MS):
        connection.receive(REPORT.pack(500), now_ms, 0, 500)
        connection.look_at_proof(now_ms, 0)
        assert connection.held_offset == 0


def test_a_stranger_that_lacks_the_last_byte_only_confirms_no_put_that_waits() -> None:
    connection = connect(499, 500)
    assert frames(connection, 500) == [Frame(499, 1)]
    connection.receive(REPORT.pack(500), TIMEOUT_MS, 0, 500)
    assert connection.held_offset == 0, "a put from before may still wait for what it was never sent"
    connection.look_at_proof(TIMEOUT_MS + 1, 0)
    assert connection.held_offset == 500, "of whatever is put from now on, it holds what it acknowledges"


def test_a_slave_that_goes_on_where_the_confirmed_log_ends_counts_at_once() -> None:
    connection = HaConnection(LIMITS, FlowMonitor(0), 0)
    connection.receive(REPORT.pack(400), 0, 0, 500, confirm_offset=400)
    frames(connection, 500)
    connection.receive(REPORT.pack(500), 1, 0, 500, confirm_offset=400)
    assert connection.held_offset == 500


def test_what_others_confirm_meanwhile_closes_the_gap() -> None:
    connection = connect(400, 500)
    frames(connection, 500)
    connection.receive(REPORT.pack(450), 1, 0, 500, confirm_offset=399)
    assert connection.held_offset == 0
    connection.receive(REPORT.pack(460), 2, 0, 500, confirm_offset=400)
    assert connection.held_offset == 460


def test_an_empty_slave_proves_from_where_its_transfer_begins() -> None:
    connection = connect(0, 2500)
    frames(connection, 2500)
    connection.receive(REPORT.pack(2500), 1, 0, 2500)
    assert connection.held_offset == 0
    connection.receive(REPORT.pack(2500), 2, 0, 2500, confirm_offset=2000)
    assert connection.held_offset == 2500


@pytest.mark.parametrize(("recovered", "held"), [(0, 0), (1500, 1500), (2000, 2500)])
def test_an_empty_slave_has_nothing_of_what_it_was_sent_before(recovered: int, held: int) -> None:
    """Its disk is another one: what lies before the segment that it gets, no earlier connection gave to this one."""
    connection = HaConnection(LIMITS, FlowMonitor(0), 0, known_offset=2400)
    connection.recovered_offset = recovered
    connection.receive(REPORT.pack(0), 0, 0, 2500)
    frames(connection, 2500)
    connection.receive(REPORT.pack(2500), 1, 0, 2500)
    assert connection.held_offset == held


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
    connection = connect(0, 0, limit=400 * STEPS)
    assert frames(connection, 900) == [Frame(0, 300), Frame(300, 100)]
    assert connection.wait_ms(13) == 7
    assert frames(connection, 900, 20) == [Frame(400, 300), Frame(700, 100)]


def test_wait_ms_is_the_time_until_a_heartbeat() -> None:
    connection = connect(0, 0)
    connection.next_frame(0, 0)
    assert connection.wait_ms(1000) == HEARTBEAT_MS + 1 - 1000
    assert connect(None, 0).wait_ms(0) == HOUSEKEEPING_MS
