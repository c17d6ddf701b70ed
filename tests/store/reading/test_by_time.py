"""Where a time begins in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.reading import by_time
from store.reading.by_time import CLOCK_STEP_MS, first_since
from store.reading.log_reader import open_log
from tests.harness.logs import FIRST_STORE_MS, SmallLog


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLog:
    """Five segments; a message every two minutes, three quarters of an hour in a segment."""
    monkeypatch.setattr(by_time, "NEAR_BYTES", 300)
    made = SmallLog(tmp_path / "store")
    for number in range(120):
        made.append(body=b"x" * 60, store_timestamp_ms=FIRST_STORE_MS + number * 2 * CLOCK_STEP_MS)
    assert len(made.files.base_offsets()) > 4
    return made


def test_nothing_of_that_time_on_lies_before_it_and_little_else_behind_it(log: SmallLog) -> None:
    reader = open_log(log.root)
    for number, record in enumerate(log.records):
        offset = first_since(reader, FIRST_STORE_MS + number * 2 * CLOCK_STEP_MS)
        assert offset <= record.offset
        assert sum(offset <= each.offset < record.offset for each in log.records) <= 4
        assert offset in {each.offset for each in log.records}


def test_before_and_behind_the_log(log: SmallLog) -> None:
    reader = open_log(log.root)
    assert first_since(reader, 0) == 0
    late = first_since(reader, FIRST_STORE_MS * 2)
    assert log.records[-4].offset <= late <= log.end


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert first_since(open_log(tmp_path), FIRST_STORE_MS) == 0


def test_a_log_that_begins_in_the_middle(log: SmallLog) -> None:
    for base in log.files.base_offsets()[:2]:
        log.files.remove(base)
    reader = open_log(log.root)
    assert first_since(reader, 0) == reader.min_offset == 2 * log.segment_bytes
