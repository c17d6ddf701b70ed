"""Retention in running brokers: files vanish under producers and readers; a disk fills up, empties itself, goes on."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.errors import MessagesRefused, ServiceNotAvailable
from engine.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.store.retention import DISK_FULL_BIT, DiskState
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from engine.shared_memory.cursors import ROLES, BrokerCounters
from ipc import waiting
from ipc.counters import Cursor
from store.files.segment_files import SegmentFiles
from store.message.record import Message
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading import extent
from store.upkeep import leases, snapshot_state, snapshots
from store.verify.verification import Verification
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.whole_lines import whole_lines
from tools.common.local_broker import LocalBroker

SEGMENT, QUEUE_FILE = 64 * 1024, 2000
DEADLINE_SECONDS = 240.0
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 16 * 1024,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": 20,
    "flushCommitLogThoroughInterval": 20,
    "flushIntervalConsumeQueue": 20,
    "flushConsumeQueueThoroughInterval": 20,
    "deleteWhen": ";".join(str(hour) for hour in range(24)),
    "fileReservedTime": 1,
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 100,  # this machine's disk shall not matter
    "cleanResourceInterval": 50,
    "deleteCommitLogFilesInterval": 5,
    "deleteConsumeQueueFilesInterval": 5,
}


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def await_value(cursor: Cursor, is_reached: Callable[[int], bool]) -> int:
    end, seen = time.monotonic() + DEADLINE_SECONDS, cursor.read()
    while not is_reached(seen):
        assert time.monotonic() < end, cursor
        seen = waiting.await_change(cursor, seen, 50)
    return seen


def await_files(counters: BrokerCounters, gone: list[Path]) -> None:
    """Until none of these is there any more."""
    end = time.monotonic() + DEADLINE_SECONDS
    while any(path.exists() for path in gone):
        assert time.monotonic() < end, gone
        waiting.await_change(counters.deleted_segments, counters.deleted_segments.read(), 20)


def audit(store: Path, event: str, kind: str) -> list[str]:
    lines = [json.loads(line) for line in whole_lines(store / "slipstream.audit.jsonl")]
    return [line["path"] for line in lines if (line["event"], line["kind"]) == (event, kind)]


class Reader(threading.Thread):
    """Reads the newest readable range from its first byte on, over and over, until told to stop."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store, self.stopping = store, threading.Event()
        self.passes = self.overtaken = self.wrong = 0

    def run(self) -> None:
        files = SegmentFiles(self.store / "commitlog", SEGMENT)
        while not self.stopping.is_set():
            limits = extent.readable_range(self.store)
            for base in range(limits.min_physical_offset, limits.max_physical_offset, SEGMENT):
                try:
                    with files.open(base) as segment:
                        begins = segment.view[4:8] in (b"\xda\xa3\x20\xa7", bytes(4))
                        self.wrong += not begins and base < limits.max_physical_offset
                except FileNotFoundError:
                    assert extent.readable_range(self.store).min_physical_offset > base
                    self.overtaken += 1
            self.passes += 1


