"""What the flusher does when the log's files are deleted, moved or replaced while it runs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from engine.keeping.flusher import WATCH_MS
from engine.shared_memory import written_file
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import FILES_GONE
from ipc import waiting
from tests.engine.keeping.test_flusher import NOW, counters, grow, log, role
from tests.harness.logs import SEGMENT_BYTES, SmallLog

__all__ = ["counters", "log"]  # fixtures


def deleted(log: SmallLog) -> None:
    log.files.path_of(0).unlink()


def replaced(log: SmallLog) -> None:
    copy = log.root / "copy"
    copy.write_bytes(log.files.path_of(0).read_bytes())
    copy.rename(log.files.path_of(0))


def moved(log: SmallLog) -> None:
    log.files.path_of(0).rename(log.root / "moved")


def another_directory(log: SmallLog) -> None:
    """As a mount that comes over it: the same names, other files."""
    log.directory.commitlog.rename(log.root / "before")
    shutil.copytree(log.root / "before", log.directory.commitlog)


def moved_store(log: SmallLog) -> None:
    log.root.rename(log.root.with_name("elsewhere"))


WAYS = [deleted, replaced, moved, another_directory, moved_store]


@pytest.mark.parametrize("sync_flush", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_its_path_does_not_lead_to_is_not_called_flushed(
    log: SmallLog,
    counters: BrokerCounters,
    caplog: pytest.LogCaptureFixture,
    sync_flush: bool,
    way: Callable[[SmallLog], None],
) -> None:
    log.append()
    for cursor in (counters.max_physical_offset, counters.flushed_offset):
        waiting.publish(cursor, log.end)
    waiting.publish(counters.allocated_offset, SEGMENT_BYTES)
    flusher = role(log, counters, sync_flush=sync_flush)
    flusher.do_work(NOW)  # nothing is to be flushed, but the segment is looked at from here on
    flushed = log.end
    way(log)
    waiting.publish(counters.max_physical_offset, flushed + 100)
    assert flusher.do_work(NOW + WATCH_MS) == 0
    assert (counters.flush_errno.read(), counters.flushed_offset.read()) == (FILES_GONE, flushed)
    assert "No message is acknowledged any more" in caplog.text and "while the broker runs" in caplog.text
    flusher.close()
    assert counters.flushed_offset.read() == flushed


@pytest.mark.parametrize("way", WAYS)
def test_lost_files_are_seen_at_rest_and_at_stops(
    log: SmallLog, counters: BrokerCounters, way: Callable[[SmallLog], None]
) -> None:
    log.append()
    for cursor in (counters.max_physical_offset, counters.flushed_offset):
        waiting.publish(cursor, log.end)
    waiting.publish(counters.allocated_offset, SEGMENT_BYTES)
    at_rest, at_the_stop = role(log, counters), role(log, counters)
    for flusher in (at_rest, at_the_stop):
        flusher.do_work(NOW)
    way(log)
    for see in (lambda: at_rest.do_work(NOW + WATCH_MS), at_the_stop.close):
        waiting.publish(counters.flush_errno, 0)
        see()
        assert counters.flush_errno.read() == FILES_GONE


def test_a_flush_right_after_the_deletion_is_not_published(log: SmallLog, counters: BrokerCounters) -> None:
    """The names are looked at twice a second; that the open file has none, at each flush."""
    flusher = role(log, counters, sync_flush=True)
    grow(log, counters, 100)
    flusher.do_work(NOW)
    flushed = counters.flushed_offset.read()
    assert flushed == log.end
    deleted(log)
    waiting.publish(counters.max_physical_offset, flushed + 100)
    assert flusher.do_work(NOW) == 0
    assert (counters.flush_errno.read(), counters.flushed_offset.read()) == (FILES_GONE, flushed)


@pytest.mark.parametrize("sync_flush", [True, False])
def test_a_file_that_was_replaced_before_the_first_look_is_another(
    log: SmallLog, counters: BrokerCounters, sync_flush: bool
) -> None:
    """The flusher opens by name what the writer mapped before."""
    log.append()
    with log.files.open(0, writable=True) as segment:
        written_file.note(counters, segment)
    replaced(log)
    waiting.publish(counters.allocated_offset, SEGMENT_BYTES)
    flusher = role(log, counters, sync_flush=sync_flush)
    waiting.publish(counters.max_physical_offset, log.end)
    assert flusher.do_work(NOW) == 0
    assert (counters.flush_errno.read(), counters.flushed_offset.read()) == (FILES_GONE, 0)


def test_a_file_system_that_becomes_read_only_ends_acknowledgements(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flusher = role(log, counters)
    grow(log, counters, 100)
    flusher.do_work(NOW)
    monkeypatch.setattr("engine.keeping.log_watch.os.statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert flusher.do_work(NOW + WATCH_MS) == 0
    assert counters.flush_errno.read() == errno.EROFS
    assert f"{log.directory.commitlog}: cannot be flushed to disk (Read-only file system)" in caplog.text


def test_segments_that_retention_deletes_are_not_missed(log: SmallLog, counters: BrokerCounters) -> None:
    flusher = role(log, counters)
    grow(log, counters, 100)
    flusher.do_work(NOW)
    grow(log, counters, 2 * SEGMENT_BYTES)
    waiting.publish(counters.min_physical_offset, 2 * SEGMENT_BYTES)
    for base in (0, SEGMENT_BYTES):
        log.files.remove(base)
    assert flusher.do_work(NOW + 1000) > 0
    flusher.close()
    assert (counters.flush_errno.read(), counters.flushed_offset.read()) == (0, log.end)
