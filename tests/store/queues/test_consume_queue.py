"""A queue's files: entries over file borders, where it begins and ends, what makes sense in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from store.errors import QueueFileMismatch
from store.queues.consume_queue import CQ_DTYPE, PREFILL_SIZE, ConsumeQueue, file_bytes_of, queue_directories

FILE_BYTES = 200  # ten entries
EVERYTHING = 1 << 40


def entries(start: int, count: int, size: int = 100) -> np.ndarray:  # type: ignore[type-arg]
    made = np.zeros(count, CQ_DTYPE)
    made["physical_offset"] = (start + np.arange(count)) * size
    made["size"] = size
    made["tags_code"] = -5
    return made


def queue_of(directory: Path, count: int) -> ConsumeQueue:
    queue = ConsumeQueue(directory, FILE_BYTES)
    queue.append(0, entries(0, count).tobytes())
    return queue


@pytest.mark.parametrize("configured, expected", [(6_000_000, 6_000_000), (300_000, 300_000), (1, 20), (4001, 4020)])
def test_file_length_is_whole_entries(configured: int, expected: int) -> None:
    assert file_bytes_of(configured) == expected


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_what_was_appended_is_there(count: int, tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "queue", count)
    assert (queue.min_offset, queue.max_offset) == (0, count)
    assert queue.entries(0, count).tobytes() == entries(0, count).tobytes()
    assert queue.entries(count // 3, count // 2).tobytes() == entries(0, count)[count // 3 : count // 2].tobytes()
    assert queue.bases() == list(range(0, count * 20, FILE_BYTES))
    assert queue.entries(0, 1).dtype == CQ_DTYPE


@pytest.mark.parametrize("chunk", [1, 3, 10, 17])
def test_chunks_make_the_same_files(chunk: int, tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "queue", FILE_BYTES)
    for start in range(0, 34, chunk):
        queue.append(start, entries(start, min(chunk, 34 - start)).tobytes())
    whole = queue_of(tmp_path / "whole", 34)
    for base in whole.bases():
        assert (queue.directory / f"{base:020d}").read_bytes() == (whole.directory / f"{base:020d}").read_bytes()


@pytest.mark.parametrize(
    "below, expected", [(0, 0), (1, 1), (999, 10), (1000, 10), (1001, 11), (2450, 25), (EVERYTHING, 25)]
)
def test_end_below(below: int, expected: int, tmp_path: Path) -> None:
    assert queue_of(tmp_path, 25).end_below(below) == expected


@pytest.mark.parametrize("end", [0, 1, 9, 10, 11, 20, 24, 25, 30])
def test_truncate(end: int, tmp_path: Path) -> None:
    queue = queue_of(tmp_path, 25)
    queue.truncate(end)
    assert queue.max_offset == min(end, 25)
    kept = queue.entries(0, 100)
    assert kept[:end].tobytes()[: 25 * 20] == entries(0, 25)[:end].tobytes()
    assert not kept[min(end, 25) :].tobytes().strip(b"\0")


@pytest.mark.parametrize("start, bases, nowhere", [(3, [0], 3), (10, [200], 0), (27, [400], 7)])
def test_prefill(start: int, bases: list[int], nowhere: int, tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "queue", FILE_BYTES)
    queue.prefill(start)
    queue.append(start, entries(start, 2).tobytes())
    assert queue.bases() == bases
    assert (queue.min_offset, queue.max_offset) == (start, start + 2)
    assert (queue.entries(0, start)["size"] == PREFILL_SIZE).tolist() == [True] * nowhere
    assert queue.last_entry(start) is None
    assert queue.sound_end(EVERYTHING) == start + 2


def test_sound_end_stops_at_the_first_entry_that_makes_no_sense(tmp_path: Path) -> None:
    for field, value in (("size", 0), ("size", -1), ("physical_offset", -1), ("physical_offset", 0), ("size", 10_000)):
        queue = queue_of(tmp_path / f"{field}{value}", 25)
        bad = entries(17, 1)
        bad[field] = value
        queue.append(17, bad.tobytes())
        assert queue.sound_end(EVERYTHING) in (17, 18), (field, value)
    assert queue_of(tmp_path / "sound", 25).sound_end(EVERYTHING) == 25
    assert queue_of(tmp_path / "cut", 25).sound_end(1250) == 12


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, 25)
    assert ConsumeQueue.open(tmp_path).file_bytes == FILE_BYTES
    with pytest.raises(QueueFileMismatch, match="mappedFileSizeConsumeQueue"):
        ConsumeQueue.open(tmp_path, 400)
    (tmp_path / f"{200:020d}").unlink()
    with pytest.raises(QueueFileMismatch):
        queue.bases()


def test_queue_directories(tmp_path: Path) -> None:
    for name in ("b/10", "b/9", "a/0", "a/x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert [(topic, number) for topic, number, _ in queue_directories(tmp_path)] == [("a", 0), ("b", 9), ("b", 10)]
    assert list(queue_directories(tmp_path / "nowhere")) == []
