"""The allocator, stepped by hand: one segment ahead, a full disk, a slave that begins where its master says."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from engine.keeping.allocator import RETRY_MS, Allocator, open_role
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import file_io
from store.files.segment_files import SegmentFiles

SIZE = 8192
NOW = 1_000_000


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


@pytest.fixture
def files(tmp_path: Path) -> SegmentFiles:
    return SegmentFiles(tmp_path / "commitlog", SIZE)


def turns(allocator: Allocator, now_ms: int = NOW) -> int:
    made = 0
    while allocator.do_work(now_ms):
        made += 1
    return made


def test_the_segment_asked_for_and_the_one_after_it(counters: BrokerCounters, files: SegmentFiles) -> None:
    allocator = Allocator(counters, files)
    assert turns(allocator) == 2
    assert files.base_offsets() == [0, SIZE]
    assert (counters.allocated_offset.read(), counters.allocation_errno.read()) == (2 * SIZE, 0)
    waiting.publish(counters.segment_request_offset, SIZE - 1)
    assert turns(allocator) == 0
    waiting.publish(counters.max_physical_offset, SIZE)
    waiting.publish(counters.segment_request_offset, SIZE)
    assert turns(allocator) == 1
    assert counters.allocated_offset.read() == 3 * SIZE


def test_a_log_that_begins_above_0(counters: BrokerCounters, files: SegmentFiles) -> None:
    waiting.publish(counters.segment_request_offset, -1)
    allocator = Allocator(counters, files)
    assert turns(allocator) == 0 and not files.base_offsets()
    waiting.publish(counters.segment_request_offset, 5 * SIZE + 100)
    assert turns(allocator) == 0, "where the log begins is the housekeeper's to say"
    waiting.publish(counters.min_physical_offset, 5 * SIZE)
    assert turns(allocator) == 2
    assert files.base_offsets() == [5 * SIZE, 6 * SIZE]
    assert counters.allocated_offset.read() == 7 * SIZE


def test_the_allocator_sleeps_until_the_beginning_of_the_log_is_set(
    counters: BrokerCounters, files: SegmentFiles
) -> None:
    waiting.publish(counters.segment_request_offset, 5 * SIZE)
    allocator = Allocator(counters, files)
    assert turns(allocator) == 0
    saying = threading.Thread(target=waiting.publish, args=(counters.min_physical_offset, 5 * SIZE))
    saying.start()
    allocator.idle(60_000)
    saying.join()
    assert turns(allocator) == 2


def test_what_was_made_for_an_empty_log_is_passed_over_when_the_log_begins_elsewhere(
    counters: BrokerCounters, files: SegmentFiles
) -> None:
    allocator = Allocator(counters, files)
    turns(allocator)
    waiting.publish(counters.segment_request_offset, 5 * SIZE)
    assert turns(allocator) == 0
    for base in (0, SIZE):
        files.remove(base)
    waiting.publish(counters.min_physical_offset, 5 * SIZE)
    turns(allocator)
    assert files.base_offsets() == [5 * SIZE, 6 * SIZE]


def test_bytes_received_but_not_published_yet_keep_their_segments(
    counters: BrokerCounters, files: SegmentFiles
) -> None:
    allocator = Allocator(counters, files)
    turns(allocator)
    with files.open(SIZE, writable=True) as segment:
        segment.array[77] = 1
    waiting.publish(counters.segment_request_offset, 2 * SIZE)
    turns(allocator)
    assert files.base_offsets() == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert counters.min_physical_offset.read() == 0


def test_a_log_with_messages_keeps_its_segments(counters: BrokerCounters, files: SegmentFiles) -> None:
    allocator = Allocator(counters, files)
    turns(allocator)
    waiting.publish(counters.max_physical_offset, 2 * SIZE - 5)
    waiting.publish(counters.segment_request_offset, 2 * SIZE)
    turns(allocator)
    assert files.base_offsets() == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert counters.min_physical_offset.read() == 0


def test_a_restarted_allocator_goes_on_with_the_files_there_are(counters: BrokerCounters, files: SegmentFiles) -> None:
    turns(Allocator(counters, files))
    (files.directory / f"{2 * SIZE:020d}.creating").write_bytes(b"killed here")
    waiting.publish(counters.max_physical_offset, SIZE)
    waiting.publish(counters.segment_request_offset, SIZE)
    restarted = Allocator(counters, files)
    assert turns(restarted) == 1
    assert files.base_offsets() == [0, SIZE, 2 * SIZE]
    assert not list(files.directory.glob("*.creating"))


def test_a_killed_allocator_had_not_published_its_last_file(counters: BrokerCounters, files: SegmentFiles) -> None:
    files.reserve(0)
    files.reserve(SIZE)
    restarted = Allocator(counters, files)
    assert counters.allocated_offset.read() == 2 * SIZE
    assert turns(restarted) == 0


def test_a_full_disk_is_an_errno_and_is_tried_again_each_second(
    counters: BrokerCounters, files: SegmentFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allocator = Allocator(counters, files)
    assert allocator.do_work(NOW) == SIZE
    tries = []

    def full(fd: int, start: int, length: int) -> None:
        tries.append(length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(file_io, "reserve", full)
        for now_ms in (NOW, NOW + 1, NOW + RETRY_MS - 1, NOW + RETRY_MS, NOW + RETRY_MS + 1):
            assert allocator.do_work(now_ms) == 0
        assert tries == [SIZE, SIZE]
        assert (counters.allocation_errno.read(), counters.allocated_offset.read()) == (errno.ENOSPC, SIZE)
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert [path.name for path in files.directory.iterdir()] == ["0" * 20]
    assert allocator.do_work(NOW + 2 * RETRY_MS) == SIZE
    assert (counters.allocation_errno.read(), counters.allocated_offset.read()) == (0, 2 * SIZE)


def test_the_allocator_sleeps_until_it_is_asked(counters: BrokerCounters, files: SegmentFiles) -> None:
    allocator = Allocator(counters, files)
    turns(allocator)
    allocator.idle(1)
    waiting.publish(counters.max_physical_offset, SIZE)
    asking = threading.Thread(target=waiting.publish, args=(counters.segment_request_offset, SIZE))
    asking.start()
    allocator.idle(60_000)
    asking.join()
    assert turns(allocator) == 1
    allocator.close()


def test_open_role_allocates_segments_of_the_configured_size(counters: BrokerCounters, tmp_path: Path) -> None:
    config = from_mapping({"storePathRootDir": str(tmp_path / "store"), "mappedFileSizeCommitLog": str(1 << 20)})
    assert turns(open_role(config, counters)) == 2
    assert (tmp_path / "store" / "commitlog" / f"{1 << 20:020d}").stat().st_size == 1 << 20
