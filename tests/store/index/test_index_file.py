"""Reading index files: any bytes end in an answer, chains that go round end, and the bytes tell their geometry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.index.geometry import geometry_of
from store.index.index_file import DEFAULT_GEOMETRY, Geometry, Header, IndexFile, hash_of, positive_hash
from store.index.query import index_files, query_offset
from store.message.properties import java_hash

SMALL = Geometry(3, 8)
LATE = 2**62


def with_entries(*entries: tuple[int, int, int, int], slot: int = 0, count: int | None = None) -> IndexFile:
    """A file whose slot 0 names entry `slot`; the entries begin with number 1."""
    file = IndexFile.fresh(Path("made"), SMALL)
    for number, entry in enumerate(entries, start=1):
        file.entries[number] = entry
    file.slots[0] = slot
    file.write_header(Header(1000, 9000, 10, 90, 1, len(entries) + 1 if count is None else count))
    return file


def found_in(file: IndexFile, wanted: int = 5, key_hash: int = 3) -> list[int]:
    found: list[int] = []
    file.select(key_hash, wanted, 0, LATE, found)
    return found


def test_a_chain_is_followed_to_its_oldest_entry() -> None:
    file = with_entries((3, 10, 0, 0), (6, 20, 0, 1), (3, 30, 0, 2), slot=3)
    assert found_in(file) == [30, 10]
    assert found_in(file, wanted=1) == [30]


@pytest.mark.parametrize(
    "why, entries, slot, expected",
    [
        ("an entry that names itself", [(3, 10, 0, 1)], 1, [10]),
        ("a ring with the key: until there is enough", [(3, 10, 0, 2), (3, 20, 0, 1)], 2, [20, 10, 20, 10, 20]),
        ("a ring without the key", [(6, 10, 0, 2), (6, 20, 0, 1)], 2, []),
        ("a ring behind a hit", [(6, 10, 0, 2), (6, 20, 0, 1), (3, 30, 0, 2)], 3, [30]),
        ("a slot above the count", [(3, 10, 0, 0)], 5, []),
        ("a slot below 0", [(3, 10, 0, 0)], -1, []),
        ("a chain that leads out of the file", [(3, 10, 0, 2**31 - 1)], 1, [10]),
        ("a time before the first", [(3, 10, -1, 0)], 1, []),
    ],
)
def test_wrong_links_end_the_chain(
    why: str, entries: list[tuple[int, int, int, int]], slot: int, expected: list[int]
) -> None:
    assert found_in(with_entries(*entries, slot=slot)) == expected, why


@settings(max_examples=300, deadline=None)
@given(content=st.binary(min_size=SMALL.file_bytes, max_size=SMALL.file_bytes), key_hash=st.integers(0, 2**31 - 1))
def test_any_bytes_give_an_answer(content: bytes, key_hash: int) -> None:
    file = IndexFile(Path("any"), SMALL, np.frombuffer(content, np.uint8))
    found: list[int] = []
    file.select(key_hash, 32, -(2**63), 2**63 - 1, found)
    assert len(found) <= 32
    file.is_time_matched(0, LATE)
    assert 1 <= file.count_below(5) <= SMALL.entries_max


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_links_end(data: st.DataObject) -> None:
    """Chains whose every entry is in range: rings of every kind."""
    entries = data.draw(
        st.lists(
            st.tuples(st.sampled_from([3, 6]), st.integers(0, 9), st.just(0), st.integers(0, 8)), min_size=7, max_size=7
        )
    )
    file = with_entries(*entries, slot=data.draw(st.integers(1, 7)), count=8)
    assert found_in(file, 20) == by_walking(entries, int(file.slots[0]), 20)


def by_walking(entries: list[tuple[int, int, int, int]], number: int, wanted: int) -> list[int]:
    """The plainest reading of RocketMQ's loop, ended by hand where it would never end."""
    found: list[int] = []
    for _ in range(7 * (wanted + 1)):
        if len(found) >= wanted:
            return found
        key_hash, offset, _, previous = entries[number - 1] if number <= len(entries) else (0, 0, 0, 0)
        found += [offset] if key_hash == 3 else []
        if previous == 0 or previous == number:
            return found
        number = previous
    return found


