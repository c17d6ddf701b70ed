"""Record starts without an index: every split point, forged records in bodies, limits at every byte, damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spark_bridge.records.scan import LogWindow, record_starts
from store.errors import CorruptRecord
from store.message.record import PHYSICAL_OFFSET_AT, blank, encode
from tests.spark_bridge.stores import SmallStore

SEGMENT = 2048


def window_of(store: SmallStore, limit: int | None = None) -> LogWindow:
    path = store.root / "commitlog" / f"{0:020d}"
    array = np.frombuffer(path.read_bytes(), np.uint8)
    return LogWindow(str(path), 0, array, store.end if limit is None else limit)


def starts(window: LogWindow, chain_from: int, start: int, end: int) -> list[int]:
    return [int(at) for chunk in record_starts(window, chain_from, start, end) for at in chunk]


@pytest.fixture
def forging(tmp_path: Path) -> SmallStore:
    """One segment in which a body holds records that name their own positions, and chain to the next real one."""
    store = SmallStore(tmp_path, SEGMENT)
    store.put("plain", b"x" * 40)
    body_at = store.end + 88
    first = encode(topic="forged", body=b"1" * 30, physical_offset=body_at)
    second = encode(topic="forged", body=b"2" * 30, physical_offset=body_at + len(first))
    tail = 1 + len("real") + 2  # the forged record's size covers the real one's end: its chain is whole
    second = (len(second) + tail).to_bytes(4, "big") + second[4:]
    store.put("real", first + second)
    for number in range(5):
        store.put("plain", bytes([number]) * number)
    return store


def test_every_split_point_gives_each_record_exactly_once(forging):
    window = window_of(forging)
    for cut in range(forging.end + 1):
        assert starts(window, 0, 0, cut) + starts(window, 0, cut, forging.end) == forging.offsets, cut


def test_a_chain_may_begin_at_any_record(forging):
    window = window_of(forging)
    for number, known in enumerate(forging.offsets):
        assert starts(window, known, known, forging.end) == forging.offsets[number:]


def test_a_limit_anywhere_gives_the_records_that_are_whole_below_it(forging):
    for limit in range(forging.end + 1):
        whole = [offset for offset, size, *_ in forging.records if offset + size <= limit]
        assert starts(window_of(forging, limit), 0, 0, forging.end) == whole, limit


def test_nothing_at_or_above_the_limit_is_in_the_views(forging):
    window = window_of(forging, 100)
    assert len(window.bytes) == 100
    assert len(window.view(">i8")) == 93
    assert window.buffer.size == 100


def test_a_blank_record_ends_the_segment_whatever_lies_behind_it(tmp_path):
    store = SmallStore(tmp_path, SEGMENT)
    store.put("t", b"a" * 100)
    end = store.end
    store._write(blank(SEGMENT - end) + encode(topic="old", body=b"", physical_offset=end + 8))
    assert starts(window_of(store, SEGMENT), 0, 0, SEGMENT) == store.offsets


@pytest.mark.parametrize(
    ("at", "bytes_", "told"),
    [
        (4, b"\x00", "magic code"),
        (PHYSICAL_OFFSET_AT + 7, b"\xff", "names itself as offset"),
        (0, b"\x00\x00\x00\x05", "record of size 5"),
        (0, b"\x00\x00\x01\x00", "magic code"),
        (0, b"\x7f\x00\x00\x00", "beyond the end of the segment"),
    ],
)
def test_a_damaged_record_is_an_error_that_names_file_and_offset(forging, at, bytes_, told):
    window = window_of(forging)
    damaged = window.bytes.copy()
    place = forging.offsets[2] + at
    damaged[place : place + len(bytes_)] = np.frombuffer(bytes_, np.uint8)
    segment = np.zeros(SEGMENT, np.uint8)
    segment[: len(damaged)] = damaged
    with pytest.raises(CorruptRecord) as caught:
        starts(LogWindow(window.path, 0, segment, forging.end), 0, 0, forging.end)
    assert told in str(caught.value)
    assert window.path in str(caught.value)
    assert caught.value.offset in (forging.offsets[2], forging.offsets[2] + 256)
