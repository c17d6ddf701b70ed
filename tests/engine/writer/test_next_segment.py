"""The segment after the current one, made ready by a thread; whatever comes in between, the right one is taken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters
from engine.writer.next_segment import SegmentAhead
from ipc import waiting
from ipc.compiled.atomics import Followed
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from tests.harness.conditions import await_that

SIZE, POPULATED = 64 * 1024, 16 * 1024
DEADLINE_SECONDS = 60.0


def taken(ahead: SegmentAhead, counters: BrokerCounters, base: int) -> tuple[Segment, int]:
    end = time.monotonic() + DEADLINE_SECONDS
    while (ready := ahead.take(base)) is None:
        assert time.monotonic() < end, f"the segment at {base} does not get ready"
        waiting.await_change(counters.min_physical_offset, 0, 5)
    return ready


def test_the_next_segment_is_ready_once_allocated_and_the_last_one_is_unmapped(tmp_path: Path) -> None:
    counters, files = BrokerCounters.create(tmp_path / "counters"), SegmentFiles(tmp_path / "commitlog", SIZE)
    ahead = SegmentAhead(counters, files, POPULATED)
    assert ahead.take(0) is None
    current: Segment | None = None
    for base in (0, SIZE, 2 * SIZE):
        files.reserve(base)
        waiting.publish(counters.allocated_offset, base + SIZE)
        if current is None:
            following = files.open(base, writable=True)
        else:
            following, populated = taken(ahead, counters, base)
            assert (following.base_offset, populated) == (base, base + POPULATED)
        following.array[:8] = 7
        ahead.begun(base, current)
        current = following
    assert ahead.take(2 * SIZE) is None, "given away once"
    ahead.close()
    assert (files.directory / f"{SIZE:020d}").read_bytes()[:9] == bytes([7] * 8 + [0])


def test_a_segment_that_the_writer_opened_is_never_taken_for_the_next(tmp_path: Path) -> None:
    counters, files = BrokerCounters.create(tmp_path / "counters"), SegmentFiles(tmp_path / "commitlog", SIZE)
    for base in (0, SIZE, 2 * SIZE):
        files.reserve(base)
    ahead = SegmentAhead(counters, files, POPULATED)
    ahead.begun(0, None)
    waiting.publish(counters.allocated_offset, 3 * SIZE)
    ahead.begun(SIZE, None)  # the writer did not wait for it
    following, _populated = taken(ahead, counters, 2 * SIZE)
    assert following.base_offset == 2 * SIZE
    assert ahead.take(SIZE) is None
    following.close()
    ahead.close()


def test_the_last_segment_is_unmapped_though_no_further_one_is_allocated(
    tmp_path: Path,
) -> None:
    counters, files = BrokerCounters.create(tmp_path / "counters"), SegmentFiles(tmp_path / "commitlog", SIZE)
    for base in (0, SIZE, 2 * SIZE):
        files.reserve(base)
    waiting.publish(counters.allocated_offset, 3 * SIZE)
    ahead = SegmentAhead(counters, files, POPULATED)

    def rests() -> bool:
        return bool(ahead._bell[Followed.WAITERS]) and not waiting.is_awaited(counters.allocated_offset)

    ahead.begun(0, None)
    await_that(rests, "it sleeps until the writer is further")
    ahead.begun(SIZE, files.open(0, writable=True))
    await_that(lambda: rests() and not ahead._retired, "it has heard of the writer")
    following, _populated = taken(ahead, counters, 2 * SIZE)
    following.close()
    ahead.close()


def advice_of(path: Path) -> set[str]:
    """What the kernel was told of a mapping of that file."""
    _before, _path, behind = Path("/proc/self/smaps").read_text().partition(f"{path}\n")
    return set(behind.split("VmFlags:")[1].splitlines()[0].split())


@pytest.mark.parametrize("sync_flush", [True, False])
def test_pages_come_alone_where_a_little_is_flushed_again_and_again(tmp_path: Path, sync_flush: bool) -> None:
    counters, files = BrokerCounters.create(tmp_path / "counters"), SegmentFiles(tmp_path / "commitlog", SIZE)
    for base in (0, SIZE):
        files.reserve(base)
    waiting.publish(counters.allocated_offset, 2 * SIZE)
    ahead = SegmentAhead(counters, files, POPULATED, sync_flush=sync_flush)
    current = ahead.open(0)
    ahead.begun(0, None)
    following, _populated = taken(ahead, counters, SIZE)
    for segment in (current, following):
        assert ("rr" in advice_of(segment.path)) == sync_flush  # as MADV_RANDOM is shown
        segment.close()
    ahead.close()
