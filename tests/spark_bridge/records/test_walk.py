"""The walk from record to record: every split point, forged records in bodies, limits at every byte, damage.

Of segments with changed bits it says what a search of every byte with numpy says (`numpy_scan`): rows, errors, reasons.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from spark_bridge.records import walk
from spark_bridge.records.head_filter import filter_of
from spark_bridge.records.walk import walked
from spark_bridge.split.splits import Selection
from store.columns.records import Records
from store.columns.window import LogWindow
from store.errors import CorruptRecord
from store.message.record import PHYSICAL_OFFSET_AT, blank, encode
from tests.spark_bridge.records.numpy_scan import record_starts
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, unpack_golden

SEGMENT = 2048
FLIPS, FLIPS_OF_GOLDEN = 4000, 40
Said = tuple[list[int], str]


def window_of(store: SmallStore, limit: int | None = None) -> LogWindow:
    path = store.root / "commitlog" / f"{0:020d}"
    array = np.frombuffer(path.read_bytes(), np.uint8)
    return LogWindow(str(path), 0, array, store.end if limit is None else limit)


def starts(window: LogWindow, chain_from: int, start: int, end: int) -> list[int]:
    return [int(at) for records in walked(window, chain_from, start, end) for at in records.starts]


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


def searched(window: LogWindow, chain_from: int, start: int, end: int) -> Iterator[int]:
    for chunk in record_starts(window, chain_from, start, end):
        yield from chunk.tolist()


def walked_over(window: LogWindow, chain_from: int, start: int, end: int) -> Iterator[int]:
    for records in walked(window, chain_from, start, end):
        yield from records.starts.tolist()


def said_by(look: Callable[[LogWindow, int, int, int], Iterator[int]], window: LogWindow, start: int = 0) -> Said:
    """The starts that it finds, and its error."""
    found: list[int] = []
    try:
        found += look(window, 0, start, window.length)
    except CorruptRecord as error:
        return found, str(error)
    return found, ""


def changed(array: np.ndarray, chance: random.Random) -> np.ndarray:
    """A copy with some bits of one record's head, or of any byte, turned."""
    copy = array.copy()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
    return copy


def test_changed_bits_are_seen_as_by_a_search_of_every_byte(forging: SmallStore) -> None:
    chance, sound = random.Random(32), np.frombuffer((forging.root / "commitlog" / f"{0:020d}").read_bytes(), np.uint8)
    wrong = 0
    for _ in range(FLIPS):
        window = LogWindow("a segment", 0, changed(sound, chance), chance.choice((forging.end, SEGMENT)))
        start = chance.choice((0, 0, chance.randrange(SEGMENT)))
        said = said_by(walked_over, window, start)
        assert said == said_by(searched, window, start)
        wrong += said[1] != ""
    assert FLIPS // 10 < wrong < FLIPS


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_stores_of_rocketmq_are_seen_as_by_a_search_of_every_byte(version: str, name: str, tmp_path: Path) -> None:
    root, chance, found = Path(unpack_golden(version, name, tmp_path)), random.Random(name), 0
    for path in sorted((root / "commitlog").iterdir()):
        sound = np.fromfile(path, np.uint8)
        for number in range(FLIPS_OF_GOLDEN):
            array = changed(sound, chance) if number else sound
            window = LogWindow(str(path), int(path.name), array, int(path.name) + len(array))
            said = said_by(walked_over, window)
            assert said == said_by(searched, window)
            found += len(said[0])
    assert found


def test_small_steps_and_little_room_change_nothing(forging: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    window = window_of(forging)
    for step_bytes, records in ((1, 1), (100, 1), (300, 2), (SEGMENT, 3), (1, 100)):
        monkeypatch.setattr(walk, "STEP_BYTES", step_bytes)
        monkeypatch.setattr(walk, "CHUNK_RECORDS", records)
        assert starts(window, 0, 0, forging.end) == forging.offsets
        chunks = [len(found) for found in walked(window, 0, 0, forging.end)]
        assert chunks[:-1] == [records] * (len(chunks) - 1)
        monkeypatch.setattr(walk, "CACHED_BYTES", step_bytes)
        cached = [found.starts.tolist() for found in walked(window, 0, 0, forging.end, cached=True)]
        assert [at for found in cached for at in found] == forging.offsets and all(cached)


def test_a_few_records_do_not_keep_the_memory_of_many(forging: SmallStore) -> None:
    (records,) = walked(window_of(forging), 0, 0, forging.end)
    assert records.heads.base is None
    assert records.heads.nbytes == 9 * 8 * len(records)


def test_a_topic_that_cannot_be_read_is_an_error_where_topics_are_asked_for(forging: SmallStore) -> None:
    segment = np.zeros(SEGMENT, np.uint8)
    segment[: forging.end] = window_of(forging).bytes
    place = forging.offsets[3]
    segment[place + 84 + 3] += 1  # the length of the body
    window = LogWindow("a segment", 0, segment, forging.end)
    assert starts(window, 0, 0, forging.end) == forging.offsets
    found: list[int] = []
    with pytest.raises(CorruptRecord, match=f"offset {place}.*(add up|beyond)"):
        for records in walked(window, 0, 0, forging.end, filter_of(Selection(topics=frozenset({"plain"})))):
            found += records.starts.tolist()
    assert found == [offset for offset, _, topic, *_ in forging.records if topic == "plain" and offset < place]


def test_places_that_name_no_whole_record_give_none(forging: SmallStore) -> None:
    window = window_of(forging, forging.end - 1)
    places = [-1, -(2**63), 2**63 - 1, SEGMENT, forging.end, 1, *forging.offsets, forging.offsets[0]]
    assert walk.collected(window, np.array(places)).starts.tolist() == [*forging.offsets[:-1], forging.offsets[0]]
    with pytest.raises(IndexError):
        assert Records(window, np.array([window.length])).sizes.sum()