def test_old_files_go_in_order_while_a_producer_appends_and_a_reader_reads(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", **SETTINGS) as broker:
        store, counters = broker.store, counters_of(broker.store)
        reader, sent = Reader(store), 0
        with Producer(store, timeout=DEADLINE_SECONDS) as producer:

            def send(count: int) -> int:
                for queue_id in (0, 1):
                    keys = [f"k{number}" for number in range(sent + queue_id, sent + count, 2)]
                    producer.send_batch("topic", [b"x" * 900] * len(keys), keys=keys, queue_id=queue_id)
                return sent + count

            sent = send(700)
            old = counters.max_physical_offset.read() // SEGMENT - 1
            await_value(counters.flushed_offset, lambda offset: offset >= old * SEGMENT)
            await_value(counters.reput_from_offset, lambda offset: offset >= old * SEGMENT)
            first_index = min((store / "index").iterdir())
            reader.start()
            for number in range(old):
                at = time.time() - 3600 - 10
                os.utime(store / "commitlog" / f"{number * SEGMENT:020d}", (at, at))
            while counters.min_physical_offset.read() < old * SEGMENT:
                sent = send(10)
            await_that(lambda: reader.passes or not reader.is_alive(), "it was read")
            reader.stopping.set()
            reader.join()
        assert reader.passes and not reader.wrong
        begin = counters.min_physical_offset.read()
        await_value(counters.deleted_segments, lambda count: count >= begin // SEGMENT)
        await_files(counters, [*(store / "consumequeue" / "topic" / name / f"{0:020d}" for name in "01"), first_index])
        end = counters.max_physical_offset.read()
        assert [counters.restarts[role].read() for role in ROLES] == [0] * len(ROLES)
    assert audit(store, "delete", "segment") == [f"commitlog/{n * SEGMENT:020d}" for n in range(begin // SEGMENT)]
    kept = messages_of(store, end)
    assert kept[0].physical_offset == begin
    for queue_id in (0, 1):
        offsets = [message.queue_offset for message in kept if message.queue_id == queue_id]
        assert offsets == list(range(offsets[0], sent // 2)), "all that was not expired, to the last message"
        queue = ConsumeQueue.open(store / "consumequeue" / "topic" / str(queue_id), QUEUE_FILE)
        assert 0 < queue.bases()[0] <= offsets[0] * 20 // QUEUE_FILE * QUEUE_FILE, "queue files follow"
    assert audit(store, "delete", "queue") and audit(store, "delete", "index")
    created, deleted = (set(audit(store, event, "queue")) for event in ("create", "delete"))
    there = {
        f"consumequeue/{topic}/{queue_id}/{base:020d}"
        for topic, queue_id, path in queue_directories(store / "consumequeue")
        for base in ConsumeQueue.open(path, QUEUE_FILE).bases()
    }
    assert created - deleted == there
    again(tmp_path, store, end, sent)


def again(directory: Path, store: Path, end: int, sent: int) -> None:
    """The store opens, is sound, and goes on."""
    assert list(Verification(store).findings()) == []
    with LocalBroker(directory / "m", **{**SETTINGS, "fileReservedTime": 72}) as broker:
        assert counters_of(store).max_physical_offset.read() == end
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            assert producer.send("topic", b"more", queue_id=0).queue_offset == sent // 2


def test_a_leased_segment_stays_for_the_interval_and_then_goes_by_force(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", **SETTINGS, destroyMapedFileIntervalForcibly=300) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            producer.send_batch("topic", [b"x" * 900] * 300, queue_id=0)
        await_value(counters.flushed_offset, lambda offset: offset >= 2 * SEGMENT)
        first = broker.store / "commitlog" / f"{0:020d}"
        with leases.acquire(broker.store, 5, 10**9):
            os.utime(first, (1, 1))
            await_value(counters.min_physical_offset, lambda offset: offset == SEGMENT)
            await_value(counters.deleted_segments, lambda count: count == 1)
    lines = [json.loads(line) for line in (broker.store / "slipstream.audit.jsonl").read_text().splitlines()]
    condemned, deleted = (next(line for line in lines if line["event"] == event) for event in ("condemn", "delete"))
    assert deleted["forced"] and deleted["at_ms"] - condemned["at_ms"] >= 300 - 2, "times are cut to milliseconds"
    assert condemned["path"] == deleted["path"] == f"commitlog/{0:020d}"


def test_a_snapshot_keeps_segments_across_a_restart_until_it_is_dropped(tmp_path: Path) -> None:
    kept = f"commitlog/{0:020d}"
    settings = {**SETTINGS, "destroyMapedFileIntervalForcibly": 1}
    with LocalBroker(tmp_path / "m", **settings) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            producer.send_batch("topic", [b"x" * 900] * 300, queue_id=0)
        await_value(counters.flushed_offset, lambda offset: offset >= 2 * SEGMENT)
        taken = snapshot_state.take(broker.store, "nightly", 3_600_000)
        assert (taken.end_offset, taken.offsets["topic"][0]) == (counters.max_physical_offset.read(), 300)
        os.utime(broker.store / kept, (1, 1))
        await_that(lambda: audit(broker.store, "keep", "segment") == [kept], "the housekeeper would delete it")
    with LocalBroker(tmp_path / "m", **settings) as broker:
        counters = counters_of(broker.store)
        await_that(lambda: audit(broker.store, "keep", "segment") == [kept, kept], "the next one would, too")
        assert counters.min_physical_offset.read() == 0
        snapshots.drop(broker.store, "nightly")
        await_value(counters.deleted_segments, lambda count: count == 1)
    assert not audit(broker.store, "condemn", "segment")


def test_a_shorter_time_set_by_an_administrator_lets_files_go_at_once(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", **{**SETTINGS, "fileReservedTime": 72}) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            producer.send_batch("topic", [b"x" * 900] * 300, queue_id=0)
        await_value(counters.flushed_offset, lambda offset: offset >= 3 * SEGMENT)
        await_value(counters.listen_port, lambda port: port > 0)
        for number in (0, 1):
            at = time.time() - 3600 * 48
            os.utime(broker.store / "commitlog" / f"{number * SEGMENT:020d}", (at, at))
        with RemotingClient(f"127.0.0.1:{broker.port}", timeout=DEADLINE_SECONDS) as client:
            with pytest.raises(PeerRefused, match="fileReservedTime: a whole number"):
                client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"deleteWhen=5\nfileReservedTime=soon\n")
            assert counters.deleted_segments.read() == 0 and counters.file_reserved_hours.read() == 72
            client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24\n")
            await_value(counters.deleted_segments, lambda count: count == 2)
            assert b"\nfileReservedTime=24\n" in bytes(client.ask(RequestCode.GET_BROKER_CONFIG).body)
        assert counters.min_physical_offset.read() == 2 * SEGMENT
        assert [counters.restarts[role].read() for role in ROLES] == [0] * len(ROLES)
    assert audit(broker.store, "delete", "segment") == [f"commitlog/{n * SEGMENT:020d}" for n in (0, 1)]
    assert "set fileReservedTime=24 (it was 72) here and in its file" in broker.log.read_text()
    assert "fileReservedTime=24" in (tmp_path / "m" / "broker.properties").read_text().splitlines()


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


FULL_DISK = {
    **SETTINGS,
    "mappedFileSizeCommitLog": 256 * 1024,
    "fileReservedTime": 72,
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceWarningLevelRatio": 90,
    "diskSpaceCleanForciblyRatio": 85,
}


def send_until(producer: Producer, refused: tuple[type[Exception], ...], count: int) -> int:
    """Send until it is refused; how many were taken."""
    for number in range(count):
        try:
            assert producer.send("disk", b"x" * 10_000, queue_id=0).status is PutMessageStatus.PUT_OK
        except refused:
            return number
    return count


def test_a_disk_that_fills_up_is_read_only_until_room_is_made(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        off = {**FULL_DISK, "cleanFileForciblyEnable": False}
        with LocalBroker(disk / "b", **off) as broker:
            counters, ballast = counters_of(broker.store), disk / "ballast"
            with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
                taken = send_until(producer, (), 10)
                with ballast.open("wb") as file:
                    free = os.statvfs(disk)
                    os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 100) * free.f_frsize))
                await_value(counters.disk_state, lambda state: state >= DiskState.READ_ONLY)
                await_value(counters.running_flags, lambda flags: flags == DISK_FULL_BIT)
                with pytest.raises(ServiceNotAvailable, match=r"SERVICE|nothing was sent") as refused:
                    producer.send("disk", b"x")
                assert refused.value.code == "SERVICE_NOT_AVAILABLE"
                ballast.unlink()
                await_value(counters.disk_state, lambda state: state == DiskState.NORMAL)
                result = producer.send("disk", b"again", queue_id=0)
                assert result.queue_offset == taken, "what was refused left no gap"
            await_value(counters.reput_from_offset, lambda offset: offset == counters.max_physical_offset.read())
            assert [counters.restarts[role].read() for role in ROLES] == [0] * len(ROLES)
            assert counters.flush_errno.read() == 0


def kept_by(store: Path, counters: BrokerCounters) -> list[Message]:
    """What is left of the log; nothing where another file went meanwhile, or is about to go."""
    begin = counters.min_physical_offset.read()
    try:
        kept = messages_of(store, counters.max_physical_offset.read())
    except FileNotFoundError:
        return []
    return kept if kept[0].physical_offset == begin == counters.min_physical_offset.read() else []


def test_forced_cleaning_keeps_a_small_disk_going(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk, LocalBroker(disk / "b", **FULL_DISK) as broker:
        counters, taken, refusals = counters_of(broker.store), 0, 0
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            end = time.monotonic() + DEADLINE_SECONDS
            while taken < 2500:  # three times what the disk holds
                assert time.monotonic() < end, list(counters.region)
                more = send_until(producer, (ServiceNotAvailable, MessagesRefused), 2500 - taken)
                taken, refusals = taken + more, refusals + 1
        await_value(counters.reput_from_offset, lambda offset: offset == counters.max_physical_offset.read())
        assert [counters.restarts[role].read() for role in ROLES] == [0] * len(ROLES)
        assert counters.flush_errno.read() == 0
        kept = await_that(lambda: kept_by(broker.store, counters), "all but what retention takes just now is read")
        assert kept[0].physical_offset > 0
        assert [message.queue_offset for message in kept] == list(range(taken - len(kept), taken))
