"""From where on a log has its history: before a segment expired and after, with nothing in it, with noise in it."""

from __future__ import annotations

from pathlib import Path

from store.reading.history import History, held
from tests.harness.logs import FIRST_STORE_MS, SEGMENT_BYTES, SmallLog


def test_history_begins_with_the_first_record_that_is_left(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    assert held(log.files, 0, 0) == History(0, None)
    log.fill(100)
    assert held(log.files, 0, log.end) == History(0, FIRST_STORE_MS)
    number, first = next((n, one) for n, one in enumerate(log.records) if one.offset == SEGMENT_BYTES)
    log.files.path_of(0).unlink()
    assert held(log.files, first.offset, log.end) == History(SEGMENT_BYTES, FIRST_STORE_MS + number)


def test_a_time_that_is_unknown_is_none(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(100)
    assert held(log.files, log.records[0].offset + 1, log.end).from_ms is None, "no record begins there"
    assert held(log.files, 100 * SEGMENT_BYTES, 101 * SEGMENT_BYTES).from_ms is None, "no segment is there"
    for noise in (b"\xff" * SEGMENT_BYTES, bytes(SEGMENT_BYTES), b"\xff" * 20):
        log.files.path_of(SEGMENT_BYTES).write_bytes(noise)
        assert held(log.files, SEGMENT_BYTES, log.end).from_ms is None
