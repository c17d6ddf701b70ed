"""A queue seen at once says what the queue says that is asked again and again."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from store.errors import QueueFileMismatch
from store.files import file_io
from store.files.segment import file_name
from store.queues.consume_queue import CQ_DTYPE, SMALL_FILE_BYTES, ConsumeQueue
from store.queues.seen_queue import SeenQueue, physical_offset_at

SMALL, LARGE = 64, SMALL_FILE_BYTES // 20 * 2  # entries of a file
FIRST_OFFSET, STEP = 1000, 100


def entries(count: int, first: int = 0) -> bytes:
    found = np.zeros(count, CQ_DTYPE)
    found["physical_offset"], found["size"] = FIRST_OFFSET + STEP * np.arange(first, first + count), STEP
    return found.tobytes()


def made(directory: Path, per_file: int, begin: int, count: int) -> ConsumeQueue:
    """A queue whose first `begin` entries point nowhere, as in one that began later than its topic."""
    queue = ConsumeQueue(directory, 20 * per_file)
    if begin:
        queue.prefill(begin)
    queue.append(begin, entries(count, begin))
    return queue


CASES = [
    (per_file, begin, count)
    for per_file in (SMALL, LARGE)
    for begin in (0, 1, per_file - 1, per_file, per_file + 7)
    for count in (1, 2, per_file - 8, per_file, 2 * per_file + 3)
]


@pytest.mark.parametrize(("per_file", "begin", "count"), CASES)
@pytest.mark.parametrize("is_held", [True, False])
def test_a_seen_queue_says_the_same(tmp_path: Path, per_file: int, begin: int, count: int, is_held: bool) -> None:
    queue = made(tmp_path / "0", per_file, begin, count)
    seen, end = SeenQueue(str(tmp_path / "0")), begin + count
    if is_held:
        seen.__enter__()
    assert (list(seen.bases), seen.file_bytes) == (queue.bases(), queue.file_bytes)
    assert seen.min_offset == queue.min_offset == begin
    limits = [0, 1, 1 << 62, *(FIRST_OFFSET + STEP * number + more for number in (begin, begin + 1, begin + count // 2,
              end - 1, end) for more in (-1, 0, 1))]  # fmt: skip
    assert [seen.end_below(limit) for limit in limits] == [queue.end_below(limit) for limit in limits]
    for start, until in ((0, 3), (begin, end), (end - 1, end), (end, end + 5), (per_file - 2, per_file + 2)):
        assert seen.entries(start, until).tobytes() == queue.entries(start, until).tobytes()
    assert [seen.physical_offset(number) for number in (begin, end - 1)] == [
        int(queue.entries(number, number + 1)["physical_offset"][0]) for number in (begin, end - 1)
    ]
    for number in (begin, per_file - 1, per_file, end - 1):
        if begin <= number < end:
            assert physical_offset_at(seen.directory, number) == seen.physical_offset(number)
    assert seen.physical_offset(end + 10 * per_file) == physical_offset_at(seen.directory, end + 10 * per_file) == -1
    for number in (begin, begin + 1, end, end + 1):
        assert seen.last_entry(number) == queue.last_entry(number)
    assert seen.last_record_end() == FIRST_OFFSET + STEP * end
    seen.__exit__()


def test_a_queue_without_entries_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    seen = SeenQueue(str(tmp_path / "none"))
    assert (list(seen.bases), seen.min_offset, seen.end_below(1 << 62), len(seen.entries(0, 5))) == ([], 0, 0, 0)
    assert seen.last_record_end() == 0 and seen.physical_offset(0) == -1
    assert physical_offset_at(seen.directory, 0) == physical_offset_at(str(tmp_path / "no such"), 0) == -1
    for per_file in (SMALL, LARGE):
        nowhere = ConsumeQueue(tmp_path / str(per_file), 20 * per_file)
        nowhere.prefill(5)
        seen = SeenQueue(str(tmp_path / str(per_file)))
        assert (seen.min_offset, seen.end_below(1 << 62)) == (nowhere.min_offset, nowhere.max_offset)
        assert seen.last_record_end() == 0


def test_files_that_do_not_fit_together_raise_the_queues_error(tmp_path: Path) -> None:
    made(tmp_path / "0", SMALL, 0, 3 * SMALL)
    os.unlink(tmp_path / "0" / file_name(20 * SMALL))
    told = []
    for opened in (SeenQueue, ConsumeQueue.open):
        with pytest.raises(QueueFileMismatch) as error:
            opened(str(tmp_path / "0"))  # type: ignore[operator]
        told.append(str(error.value))
    assert told[0] == told[1]


def test_what_was_deleted_or_cut_since_the_look_is_left_out(tmp_path: Path) -> None:
    made(tmp_path / "0", SMALL, 0, 2 * SMALL)
    seen = SeenQueue(str(tmp_path / "0"))
    os.truncate(tmp_path / "0" / file_name(20 * SMALL), 45)
    assert seen.physical_offset(SMALL + 1) == FIRST_OFFSET + STEP * (SMALL + 1)
    assert seen.physical_offset(SMALL + 2) == 0 and seen.end_below(1 << 62) == SMALL + 2
    os.unlink(tmp_path / "0" / file_name(0))
    assert seen.physical_offset(3) == physical_offset_at(seen.directory, 3) == -1
    assert physical_offset_at(seen.directory, SMALL + 1) == FIRST_OFFSET + STEP * (SMALL + 1)
    assert physical_offset_at(seen.directory, SMALL + 2) == -1, "the file ends inside of it"
    assert len(seen.entries(SMALL - 4, SMALL + 2)) == 2


@pytest.mark.parametrize("per_file", [SMALL, LARGE])
@pytest.mark.parametrize("deleted", [1, 2, 3])
@pytest.mark.parametrize("is_held", [True, False])
def test_both_ends_are_found_although_files_were_deleted_since_the_look(
    tmp_path: Path, per_file: int, deleted: int, is_held: bool
) -> None:
    made(tmp_path / "0", per_file, 0, 2 * per_file + 5)
    seen = SeenQueue(str(tmp_path / "0"))
    with seen if is_held else nullcontext():
        for number in range(deleted):
            os.unlink(tmp_path / "0" / file_name(20 * per_file * number))
        begin = deleted * per_file
        assert seen.end_below(1 << 62) == (begin if deleted == 3 else 2 * per_file + 5)
        assert seen.end_below(FIRST_OFFSET) == begin
        assert seen.min_offset == begin


def test_a_file_is_open_while_it_is_at_hand_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "0", LARGE, 3, LARGE - 3)
    opened: list[str] = []
    real = file_io.open_file
    monkeypatch.setattr(file_io, "open_file", lambda path, **how: opened.append(path) or real(path, **how))
    before = len(os.listdir("/proc/self/fd"))
    with SeenQueue(str(tmp_path / "0")) as seen:
        for limit in range(FIRST_OFFSET, FIRST_OFFSET + 20 * STEP, STEP):
            seen.end_below(limit)
        assert seen.min_offset == 3
        assert len(opened) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    assert seen.min_offset == 3 and len(os.listdir("/proc/self/fd")) == before
