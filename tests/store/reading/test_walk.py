"""Walking the log, finding back onto records, reading limits, sums and comparisons."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.errors import CorruptRecord, NotAStore, OffsetOutOfRange
from store.files.segment import Segment, file_name
from store.message.record import Inspection, Kind, inspect
from store.reading import walk as walk_module
from store.reading.comparison import compare, what_lies_at
from store.reading.log_reader import open_log
from store.reading.summary import by_topic, messages
from store.reading.walk import next_record, walk, walk_segment
from tests.harness.logs import SEGMENT_BYTES, SmallLog


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """Records over three segments."""
    made = SmallLog(tmp_path / "store")
    made.fill(80)
    return made


def test_every_record_in_order(log: SmallLog) -> None:
    steps = list(walk(log.files, 0))
    placed = [(step.physical_offset, len(step.record)) for step in steps if step.inspection.kind is Kind.MESSAGE]
    assert placed == [(record.offset, record.size) for record in log.records]
    others = [step.inspection.kind for step in steps if step.inspection.kind is not Kind.MESSAGE]
    assert others == [Kind.BLANK, Kind.BLANK, Kind.END_OF_LOG]


def test_a_walk_gives_the_records_between_two_offsets(log: SmallLog) -> None:
    start, end = log.records[5].offset, log.records[50].offset
    placed = [step.physical_offset for step in walk(log.files, start, end) if step.inspection.kind is Kind.MESSAGE]
    assert placed == [record.offset for record in log.records[5:50]]


def test_outside_of_the_log(log: SmallLog) -> None:
    with pytest.raises(OffsetOutOfRange):
        list(walk(log.files, 3 * SEGMENT_BYTES + 1))


def test_damage_ends_the_walk(log: SmallLog) -> None:
    log.flip(log.records[30].offset + 88)
    last = list(walk(log.files, 0, check_body_crc=True))[-1]
    assert (last.physical_offset, last.inspection.kind) == (log.records[30].offset, Kind.CORRUPT)


def test_back_onto_a_record_from_anywhere(log: SmallLog) -> None:
    starts = [record.offset for record in log.records if record.end <= SEGMENT_BYTES]
    with log.files.open(0) as segment:
        for position in range(SEGMENT_BYTES):
            expected = next((start for start in starts if start >= position), None)
            assert next_record(segment, position) == expected
        assert next_record(segment, 1, end=starts[1]) is None


def test_a_record_inside_of_a_body_is_not_one(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    inner = log.append("inner", b"x")
    raw = log.read(inner.offset, inner.size)
    outer = log.append("outer", raw)
    log.append("after")
    with log.files.open(0) as segment:
        assert next_record(segment, outer.offset + 1) == outer.end


def test_reading_limits_without_a_broker(log: SmallLog) -> None:
    log.files.reserve(3 * SEGMENT_BYTES)
    reader = open_log(log.root)
    assert (reader.min_offset, reader.max_offset, reader.live) == (0, log.end, False)
    assert reader.boundary_at(1) == log.records[1].offset
    assert reader.boundary_at(SEGMENT_BYTES - 1) == SEGMENT_BYTES
    assert reader.boundary_at(log.end) == log.end
    with pytest.raises(OffsetOutOfRange):
        reader.boundary_at(log.end + 1)


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    reader = open_log(tmp_path)
    assert (reader.min_offset, reader.max_offset, list(messages(reader)), by_topic(reader)) == (0, 0, [], {})
    with pytest.raises(OffsetOutOfRange):
        reader.boundary_at(0)


def test_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotAStore):
            open_log(path)


def test_sums_of_topics(log: SmallLog) -> None:
    topics = by_topic(open_log(log.root))
    assert list(topics) == ["topic0", "topic1"]
    assert [topic.messages for topic in topics.values()] == [40, 40]
    assert topics["topic0"].queues == {0, 1}
    assert sum(topic.record_bytes for topic in topics.values()) == sum(record.size for record in log.records)


def test_damage_before_the_end_is_an_error(log: SmallLog) -> None:
    log.write(log.records[30].offset, b"\x7f")
    with pytest.raises(CorruptRecord) as raised:
        list(messages(open_log(log.root)))
    assert raised.value.offset == log.records[30].offset


def test_equal_logs_are_equal(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    other.fill(90)
    found = compare(open_log(log.root), open_log(other.root))
    assert (found.start, found.end, found.differs_at) == (0, log.end, None)


def test_the_first_difference_is_named(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    other.fill(80)
    at = log.records[40].offset + 90
    log.flip(at)
    log.flip(log.records[60].offset + 90)
    found = compare(open_log(log.root), open_log(other.root))
    assert found.differs_at == at
    assert found.bytes_there == (log.read(at, 1)[0], other.read(at, 1)[0])
    record = log.records[40]
    told = what_lies_at(open_log(other.root), at)
    assert told == f"byte 90 of the record at offset {record.offset} (topic0/0#10, {record.size} bytes)"


def test_garbage_in_a_blank_record_is_compared_too(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    other.fill(80)
    log.flip(SEGMENT_BYTES - 1)
    found = compare(open_log(log.root), open_log(other.root))
    assert found.differs_at == SEGMENT_BYTES - 1
    assert "blank" in what_lies_at(open_log(log.root), SEGMENT_BYTES - 1)


def test_logs_with_nothing_in_common(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other", end=4 * SEGMENT_BYTES)
    other.append()
    assert compare(open_log(log.root), open_log(other.root)).common_bytes == 0


def test_only_the_common_part_counts(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    other.fill(80)
    log.flip(0)
    (log.directory.commitlog / file_name(0)).unlink()
    found = compare(open_log(log.root), open_log(other.root))
    assert (found.start, found.end, found.differs_at) == (SEGMENT_BYTES, log.end, None)


def plain_steps(segment: Segment, limit: int) -> Iterator[tuple[int, int, Inspection]]:
    """What a walk in plain Python finds: where, how many bytes of a record, and what lies there."""
    position = 0
    while position < limit:
        at = segment.base_offset + position
        inspection = inspect(segment.view, position, at, check_body_crc=False, limit=limit)
        yield at, inspection.size if inspection.kind is Kind.MESSAGE else 0, inspection
        if inspection.kind is not Kind.MESSAGE:
            return
        position += inspection.size


def test_the_compiled_walk_finds_what_a_plain_one_finds(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is flipped, and wherever the log is cut."""
    monkeypatch.setattr(walk_module, "ROOM_LEAST", 1)
    monkeypatch.setattr(walk_module, "ROOM_GROWS", 2)
    draw = random.Random(7)
    heads = [record.offset + byte for record in log.records if record.end <= SEGMENT_BYTES for byte in range(100)]
    for cut in (*range(SEGMENT_BYTES - 200, SEGMENT_BYTES + 1), *draw.sample(range(SEGMENT_BYTES), 300)):
        same_steps(log, cut)
    for at in draw.sample(heads, 600):
        byte = log.read(at, 1)[0]
        log.write(at, bytes([byte ^ 1 << draw.randrange(8)]))
        same_steps(log, SEGMENT_BYTES)
        log.write(at, bytes([byte]))


def same_steps(log: SmallLog, limit: int) -> None:
    with log.files.open(0) as segment:
        found = [(at, len(record), inspection) for at, record, inspection in walk_segment(segment, 0, limit)]
        assert found == list(plain_steps(segment, limit))
