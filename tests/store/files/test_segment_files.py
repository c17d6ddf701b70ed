"""The files of a log: their names, their length, no gaps; and one of them in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store.errors import ForeignFile, MissingSegment, NotAStore, SegmentSizeMismatch
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles, segment_bytes_of

SIZE = 8192


def test_segments_are_named_by_their_first_byte(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path / "commitlog", SIZE)
    assert files.base_offsets() == []
    for base in (SIZE, 2 * SIZE):
        files.create(base).close()
    files.reserve(SIZE)  # is there already
    assert [path.name for path in sorted(files.directory.iterdir())] == ["00000000000000008192", "00000000000000016384"]
    assert files.base_offsets() == [SIZE, 2 * SIZE]
    assert [files.base_of(offset) for offset in (SIZE, 2 * SIZE - 1, 2 * SIZE)] == [SIZE, SIZE, 2 * SIZE]
    assert segment_bytes_of(files.directory) == SIZE
    files.remove(SIZE)
    assert files.base_offsets() == [2 * SIZE]


def test_what_one_writes_another_reads_in_place(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path, SIZE)
    with files.create(0) as writer, files.open(0) as reader:
        writer.view[10:14] = b"here"
        assert bytes(reader.view[10:14]) == b"here" == reader.array[10:14].tobytes()
        assert (reader.base_offset, reader.end_offset, reader.size_bytes) == (0, SIZE, SIZE)
        with pytest.raises((ValueError, TypeError)):
            reader.array[0] = 1


def test_an_array_outlives_its_closed_segment(tmp_path: Path) -> None:
    segment = SegmentFiles(tmp_path, SIZE).create(0)
    segment.array[3] = 77
    kept = segment.array[2:5]
    segment.close()
    segment.close()
    assert kept.tolist() == [0, 77, 0]
    assert len(segment.array) == len(segment.view) == 0


def test_files_that_are_not_the_logs_do_not_count(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path, SIZE)
    files.create(0).close()
    (tmp_path / "README").write_text("hello")
    (tmp_path / f"{SIZE:020d}.creating").write_bytes(b"half")
    (tmp_path / f"{SIZE:020d}").write_bytes(b"")  # a RocketMQ that was killed while it made the file
    (tmp_path / ("\u0660" * 20)).write_bytes(b"digits, but not ours")
    assert files.base_offsets() == [0]
    assert segment_bytes_of(tmp_path) == SIZE
    files.remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0" * 20, "README", "\u0660" * 20]


@pytest.mark.parametrize("name", [f"{5 * SIZE:020d}", "9" * 20, f"{SIZE + 1:020d}"])
def test_what_cannot_be_a_segment_under_a_segments_name_is_named(tmp_path: Path, name: str) -> None:
    files = SegmentFiles(tmp_path, SIZE)
    files.create(0).close()
    foreign = tmp_path / name
    if name.endswith("0"):
        foreign.mkdir()
    else:
        foreign.write_bytes(bytes(SIZE))
    with pytest.raises(ForeignFile, match=name):
        files.base_offsets()


def test_a_gap_or_another_length_is_named(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path, SIZE)
    for base in (0, SIZE, 2 * SIZE):
        files.create(base).close()
    with pytest.raises(SegmentSizeMismatch, match="mappedFileSizeCommitLog"):
        SegmentFiles(tmp_path, 2 * SIZE).base_offsets()
    with pytest.raises(SegmentSizeMismatch):
        Segment.open(files.path_of(0), size_bytes=SIZE + 1)
    files.remove(SIZE)
    with pytest.raises(MissingSegment) as error:
        files.base_offsets()
    assert error.value.offset == SIZE
    files.path_of(SIZE).write_bytes(b"short")
    for find in (files.base_offsets, lambda: segment_bytes_of(tmp_path), lambda: files.reserve(SIZE)):
        with pytest.raises(SegmentSizeMismatch, match=f"{SIZE:020d}"):
            find()


def test_a_sparse_file_of_rocketmq_gets_its_blocks_before_anything_is_written_to_it(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path, SIZE)
    files.path_of(0).write_bytes(b"x")
    os.truncate(files.path_of(0), SIZE)
    files.reserve(0)
    assert files.path_of(0).stat().st_blocks * 512 >= SIZE
    assert files.path_of(0).read_bytes() == b"x" + bytes(SIZE - 1)


def test_no_segments_no_size(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        segment_bytes_of(tmp_path)
    assert SegmentFiles(tmp_path / "nowhere", SIZE).base_offsets() == []
