"""The flusher, stepped by hand: when it flushes, what it publishes and only then, and what a bad disk does."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from engine.keeping.flusher import IDLE_MS_MAX, Flusher, Pace, Paces, open_role
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.segment_files import is_offset
from store.index.service import IndexService
from store.index.sync import IndexSync
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import recover
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog

NOW, NO_TIME = 1_000_000, type("Clock", (), {"monotonic_ns": staticmethod(lambda: 0)})
LOG_PACE, QUEUE_PACE = Pace(500, 1, 10_000), Pace(1000, 2, 60_000)


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerCounters:
    monkeypatch.setattr("engine.keeping.flusher.time", NO_TIME)  # it rests for some times as long as its rounds take
    return BrokerCounters.create(tmp_path / "counters")


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the log and of queues that were synced, in order."""
    names: list[str] = []
    original = file_io.sync_data

    def note(fd: int) -> None:
        original(fd)
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        if is_offset(name):
            names.append(name)

    monkeypatch.setattr(file_io, "sync_data", note)
    return names


def role(log: SmallLog, counters: BrokerCounters, *, sync_flush: bool = False, is_slave: bool = False) -> Flusher:
    return Flusher(
        counters,
        log.files,
        log.directory,
        QUEUE_FILE_BYTES,
        sync_flush=sync_flush,
        paces=Paces(LOG_PACE, QUEUE_PACE),
        is_slave=is_slave,
    )


def grow(log: SmallLog, counters: BrokerCounters, bytes_at_least: int) -> None:
    start = log.end
    while log.end - start < bytes_at_least:
        log.append(body=b"x" * 400)
    waiting.publish(counters.max_physical_offset, log.end)


def dispatch(log: SmallLog, counters: BrokerCounters) -> None:
    builder = Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES)
    waiting.publish(counters.reput_from_offset, builder.dispatch(counters.reput_from_offset.read(), log.end))
    builder.close()


def test_async_flush_keeps_its_interval_and_its_least_pages(
    log: SmallLog, counters: BrokerCounters, synced: list[str]
) -> None:
    flusher = role(log, counters)
    flusher.do_work(NOW)  # thorough from the start; nothing is there
    grow(log, counters, 100)
    assert flusher.do_work(NOW) == log.end  # the thorough interval was over
    small = log.end
    grow(log, counters, 100)
    for now_ms in (NOW + 499, NOW + 500, NOW + 1000):
        assert flusher.do_work(now_ms) == 0, "less than a page"
    assert counters.flushed_offset.read() == small
    assert flusher.do_work(NOW + 10_000) == log.end - small, "anything once per thorough interval"


def test_async_flush_a_full_segment_and_many_pages(log: SmallLog, counters: BrokerCounters, synced: list[str]) -> None:
    flusher = role(log, counters)
    grow(log, counters, 100)
    flusher.do_work(NOW)
    flushed = counters.flushed_offset.read()
    grow(log, counters, 3 * SEGMENT_BYTES)
    assert flusher.do_work(NOW + 499) == 0
    bell = counters.ack_bell.read()
    assert flusher.do_work(NOW + 500) == log.end - flushed
    bases = [f"{base:020d}" for base in log.files.base_offsets()]
    assert synced == [bases[0], *bases]
    assert counters.ack_bell.read() >= bell


def test_async_flush_that_is_not_timed_looks_whenever_the_log_grows(
    log: SmallLog, counters: BrokerCounters, synced: list[str]
) -> None:
    flusher = Flusher(
        counters,
        log.files,
        log.directory,
        QUEUE_FILE_BYTES,
        sync_flush=False,
        paces=Paces(Pace(500, 1, 10_000, timed=False), QUEUE_PACE),
    )
    grow(log, counters, 100)
    flusher.do_work(NOW)  # thorough from the start
    flushed = counters.flushed_offset.read()
    grow(log, counters, 10)
    assert flusher.do_work(NOW + 1) == 0, "less than a page"
    growing = threading.Thread(target=grow, args=(log, counters, 4096))
    growing.start()
    while counters.max_physical_offset.read() < flushed + 4096:
        flusher.idle(60_000)
        flusher.do_work(NOW + 2)
    growing.join()
    flusher.do_work(NOW + 2)
    assert counters.flushed_offset.read() >= flushed + 4096
    assert counters.log_flushes.read() == len(synced)


