"""The housekeeper, stepped by hand with a clock of its own: what goes, in which order, and what everybody is told."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.keeping.housekeeper import MEASURE_MS, MEASURE_RESTED_MS, local_hour, open_role, policy_of
from engine.protocol.store.retention import DISK_FULL_BIT, FIRST_ROUND_MS, HOUR_MS, DiskState, Usage
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms
from store.compat import LINES
from store.files import file_io
from store.names import BEGIN
from store.notes import summed_json
from store.queues.consume_queue import ConsumeQueue
from store.upkeep import leases, side_files, snapshot_state, snapshots
from tests.harness.housekeeping import FOUR, NOW, SETTINGS, Bench
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, 100)


def test_expired_segments_go_in_order_and_queues_and_index_follow(bench: Bench) -> None:
    count = len(bench.segments())
    assert count >= 6
    bench.age(73, 0, 1, 2, 4)
    bench.hour = FOUR
    bench.run(FIRST_ROUND_MS + 20_000)
    assert bench.segments() == list(range(3, count)), "3 is young and protects 4"
    begin = 3 * SEGMENT_BYTES
    assert (bench.counters.min_physical_offset.read(), bench.counters.deleted_segments.read()) == (begin, 3)
    for queue_id in (0, 1):
        queue = ConsumeQueue.open(bench.log.directory.consumequeue / "topic" / str(queue_id), QUEUE_FILE_BYTES)
        first = queue.map_file(queue.bases()[0])
        assert queue.bases()[0] > 0 and first[-1]["physical_offset"] >= begin
        before = [record for record in bench.log.records if record.queue_id == queue_id and record.offset < begin]
        assert queue.bases()[0] == len(before) // 10 * QUEUE_FILE_BYTES, "no file with a living entry went"
    assert bench.index.query_offset("topic", "k99", 5, 0, 1 << 62) == [bench.log.records[99].offset]
    assert bench.index.query_offset("topic", "k0", 5, 0, 1 << 62) == []
    deleted = bench.audit("delete")
    kinds = [line["kind"] for line in deleted]
    assert kinds[:3] == ["segment"] * 3 and set(kinds[3:]) == {"queue", "index"}
    assert [line["path"] for line in deleted[:3]] == [f"commitlog/{n * SEGMENT_BYTES:020d}" for n in range(3)]
    assert all("deleteWhen, hour 04" in line["reason"] and "73.0 h old" in line["reason"] for line in deleted[:3])
    assert [line["at_ms"] for line in deleted[:3]] == [NOW + FIRST_ROUND_MS + pause for pause in (0, 100, 200)]
    assert all(f"below the log's first byte {begin}" in line["reason"] for line in deleted[3:])
    times = {Path(line["path"]).parent: line["at_ms"] for line in deleted[3:]}
    first, second, last = sorted(times.values())
    assert (second - first, last - second) == (100, 100), "a pause between one queue, the next, and the index"


def test_side_files_go_with_their_segments(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    folder = side_files.make_folder(bench.log.root)
    for number in bench.segments():
        for suffix in side_files.SUFFIXES:
            (folder / f"{number * SEGMENT_BYTES:020d}{suffix}").touch()
    before = bench.segments()
    bench.age(73, *before[:2])
    bench.hour = FOUR
    bench.run(FIRST_ROUND_MS + 20_000)
    assert bench.segments() == before[2:]
    assert list(side_files.listed(bench.log.root)) == [number * SEGMENT_BYTES for number in bench.segments()]
    shutil.rmtree(folder)
    folder.symlink_to(bench.log.root)
    bench.age(73, before[2])
    bench.run(20_000)
    assert bench.segments() == before[3:] and "no folder (a link, a file)" in caplog.text


def test_the_beginning_moves_before_the_file_goes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    unlink = file_io.unlink

    def watched(path: Path) -> None:
        if path.parent == bench.log.directory.commitlog:
            noted = (summed_json.read(bench.log.root / BEGIN) or {})["offset"]
            seen.append((path.name, bench.counters.min_physical_offset.read(), noted, len(bench.audit("delete"))))
        unlink(path)

    monkeypatch.setattr(file_io, "unlink", watched)
    bench.age(73, 0, 1)
    bench.hour = FOUR
    bench.run(FIRST_ROUND_MS + 100)
    begins = (SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    assert seen == [(f"{n * SEGMENT_BYTES:020d}", begin, begin, n + 1) for n, begin in enumerate(begins)]


def test_nothing_goes_at_another_hour(bench: Bench) -> None:
    before = bench.segments()
    bench.age(1000, *before)
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments() == before and not bench.audit("delete")


def test_neither_the_file_written_nor_one_that_is_not_on_disk_goes(bench: Bench) -> None:
    count = len(bench.segments())
    bench.log.files.reserve(count * SEGMENT_BYTES)  # made ahead
    bench.age(1000, *range(count + 1))
    bench.hour = FOUR
    waiting.publish(bench.counters.flushed_offset, 2 * SEGMENT_BYTES + 10)
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments()[0] == 2
    waiting.publish(bench.counters.flushed_offset, bench.log.end)
    bench.run(60_000)
    assert bench.segments() == [count - 1, count]


def test_a_segment_stays_until_what_the_queues_have_of_it_is_on_disk(bench: Bench) -> None:
    count = len(bench.segments())
    bench.age(1000, *range(count))
    bench.hour = FOUR
    bench.log.directory.checkpoint.unlink()
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments()[0] == 0, "not known yet"
    bench.note_queues(2 * SEGMENT_BYTES + 10)
    bench.run(60_000)
    assert bench.segments()[0] == 2
    waiting.publish(bench.counters.allocation_errno, errno.ENOSPC)
    bench.run(60_000)
    assert bench.segments() == [count - 1], "there is no room, perhaps not even for the queues"


def test_a_full_last_segment_stays_though_the_next_one_was_made(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 40)
    end = bench.log.end - bench.log.end % SEGMENT_BYTES
    for cursor in (bench.counters.max_physical_offset, bench.counters.flushed_offset, bench.counters.reput_from_offset):
        waiting.publish(cursor, end)
    bench.age(1000, *bench.segments())
    bench.hour = FOUR
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments()[0] == end // SEGMENT_BYTES - 1


def test_a_full_disk_deletes_what_is_young_too(bench: Bench) -> None:
    bench.usage = Usage(87, 20)
    count = len(bench.segments())
    for number in range(count):
        bench.age(0, number)
    bench.run(FIRST_ROUND_MS + 10_000)
    assert bench.segments() == [count - 1]
    assert "at once, younger than fileReservedTime 72.0 h" in bench.audit("delete")[0]["reason"]


def test_a_leased_segment_is_respected_and_then_forced(bench: Bench) -> None:
    bench.age(73, *bench.segments())
    bench.hour = FOUR
    lease = leases.acquire(bench.log.root, SEGMENT_BYTES + 5, 10**9, NOW)
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments()[0] == 1
    assert bench.counters.min_physical_offset.read() == SEGMENT_BYTES, "who holds it may plan with it"
    (condemned,) = bench.audit("condemn")
    assert condemned["path"].endswith(f"{SEGMENT_BYTES:020d}") and "held from offset" in condemned["reason"]
    assert not bench.audit("delete")[0]["forced"]
    queue = ConsumeQueue.open(bench.log.directory.consumequeue / "topic" / "0", QUEUE_FILE_BYTES)
    gone = [record for record in bench.log.records if record.queue_id == 0 and record.offset < SEGMENT_BYTES]
    assert queue.bases()[0] == len(gone) // 10 * QUEUE_FILE_BYTES, "the held segment's entries may still be asked for"
    bench.run(120_000)
    forced = next(line for line in bench.audit("delete") if line["path"].endswith(f"{SEGMENT_BYTES:020d}"))
    assert forced["forced"] and "destroyMapedFileIntervalForcibly" in forced["reason"]
    assert forced["at_ms"] - condemned["at_ms"] >= 120_000
    lease.release()
    bench.run(30_000)
    assert len(bench.segments()) == 1


def test_a_snapshot_keeps_segments_until_it_is_dropped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.age(73, *bench.segments())
    bench.hour = FOUR
    taken = snapshot_state.take(bench.log.root, "nightly", HOUR_MS)
    kept = replace(taken, min_offset=SEGMENT_BYTES + 5, created_ms=NOW, expires_ms=NOW + HOUR_MS)
    snapshots.write(bench.log.root, kept)
    bench.run(FIRST_ROUND_MS + 400_000)
    assert bench.segments()[0] == 1 and bench.counters.min_physical_offset.read() == SEGMENT_BYTES
    (told,) = bench.audit("keep")
    assert "a snapshot keeps the log" in told["reason"] and not bench.audit("condemn")
    snapshots.path_of(bench.log.root, "odd").write_bytes(b"?")
    bench.run(60_000)
    assert caplog.text.count("not a snapshot") == 1
    snapshots.drop(bench.log.root, "nightly")
    bench.run(30_000)
    assert len(bench.segments()) == 1


def test_a_snapshot_that_expires_lets_go_by_the_wall_clock(bench: Bench) -> None:
    bench.age(73, *bench.segments())
    bench.hour = FOUR
    taken = snapshot_state.take(bench.log.root, "nightly", HOUR_MS)
    snapshots.write(bench.log.root, replace(taken, created_ms=NOW, expires_ms=NOW + HOUR_MS))
    bench.run(FIRST_ROUND_MS + 30_000)
    assert bench.segments()[0] == 0
    bench.wall_ahead_ms = HOUR_MS
    bench.run(60_000)
    assert len(bench.segments()) == 1


def test_odd_leases_are_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    (bench.log.root / "slipstream.leases").mkdir()
    (bench.log.root / "slipstream.leases" / "1-1").write_bytes(b"?")
    bench.run(FIRST_ROUND_MS + 60_000)
    assert caplog.text.count("not a lease") == 1


def test_a_segment_that_cannot_be_deleted_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    bench.age(73, 0)
    bench.hour = FOUR
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "unlink", refuse)
        bench.run(FIRST_ROUND_MS + 100)
    assert bench.segments()[0] == 0 and "not permitted" in caplog.text
    assert [line["event"] for line in bench.audit()[1:]].count("delete_failed") == 1
    bench.run(60_000)
    assert bench.segments()[0] == 1


def test_a_restarted_housekeeper_goes_on(bench: Bench) -> None:
    bench.age(73, 0, 1)
    waiting.publish(bench.counters.min_physical_offset, SEGMENT_BYTES)  # killed between the cursor and the file
    bench.hour = FOUR
    bench.role = bench.open()
    bench.run(FIRST_ROUND_MS + 60_000)
    assert bench.segments()[0] == 2 and bench.counters.min_physical_offset.read() == 2 * SEGMENT_BYTES


# where a slave's log begins


def test_an_empty_log_begins_where_it_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for base in (0, SEGMENT_BYTES):
        bench.log.files.reserve(base)
    waiting.publish(bench.counters.segment_request_offset, 5 * SEGMENT_BYTES + 7)
    bench.role.do_work(NOW)
    assert bench.counters.min_physical_offset.read() == 5 * SEGMENT_BYTES and not bench.segments()
    assert "as its master says" in bench.audit("delete")[0]["reason"]
    bench.role.do_work(NOW)


def test_a_log_with_bytes_or_without_a_request_keeps_its_beginning(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.log.files.reserve(0)
    waiting.publish(bench.counters.segment_request_offset, -1)
    bench.role.do_work(NOW)
    waiting.publish(bench.counters.max_physical_offset, 1)
    waiting.publish(bench.counters.segment_request_offset, SEGMENT_BYTES)
    bench.role.do_work(NOW)
    assert bench.counters.min_physical_offset.read() == 0 and bench.segments() == [0]


def test_bytes_received_but_not_published_keep_their_segments(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.log.write(3, b"x")
    waiting.publish(bench.counters.segment_request_offset, 5 * SEGMENT_BYTES)
    bench.role.do_work(NOW)
    assert bench.counters.min_physical_offset.read() == 0 and bench.segments() == [0]


# the disk


def test_disk_states_are_published_and_return(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counters, found = bench.counters, []
    for percent in (20, 86, 91, 89, 88, 83):
        bench.usage = Usage(percent, 10)
        bench.role.do_work(bench.now_ms)
        assert counters.disk_state.read() == (found[-1][0] if found else 0), "it is looked at now and then"
        bench.now_ms += MEASURE_RESTED_MS
        bench.role.do_work(bench.now_ms)
        found.append((counters.disk_state.read(), counters.running_flags.read()))
        assert counters.disk_used_percent.read() == percent
    assert found == [(0, 0), (1, 0), (2, DISK_FULL_BIT), (2, DISK_FULL_BIT), (1, 0), (0, 0)]
    assert "read-only: messages are refused" in caplog.text and "the disk is normal" in caplog.text


def test_the_disk_is_looked_at_more_often_while_the_log_grows(bench: Bench) -> None:
    for grows in (True, False, True, False):
        waiting.add(bench.counters.max_physical_offset, 8 * grows)
        bench.now_ms += 2 * MEASURE_RESTED_MS
        bench.role.do_work(bench.now_ms)
        bench.usage = Usage(bench.usage.commit_log + 1, 10)
        bench.role.do_work(bench.now_ms + MEASURE_MS)
        assert (bench.counters.disk_used_percent.read() == bench.usage.commit_log) == grows


def test_a_writer_without_a_segment_and_no_room_is_full(bench: Bench) -> None:
    counters = bench.counters
    waiting.publish(counters.allocation_errno, errno.ENOSPC)
    bench.role.do_work(bench.now_ms)
    bench.now_ms += MEASURE_RESTED_MS
    bench.role.do_work(bench.now_ms)
    assert counters.disk_state.read() == DiskState.WARNING, "the segment in use still has room"
    waiting.publish(counters.segment_request_offset, counters.allocated_offset.read())
    bench.now_ms += MEASURE_RESTED_MS
    bench.role.do_work(bench.now_ms)
    assert counters.disk_state.read() == DiskState.FULL
    waiting.publish(counters.allocation_errno, 0)
    bench.now_ms += MEASURE_RESTED_MS
    bench.role.do_work(bench.now_ms)
    assert counters.disk_state.read() == DiskState.NORMAL


def test_used_percent_is_what_java_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        f_frsize, f_blocks, f_bfree, f_bavail = 4096, 1000, 300, 250

    assert 0 <= file_io.used_percent(tmp_path) <= 100
    assert file_io.used_percent(tmp_path / "missing") == -1
    monkeypatch.setattr(os, "statvfs", lambda _path: Found)
    assert file_io.used_percent(tmp_path) == 74  # 700 / 950 = 73.7, rounded up


# waiting, settings


def test_the_housekeeper_sleeps_until_the_log_goes_on(bench: Bench) -> None:
    bench.role.do_work(NOW)
    asking = threading.Thread(target=waiting.publish, args=(bench.counters.segment_request_offset, 1 << 40))
    asking.start()
    bench.role.idle(60_000)
    asking.join()
    assert bench.counters.segment_request_offset.read() == 1 << 40


def test_settings(tmp_path: Path) -> None:
    wished = {
        "storePathRootDir": str(tmp_path), "compat": "5", "deleteWhen": "04;16", "fileReservedTime": 48,
        "diskMaxUsedSpaceRatio": 99, "diskSpaceWarningLevelRatio": 80, "diskSpaceCleanForciblyRatio": 70,
        "cleanFileForciblyEnable": False, "cleanResourceInterval": 1, "deleteCommitLogFilesInterval": 2,
        "deleteFileBatchMax": 3, "destroyMapedFileIntervalForcibly": 4, "redeleteHangedFileInterval": 5,
    }  # fmt: skip
    policy = policy_of(from_mapping(wished)).clamped()
    assert policy == (LINES["5"].retention, {4, 16}, 48 * HOUR_MS, 95, 80, 70, False, 3, 1, 2, 4, 5)


def test_what_an_administrator_sets_decides_from_the_next_round_on(bench: Bench) -> None:
    count = len(bench.segments())
    bench.age(48, 0, 1, 2)
    bench.hour = FOUR
    bench.run(FIRST_ROUND_MS + 1000)
    assert bench.segments() == list(range(count)), "younger than 72 h"
    live_settings.change(bench.counters, {"fileReservedTime": 24, "deleteWhen": 1 << 5})
    bench.run(20_000)
    assert bench.segments() == list(range(count)), "another hour"
    bench.hour = 5
    bench.run(20_000)
    assert bench.segments() == list(range(3, count))
    assert "deleteWhen, hour 05; 48.0 h old, older than fileReservedTime 24.0 h" in bench.audit("delete")[0]["reason"]


def test_open_role_makes_a_housekeeper_from_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path / "store")
    log.fill(3)
    config, counters = (
        from_mapping({**SETTINGS, "storePathRootDir": log.root}),
        BrokerCounters.create(tmp_path / "counters"),
    )
    live_settings.publish(counters, config)
    role = open_role(config, counters)
    assert role.do_work(monotonic_ms()) == 0
    role.close()
    assert 0 <= local_hour(NOW) <= 23
