"""Pages of the writer's segment made writable by a thread: as many as are asked for, of this segment, or an error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters
from engine.writer import pages_ahead
from engine.writer.pages_ahead import PagesAhead
from ipc import waiting
from store.files import mapped_files
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from tests.harness.conditions import await_that

SIZE, STEP = 256 * 1024, 16 * 1024


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


@pytest.fixture
def pages(counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch) -> Iterator[PagesAhead]:
    monkeypatch.setattr(pages_ahead, "AHEAD_BYTES", 4 * STEP)
    monkeypatch.setattr(pages_ahead, "LOW_BYTES", 3 * STEP)
    monkeypatch.setattr(pages_ahead, "STEP_BYTES", STEP)
    one = PagesAhead(counters)
    yield one
    one.close()


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[list[Segment]]:
    files = SegmentFiles(tmp_path / "commitlog", SIZE)
    for base in (0, SIZE):
        files.reserve(base)
    both = [files.open(base, writable=True) for base in (0, SIZE)]
    yield both
    for one in both:
        one.close()


def test_some_pages_are_ready_ahead_of_the_log_as_far_as_the_segment_goes(
    pages: PagesAhead, segments: list[Segment], counters: BrokerCounters
) -> None:
    segments[0].array[:] = 7
    pages.begin(segments[0], 0)
    await_that(lambda: pages.ready(0, 0) == 4 * STEP, "so many are ready")
    for end in range(STEP, SIZE, STEP):
        waiting.publish(counters.max_physical_offset, end)
        await_that(lambda: pages.ready(end, 0) >= min(end + 3 * STEP, SIZE), "it goes on")  # noqa: B023
    assert pages.ready(SIZE, STEP) == SIZE
    assert bytes(segments[0].array) == bytes([7]) * SIZE


def test_what_the_thread_has_not_done_the_writer_does(pages: PagesAhead, segments: list[Segment]) -> None:
    pages.begin(segments[0], 0)
    assert pages.ready(SIZE // 2, STEP) >= SIZE // 2 + STEP
    pages.begin(segments[1], SIZE)
    assert SIZE + STEP <= pages.ready(SIZE, STEP) <= SIZE + 4 * STEP, "nothing of the one before counts"


def test_that_there_are_no_blocks_behind_pages_is_the_writers_to_say(
    pages: PagesAhead, segments: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> bool:
        raise OSError(errno.EFAULT, "no blocks")

    monkeypatch.setattr(mapped_files, "populate_write", fails)
    pages.begin(segments[0], 0)
    with pytest.raises(OSError, match="no blocks"):
        pages.ready(0, STEP)
    monkeypatch.undo()
    await_that(lambda: pages.ready(0, 0) > 0, "it goes on once there are")
