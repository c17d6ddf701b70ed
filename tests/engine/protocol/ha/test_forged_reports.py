"""A million reports, many of them forged, at the master's end of connections: none counts that cannot be true."""

from __future__ import annotations

import numpy as np
import pytest

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.wire import LOG_OFFSET_MAX, CloseReason, PeerError

SEGMENT = 1 << 16
LIMITS = ConnectionLimits(SEGMENT, 1 << 15, 5000, 20_000, 3000)
REPORTS, SHARES = 1_000_000, 4
BEFORE, END = 10_000, 60_000  # the log when the master began, and now: puts in between may wait
REASONS = {CloseReason.ACK_NOT_SENT, CloseReason.ACK_FELL, CloseReason.NOT_A_SLAVE, CloseReason.REQUEST_ABOVE_END}
TEXTS = np.frombuffer(b"GET / HTHTTP/1.1\x16\x03\x01\x02\x00\x01\x00\x01\x81SLIPST!\x82\0\0\0\0\0\xea\x60", ">i8")


def forged(dice: np.random.Generator, count: int, near: int) -> np.ndarray:
    """Numbers that nobody who has what was sent would say: words of 64 bits, powers of two, words of others, and those
    just beside what is due."""
    kinds = (
        dice.integers(-(1 << 63), (1 << 63) - 1, count),
        np.left_shift(1, dice.integers(0, 63, count)) - 1,
        dice.choice(TEXTS.astype(np.int64), count),
        near + dice.integers(1, 4, count),
        dice.integers(-3, 0, count),
        LOG_OFFSET_MAX + dice.integers(-2, 3, count),
    )
    return np.choose(dice.integers(0, len(kinds), count), kinds)


def believed(connection: HaConnection, reports: np.ndarray, dice: np.random.Generator) -> bool:
    """Hand over reports in pieces; whether the connection goes on."""
    data = reports.astype(">i8").tobytes()
    cuts = sorted({0, len(data), *dice.integers(0, len(data) + 1, int(dice.integers(0, 4))).tolist()})
    try:
        for start, end in zip(cuts, cuts[1:], strict=False):
            connection.receive(data[start:end], 1, 0, END)
    except PeerError as error:
        assert error.reason in REASONS
        return False
    return True


def true_prefix(reports: np.ndarray, acked: int, sent: int) -> int:
    """By the rule, in other words than the code's: how many reports of a connection can be true."""
    highest = np.maximum.accumulate(np.concatenate(([acked], reports)))
    wrong = (reports > sent) | (reports < highest[:-1])
    return int(np.argmax(wrong)) if wrong.any() else len(reports)


def look(connection: HaConnection, reports: np.ndarray, acked: int) -> int:
    """How many were judged: behind a wrong one nobody looks."""
    sent = max(connection.next_transfer_offset, connection.slave_request_offset)
    count = true_prefix(reports, acked, sent)
    expected = int(reports[count - 1]) if count else acked
    assert connection.slave_ack_offset == expected <= sent
    assert connection.acks_rejected == (count < len(reports))
    return min(count + 1, len(reports))


@pytest.mark.parametrize("share", range(SHARES))
def test_no_report_in_a_million_counts_for_bytes_that_were_not_sent(share: int) -> None:
    dice = np.random.default_rng(share)
    judged = ended = 0
    while judged < REPORTS // SHARES:
        connection = HaConnection(LIMITS, FlowMonitor(0), 0, BEFORE)
        first = int(dice.choice((0, BEFORE, BEFORE + 1, END - 1, END, int(dice.integers(0, END)))))
        assert believed(connection, np.array([first]), dice)
        for _ in range(int(dice.integers(0, 4))):
            connection.next_frame(1, END)
        goes_on = True
        while goes_on and judged < REPORTS // SHARES:
            acked = connection.slave_ack_offset
            sent = max(connection.next_transfer_offset, connection.slave_request_offset)
            reports = np.sort(dice.integers(acked, sent + 1, int(dice.integers(1, 400))))
            at = int(dice.integers(0, len(reports)))
            if dice.random() < 0.6:
                reports[at:] = forged(dice, len(reports) - at, sent)
            goes_on = believed(connection, reports, dice)
            judged, ended = judged + look(connection, reports, acked), ended + (not goes_on)
            start = END - END % SEGMENT if first == 0 else first
            if start > BEFORE:
                assert connection.held_offset <= BEFORE, "puts before its first byte may wait, and it was sent none"
    assert ended > 500


def test_no_first_report_counts_beyond_the_known_end() -> None:
    dice = np.random.default_rng(9)
    for offset in forged(dice, 20_000, END).tolist():
        connection = HaConnection(LIMITS, FlowMonitor(0), 0, BEFORE)
        goes_on = believed(connection, np.array([offset]), dice)
        assert goes_on == (0 <= offset <= END)
        assert connection.held_offset <= min(BEFORE, max(offset, 0))