def test_a_hash_is_javas_without_its_sign() -> None:
    assert hash_of("T", "k") == abs(java_hash("T#k"))
    assert hash_of("标签", "😀") == abs(java_hash("标签#😀"))
    assert [positive_hash(value) for value in (-(2**31), 1 - 2**31, -1, 0, 5)] == [0, 2**31 - 1, 1, 0, 5]


def filled(path: Path, geometry: Geometry, entries: int) -> None:
    file = IndexFile.fresh(path, geometry)
    for number in range(entries):
        assert file.put(hash_of("topic", f"key {number}"), 150 * number + 7, 1_700_000_000_000 + 90 * number)
    path.write_bytes(file.array.tobytes())


@pytest.mark.parametrize("geometry", [(1, 20), (200, 1000), (1000, 4000), (7, 3), (5000, 9)])
@pytest.mark.parametrize("entries", [1, 2, 500])
def test_the_bytes_tell_the_geometry(tmp_path: Path, geometry: tuple[int, int], entries: int) -> None:
    made = Geometry(*geometry)
    filled(tmp_path / "1", made, min(entries, made.entries_max - 1))
    assert geometry_of([tmp_path / "1"]) == made


def test_a_file_that_follows_another_after_seconds_tells_it(tmp_path: Path) -> None:
    """RocketMQ counts its first entry's time from the end of the file before, whatever was lost between them."""
    file = IndexFile.fresh(tmp_path / "2", Geometry(1000, 4000))
    file.write_header(Header(1_700_000_000_000, 1_700_000_000_000, 90_000, 90_000, 0, 1))
    for number in range(1400):
        place = 120_000 + 150 * (number // 2)
        assert file.put(hash_of("topic", f"key {number}"), place, 1_700_000_005_000 + 45 * number)
    (tmp_path / "2").write_bytes(file.array.tobytes())
    assert file.entries[1]["time_diff_s"] == 5
    assert geometry_of([tmp_path / "2"]) == Geometry(1000, 4000)


def test_a_damaged_file_still_tells_it(tmp_path: Path) -> None:
    filled(tmp_path / "1", Geometry(200, 1000), 500)
    content = bytearray((tmp_path / "1").read_bytes())
    random = np.random.default_rng(3)
    for at in random.integers(0, len(content), 60):
        content[at] = random.integers(256)
    (tmp_path / "1").write_bytes(content)
    assert geometry_of([tmp_path / "1"]) == Geometry(200, 1000)


@pytest.mark.parametrize("content", [b"", b"x", bytes(39), bytes(4000), b"\xff" * 4000, bytes(range(256)) * 20])
def test_no_index_file_tells_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1").write_bytes(content)
    assert geometry_of([tmp_path / "1", tmp_path / "missing"]) is None


def test_files_of_the_usual_size_are_not_searched(tmp_path: Path) -> None:
    file = tmp_path / "20260101000000000"
    with file.open("wb") as made:
        made.truncate(DEFAULT_GEOMETRY.file_bytes)
    opened = IndexFile.open(file, DEFAULT_GEOMETRY, writable=True)
    opened.put(hash_of("t", "k"), 5, 1_700_000_000_000)
    assert geometry_of([file]) == DEFAULT_GEOMETRY
    assert query_offset([opened], "t", "k", 1, 0, LATE) == [5]


def test_what_rocketmq_takes_for_an_index_file(tmp_path: Path) -> None:
    for name in ("20", "3", "+5", "-7", "9" * 19, "9" * 20, "x", "1.5", "٣"):
        (tmp_path / name).touch()
    (tmp_path / "4").mkdir()
    assert [path.name for path in index_files(tmp_path)] == ["+5", "-7", "20", "3"]
    assert index_files(tmp_path / "none") == []