def test_sync_flush_goes_first_while_the_queues_are_brought_to_disk(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    flusher = role(log, counters, sync_flush=True)
    log.fill(40, topics=4, queues=1)
    waiting.publish(counters.max_physical_offset, log.end)
    dispatch(log, counters)
    original, flushed_before = file_io.sync_data, []

    def note(fd: int) -> None:
        if "consumequeue" in os.readlink(f"/proc/self/fd/{fd}"):
            flushed_before.append(counters.flushed_offset.read())
            grow(log, counters, 1)  # while the disk works
        original(fd)

    monkeypatch.setattr(file_io, "sync_data", note)
    flusher.do_work(NOW + 60_000)
    assert len(flushed_before) == 4
    assert flushed_before == sorted(set(flushed_before)), "what was put meanwhile was on disk before the next queue"


def test_sync_flush_at_once_and_one_for_all(log: SmallLog, counters: BrokerCounters, synced: list[str]) -> None:
    flusher = role(log, counters, sync_flush=True)
    assert flusher.do_work(NOW) == 0
    for _ in range(3):
        grow(log, counters, 1)
    assert flusher.do_work(NOW) == log.end
    assert counters.flushed_offset.read() == log.end
    assert synced == ["0" * 20]
    assert flusher.do_work(NOW) == 0
    growing = threading.Thread(target=grow, args=(log, counters, 1))
    growing.start()
    flusher.idle(60_000)
    growing.join()
    assert flusher.do_work(NOW) > 0


def test_nothing_is_flushed_before_the_disk_says_so(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(log, counters, 2 * SEGMENT_BYTES)
    flusher = role(log, counters, sync_flush=True)
    seen = []
    original = file_io.sync_data

    def look(fd: int) -> None:
        if is_offset(Path(os.readlink(f"/proc/self/fd/{fd}")).name):
            seen.append(counters.flushed_offset.read())
        original(fd)

    monkeypatch.setattr(file_io, "sync_data", look)
    flusher.do_work(NOW)
    assert seen == log.files.base_offsets()


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_failed_sync_is_final(
    sync_flush: bool,
    log: SmallLog,
    counters: BrokerCounters,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grow(log, counters, SEGMENT_BYTES + 10)
    flusher = role(log, counters, sync_flush=sync_flush)
    calls: list[int] = []
    original = file_io.sync_data

    def fail_the_second(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(fd)

    monkeypatch.setattr(file_io, "sync_data", fail_the_second)
    assert flusher.do_work(NOW) == SEGMENT_BYTES, "the first segment is on disk"
    assert counters.flush_errno.read() == errno.EIO
    assert "Input/output error" in caplog.text and f"{SEGMENT_BYTES:020d}" in caplog.text
    grow(log, counters, 10)
    for again in (flusher, role(log, counters, sync_flush=sync_flush)):  # a restarted flusher does not forget
        for now_ms in (NOW + 1000, NOW + 100_000):
            assert again.do_work(now_ms) == 0
        again.idle(1)
        again.close()
    assert len(calls) == 2
    assert counters.flushed_offset.read() == SEGMENT_BYTES
    assert not log.directory.checkpoint.exists()


def test_a_failed_sync_of_a_queue_is_final_too(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(log, counters, 10)
    dispatch(log, counters)
    flusher = role(log, counters)

    def fail(fd: int) -> None:
        if "consumequeue" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_io, "sync_data", fail)
    flusher.do_work(NOW)
    assert counters.flush_errno.read() == errno.EIO
    assert not log.directory.checkpoint.exists()


def test_queues_and_checkpoint_are_synced_at_their_own_interval(
    log: SmallLog, counters: BrokerCounters, synced: list[str]
) -> None:
    flusher = role(log, counters)
    grow(log, counters, 1000)
    dispatch(log, counters)
    built_to = counters.reput_from_offset.read()
    flusher.do_work(NOW)
    found = checkpoint_file.read(log.directory.checkpoint)
    assert (found.flushed_offset, found.queues, found.entries) == (built_to, 1, len(log.records))
    assert found.physic_msg_timestamp_ms == found.logics_msg_timestamp_ms == FIRST_STORE_MS + len(log.records) - 1
    grow(log, counters, 1000)
    dispatch(log, counters)
    synced.clear()
    flusher.do_work(NOW + 30_000)
    assert checkpoint_file.read(log.directory.checkpoint) == found, "between two thorough rounds"
    flusher.do_work(NOW + 60_000)
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset == log.end
    assert "0" * 20 in synced


def test_the_checkpoint_also_follows_the_log(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.keeping.flusher.NOTED_BYTES", 2000)
    flusher = role(log, counters)
    flusher.do_work(NOW)
    noted = []
    for later_ms, size in ((1000, 3000), (5000, 0), (12_000, 1000), (18_000, 1000)):
        grow(log, counters, size)
        dispatch(log, counters)
        flusher.do_work(NOW + later_ms)
        found = checkpoint_file.read(log.directory.checkpoint).flushed_offset
        noted.append((found or 0) == log.end)
    assert noted == [False, True, False, True], "after so many bytes, but not more often than every five seconds"


def test_the_checkpoint_never_promises_what_is_not_on_disk(log: SmallLog, counters: BrokerCounters) -> None:
    flusher = role(log, counters)
    grow(log, counters, 1000)
    dispatch(log, counters)
    inside = log.append()
    waiting.publish(counters.max_physical_offset, inside.offset + 20)  # a slave's log, part of a record
    flusher.do_work(NOW)
    assert counters.flushed_offset.read() == inside.offset + 20
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset == inside.offset


def test_a_stop_leaves_everything_on_disk(log: SmallLog, counters: BrokerCounters) -> None:
    flusher = role(log, counters)
    flusher.do_work(NOW)
    log.fill(60)
    waiting.publish(counters.max_physical_offset, log.end)
    dispatch(log, counters)
    flusher.close()
    assert counters.flushed_offset.read() == log.end
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset == log.end
    found = recover(log.directory, SEGMENT_BYTES, QUEUE_FILE_BYTES)
    assert (found.max_physical_offset, found.findings) == (log.end, [])
    assert found.records_walked < len(log.records)


def test_idle_waits_for_the_timers(log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(waiting, "await_change", lambda _cursor, _seen, timeout_ms: waits.append(timeout_ms))
    flusher = role(log, counters)
    flusher.do_work(NOW)
    flusher.idle(60_000)
    grow(log, counters, 10)
    flusher.idle(60_000)
    flusher.close()
    assert waits[0] == IDLE_MS_MAX > waits[1] > 0, "until the log is looked at, or the flush is due"


def test_a_log_that_begins_above_0(tmp_path: Path, counters: BrokerCounters) -> None:
    log = SmallLog(tmp_path / "store", end=5 * SEGMENT_BYTES)
    waiting.publish(counters.min_physical_offset, 5 * SEGMENT_BYTES)
    grow(log, counters, 10)
    flusher = role(log, counters, sync_flush=True)
    assert flusher.do_work(NOW) == log.end
    assert log.files.base_offsets() == [5 * SEGMENT_BYTES]


@pytest.mark.parametrize("kind", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_open_role_flushes_by_the_configured_flush_type(kind: str, tmp_path: Path, counters: BrokerCounters) -> None:
    log = SmallLog(tmp_path / "store", segment_bytes=1 << 20)
    config = from_mapping(
        {
            "storePathRootDir": str(log.root),
            "mappedFileSizeCommitLog": str(1 << 20),
            "flushDiskType": kind,
        }
    )
    flusher = open_role(config, counters)
    grow(log, counters, 10)
    assert flusher.do_work(NOW) == log.end
    flusher.close()


def test_a_checkpoint_without_room_is_written_later_and_stops_nothing(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_path: Path, _content: bytes, _mode: int = 0) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    flusher = role(log, counters)
    grow(log, counters, 1000)
    dispatch(log, counters)
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "replace_file", full)
        flusher.do_work(NOW)
    assert counters.flush_errno.read() == 0 and "No space left" in caplog.text
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset is None
    flusher.do_work(NOW + QUEUE_PACE.thorough_interval_ms)
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset == log.end


def test_a_queue_file_that_expires_while_it_is_synced_stops_nothing(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(25):
        log.append("topic")
    waiting.publish(counters.max_physical_offset, log.end)
    dispatch(log, counters)
    first = log.directory.consumequeue / "topic" / "0" / ("0" * 20)
    original = file_io.open_file

    def expired(path: Path, writable: bool) -> int:
        if path == first:
            first.unlink(missing_ok=True)
        return original(path, writable)

    monkeypatch.setattr(file_io, "open_file", expired)
    flusher = role(log, counters)
    flusher.do_work(NOW)
    assert not first.exists() and counters.flush_errno.read() == 0
    assert checkpoint_file.read(log.directory.checkpoint).flushed_offset == log.end


def test_an_index_file_that_is_full_goes_to_disk_and_into_the_checkpoint(
    log: SmallLog, counters: BrokerCounters
) -> None:
    """As RocketMQ: the time moves only when a file is full. Our note beside it says how far the last one was."""
    index = IndexService(log.directory.index, 3, 5)
    flusher = Flusher(
        counters,
        log.files,
        log.directory,
        QUEUE_FILE_BYTES,
        sync_flush=False,
        paces=Paces(LOG_PACE, QUEUE_PACE),
        index=IndexSync(index),
    )
    dispatcher = Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index)
    noted = []
    for number in range(1, 11):
        record = log.append(properties={"KEYS": "k"})
        dispatcher.dispatch(record.offset, record.end)
        waiting.publish(counters.max_physical_offset, log.end)
        waiting.publish(counters.reput_from_offset, log.end)
        flusher.do_work(NOW + 1000 * number)
        noted.append(checkpoint_file.read(log.directory.checkpoint).index_msg_timestamp_ms)
    fourth, eighth = FIRST_STORE_MS + 3, FIRST_STORE_MS + 7  # four entries a file
    assert noted == [0] * 4 + [fourth] * 4 + [eighth] * 2
    flusher.close()
    found = checkpoint_file.read(log.directory.checkpoint)
    assert (found.index_offset, found.index_count) == (log.end, 3)
    assert found.index_file == int(index.files()[-1].name)
    assert found.index_msg_timestamp_ms == eighth


def test_the_first_checkpoint_has_slipstreams_part_though_an_index_file_is_full(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without our part, cut off there by the power, would look like a RocketMQ broker's: no mark would count."""
    index, written = IndexService(log.directory.index, 3, 5), []
    for _ in range(10):
        log.append(properties={"KEYS": "k"})
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index).dispatch(0, log.end)
    for cursor in (counters.max_physical_offset, counters.reput_from_offset):
        waiting.publish(cursor, log.end)
    monkeypatch.setattr(checkpoint_file, "write", lambda _path, saved: written.append(saved.flushed_offset))
    Flusher(
        counters,
        log.files,
        log.directory,
        QUEUE_FILE_BYTES,
        sync_flush=False,
        paces=Paces(LOG_PACE, QUEUE_PACE),
        index=IndexSync(index),
    ).do_work(NOW)
    assert written == [log.end]
