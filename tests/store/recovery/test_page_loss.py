"""Power cuts at any moment, under a model that loses any pages and names not synced: the real recovery opens them all.

    PAGE_LOSS_SEED=7 PAGE_LOSS_RUNS=100 pytest tests/store/recovery/test_page_loss.py

are others and more of them; a failure names its own seed and state.

The flusher's time and that of queue files (in ticks of a second) are the run's own, however slow the machine is.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.keeping import flusher as flusher_module
from engine.keeping.flusher import Flusher, Pace, Paces
from engine.keeping.housekeeper import Clock, Housekeeper
from engine.protocol.store.retention import Policy, Usage
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.compat import LINES
from store.files import file_io, pointer
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.index.index_file import IndexFile
from store.index.service import IndexService
from store.index.sync import IndexSync
from store.notes import flushed_mark
from store.queues import queue_set
from store.queues import sync as queue_sync
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import ConsumeQueue
from store.queues.extension import ADDRESS_ZERO, QueueExt
from store.queues.queue_set import QueueKinds
from store.recovery import dispatch, log_end
from store.recovery import index as index_recovery
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import Recovered, recover
from store.tables import json_files
from tests.harness.logs import FIRST_STORE_MS, Placed, SmallLog
from tests.harness.page_loss import PAGE_BYTES, LossyDisk

SEGMENT_BYTES, QUEUE_FILE_BYTES = 16 * 1024, 200
KINDS = QueueKinds(ext_file_bytes=400, batch_file_bytes=46 * 8)
BATCH_TOPIC = "batches"
FIRST_SEED = int(os.environ.get("PAGE_LOSS_SEED", "0"))
RUNS = int(os.environ.get("PAGE_LOSS_RUNS", "10"))
STEPS_A_RUN, STATES_A_STEP = 40, 5
STEPS = [*["put"] * 6, *["dispatch"] * 2, *["flush"] * 6, *["table"] * 2, *["expire"] * 2, "restart"]
TOPICS = ("topic", "other", BATCH_TOPIC)
NOW_MS = 1_000_000
TWICE_EVERY = 8  # of so many cuts one is followed by a second in recovery
QUERIED_EVERY = 5  # of so many keys one is looked for in the index of a state
FAR_AHEAD_MS = 1 << 42  # of wall time: all files are old
RETENTION = Policy(
    rules=LINES["4.9"].retention,
    delete_when_hours=frozenset(),
    reserved_ms=0,
    max_used_percent=75,
    warning_percent=101,
    forcibly_percent=101,
    clean_forcibly=False,
    batch_max=1,
    round_interval_ms=1,
    file_interval_ms=0,
    destroy_forcibly_ms=0,
    redelete_ms=1 << 40,
)
TICK_MS, NS_PER_MS = 1000, 1_000_000
BUFFER_ROWS = 16  # of records, in one go
TAKES_MS = [0, 0, 0, 0, 1, 20, 300]  # anything between two looks at the clock


@dataclass
class KeptLog(SmallLog):
    """Keeps what was put, also once it has expired."""

    put: bytearray = field(default_factory=bytearray)

    def write(self, offset: int, data: bytes) -> None:
        super().write(offset, data)
        self.put += bytes(max(0, self.files.base_of(offset) + self.segment_bytes - len(self.put)))
        self.put[offset : offset + len(data)] = data


class Run:
    """A broker's work on one store, step by step, without its processes: from starts to stops and kills."""

    def __init__(self, directory: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.seed, self.dice, self._directory = seed, random.Random(seed), directory
        self.log = KeptLog(directory / "store", SEGMENT_BYTES)
        self.counters = BrokerCounters.create(directory / "counters")
        (self.log.root / "batchconsumequeue" / BATCH_TOPIC / "0").mkdir(parents=True)
        self.disk = LossyDisk(self.log.root, patch)
        self.tables: list[object] = [{}]
        self.now_ms, self.starts = NOW_MS, 0
        self._file_times: dict[Path, int] = {}
        patch.setattr(flusher_module, "time", SimpleNamespace(monotonic_ns=self._monotonic_ns))
        patch.setattr(queue_sync, "look_ns", lambda: self.now_ms * NS_PER_MS)
        self._start()

    def _start(self) -> None:
        """As the supervisor does it."""
        store, regions = self.log.directory, self._directory / f"regions{self.starts}"
        self.starts += 1
        found = self.open(store)
        assert found.max_physical_offset == self.log.end, "lost without a power cut"
        self._check_queues(store.root, self.log.records, found)
        file_io.unlink(store.pointer)
        flushed_mark.begin(store, self.log.end)
        regions.mkdir()
        counters = BrokerCounters.create(regions / COUNTERS_FILE)
        waiting.publish(counters.min_physical_offset, found.min_physical_offset)
        for cursor in (counters.max_physical_offset, counters.flushed_offset, counters.reput_from_offset):
            waiting.publish(cursor, self.log.end)
        self.counters = counters
        store.mark_running()
        self.index = self.index_at(store.root)
        self.dispatcher = Dispatcher(
            self.log.files, store.consumequeue, QUEUE_FILE_BYTES, index=self.index, kinds=KINDS
        )
        self.flusher = Flusher(
            counters,
            self.log.files,
            store,
            QUEUE_FILE_BYTES,
            sync_flush=self.seed % 2 == 0,
            paces=Paces(Pace(500, 1, 2000), Pace(200, 1, 1500)),
            index=IndexSync(self.index),
        )
        self.disk_percent = 0
        self.housekeeper = Housekeeper(
            counters,
            self.log.files,
            store,
            RETENTION,
            self.now_ms,
            queue_interval_ms=1,
            usage=lambda: Usage(self.disk_percent, self.disk_percent),
            clock=Clock(lambda now_ms: FAR_AHEAD_MS + now_ms),
        )
        said = {"pid": os.getpid(), "start_time": self.starts, "region_directory": str(regions), "settings": {}}
        self._pointer_fd = pointer.write(store.root, store.commitlog, said)

    def _end(self, *, is_killed: bool) -> None:
        """A stop in order, or a kill some time after the last flush."""
        if not is_killed:
            self._dispatch()
            self.housekeeper.close()
        self.flusher.close()
        if is_killed:
            self._put_some()
            if self.dice.random() < 0.5:
                self._dispatch()
        self.dispatcher.close()
        if not is_killed:
            self.log.directory.mark_stopped()
            file_io.unlink(self.log.directory.pointer)
        os.close(self._pointer_fd)

    @staticmethod
    def index_at(root: Path) -> IndexService:
        return IndexService(root / "index", 7, 12)

    @classmethod
    def open(cls, directory: StoreDirectory) -> Recovered:
        index = cls.index_at(directory.root)
        return recover(directory, SEGMENT_BYTES, QUEUE_FILE_BYTES, index=index, kinds=KINDS)

    def step(self) -> None:
        dice = self.dice
        what = dice.choice(STEPS)
        if what == "put":
            self._put_some()
        elif what == "dispatch":
            self._dispatch()
        elif what == "flush":
            self.now_ms += dice.choice([1, 150, 600, 2500])
            self.flusher.do_work(self.now_ms)
        elif what == "expire":
            self._expire()
        elif what == "restart":
            self._end(is_killed=dice.random() < 0.5)
            self._start()
        else:
            value = {"version": len(self.tables)}
            self.tables.append(value)
            json_files.write(self.log.directory.config / "topics.json", value)

    def _put_some(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            self._put()
        waiting.publish(self.counters.max_physical_offset, self.log.end)

    def _dispatch(self) -> None:
        reached = self.dispatcher.dispatch(self.counters.reput_from_offset.read(), self.log.end)
        self._tell_file_times()
        waiting.publish(self.counters.reput_from_offset, reached)

    def _expire(self) -> None:
        """The oldest segment goes if it may, then what queues and index hold of it."""
        self._dispatch()  # it is ahead of retention by days
        self.disk_percent = 100
        for _ in range(self.dice.randrange(1, 8)):
            self.now_ms += RETENTION.round_interval_ms
            self.disk_percent *= 1 - self.housekeeper.do_work(self.now_ms)

    def _monotonic_ns(self) -> int:
        self.now_ms += self.dice.choice(TAKES_MS)
        return self.now_ms * NS_PER_MS

    def _tell_file_times(self) -> None:
        """Give what was written since the last time the tick of now."""
        for path in self.log.root.glob("*consumequeue*/*/*/*"):
            if path.stat().st_mtime_ns != self._file_times.get(path):
                self._file_times[path] = self.now_ms // TICK_MS * TICK_MS * NS_PER_MS
                os.utime(path, ns=(0, self._file_times[path]))

    def _put(self) -> None:
        dice, number = self.dice, len(self.log.records)
        text = f"k{number}" + "p" * dice.choice([0, 0, 30, 700, 1400])
        end = dice.choice(["", "", "", "\0"])  # a text may end with one
        self.log.append(
            dice.choice(TOPICS),
            dice.randbytes(dice.choice([0, 5, 200, 900, 1800])),
            properties=f"KEYS\x01k{number}\x02more\x01{text}{end}".encode(),
            store_timestamp_ms=FIRST_STORE_MS + 10 * number,
        )

    def close(self) -> None:
        self._end(is_killed=False)
        self.disk.close()

    def cut_again(self, root: Path, dice: random.Random, target: Path) -> None:
        """The power goes a second time, while a broker opens what the first cut left, or just behind that."""
        with pytest.MonkeyPatch.context() as patch:
            disk = LossyDisk(root, patch)

            def cut() -> None:
                if not target.exists() and dice.random() < 1 / 8:
                    disk.crash(dice, target)

            disk.before_sync = cut
            try:
                found = self.open(StoreDirectory(root))
                flushed_mark.begin(StoreDirectory(root), found.max_physical_offset)  # as the supervisor does next
                if not target.exists():
                    disk.crash(dice, target)
            finally:
                disk.close()

    # what has to hold

    def check(self, root: Path, state: int) -> None:
        """Open that state as a broker would, and hold it against what was put and promised."""
        promised = self.counters.flushed_offset.read()
        found = self.open(StoreDirectory(root))
        begin, end = found.min_physical_offset, found.max_physical_offset
        assert begin <= self.counters.min_physical_offset.read(), "a segment is lost that has not expired"
        assert promised <= end <= self.log.end, f"{promised} was on disk, the log ends at {end}"
        assert end in self._boundaries(), "within a record"
        log = SmallLog(root, SEGMENT_BYTES)
        for base in log.files.base_offsets():
            kept = min(max(end - base, 0), SEGMENT_BYTES)
            segment = log.read(base, SEGMENT_BYTES)
            assert segment[:kept] == self.log.put[base : base + kept], "a message that was never put"
            assert not any(segment[kept:]), "something behind the end"
        records = [record for record in self.log.records if record.end <= end]
        self._check_queues(root, records, found)
        self._check_index(root, records, begin, state)
        assert json_files.read(root / "config" / "topics.json") in self.tables
        if state % 2:
            return
        flushed_mark.begin(StoreDirectory(root), end)  # as the supervisor does next
        again = self.open(StoreDirectory(root))
        assert (again.max_physical_offset, again.truncated_bytes) == (end, 0), "opened twice"

    def _check_index(self, root: Path, records: list[Placed], begin: int, state: int) -> None:
        """All of its entries; some are looked for, too, in each state others."""
        index = self.index_at(root)
        held: list[int] = []
        for file in (IndexFile.open(path, index.geometry) for path in index.files()):
            held += file.entries[1 : file.header.index_count]["physical_offset"].tolist()
        offsets = [record.offset for record in records]
        assert held == sorted(set(held) & set(offsets)), "index"
        assert set(held) >= {offset for offset in offsets if offset >= begin}, "index"
        for number in range(state % QUERIED_EVERY, len(self.log.records), QUERIED_EVERY):
            record = self.log.records[number]
            asked = index.query_offset(record.topic, f"k{number}", 64, 0, 1 << 62)
            assert asked.count(record.offset) == (record.offset in held), f"key of record {number}"

    def _boundaries(self) -> set[int]:
        ends = {record.end for record in self.log.records}
        return ends | {0, self.log.end} | {end - end % SEGMENT_BYTES for end in ends}

    @staticmethod
    def _check_queues(root: Path, records: list[Placed], found: Recovered) -> None:
        for topic in TOPICS:
            every = [record for record in records if record.topic == topic]
            own = [record for record in every if record.offset >= found.min_physical_offset]
            is_batch = topic == BATCH_TOPIC
            kind, file_bytes = ConsumeQueue, QUEUE_FILE_BYTES
            if is_batch:
                kind, file_bytes = BatchConsumeQueue, KINDS.batch_file_bytes
            queue = kind(root / ("batchconsumequeue" if is_batch else "consumequeue") / topic / "0", file_bytes)
            assert found.queue_offsets.get((topic, 0), 0) == len(every), topic
            entries = queue.entries(0, queue.end_below(1 << 62))
            entries = entries[entries["physical_offset"] >= found.min_physical_offset]
            told = list(zip(entries["physical_offset"].tolist(), entries["size"].tolist(), strict=True))
            assert told == [(record.offset, record.size) for record in own], topic
            if own and not is_batch:
                ext = QueueExt(root / "consumequeue_ext" / topic / "0", KINDS.ext_file_bytes)
                for record, address in zip(own, entries["tags_code"].tolist(), strict=True):
                    unit = ext.read(address - ADDRESS_ZERO)
                    assert unit is not None, f"no unit of {record}"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pages and buffers in proportion to so small a log."""
    monkeypatch.setattr(log_end, "PAGE_BYTES", PAGE_BYTES)
    monkeypatch.setattr(flusher_module, "PAGE_BYTES", PAGE_BYTES)
    monkeypatch.setattr(dispatch, "BATCH_ROWS", BUFFER_ROWS)
    monkeypatch.setattr(queue_set, "ROWS_MAX", BUFFER_ROWS)
    monkeypatch.setattr(index_recovery, "ROWS", BUFFER_ROWS)
    monkeypatch.setattr(log_end, "ROWS", BUFFER_ROWS)
    return monkeypatch


@pytest.mark.parametrize(
    "seed",
    [FIRST_SEED, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FIRST_SEED + 1, FIRST_SEED + RUNS))],
)
def test_every_state_that_a_power_cut_may_leave_is_opened(
    seed: int, tmp_path: Path, region_dir: Path, small: pytest.MonkeyPatch
) -> None:
    run = Run(region_dir, seed, small)
    states = 0

    def crash_now() -> None:
        nonlocal states
        if run.disk.is_paused:
            return
        target, dice = region_dir / "crashed", random.Random(1000 * seed + states)
        run.disk.crash(dice, target)
        run.disk.is_paused = True
        try:
            if states % TWICE_EVERY == 0:
                first, target = target, region_dir / "crashed-again"
                run.cut_again(first, dice, target)
                shutil.rmtree(first)
            run.check(target, states)
        except Exception as error:
            shutil.copytree(target, tmp_path / "crashed")
            raise AssertionError(f"seed {seed}, state {states} ({tmp_path / 'crashed'}): {error!r}") from error
        shutil.rmtree(target)
        states += 1
        run.disk.is_paused = False

    run.disk.before_sync = lambda: crash_now() if run.dice.random() < 0.1 else None
    for _ in range(STEPS_A_RUN):
        run.step()
        run.disk.observe()
        for _ in range(STATES_A_STEP):
            crash_now()
    run.disk.before_sync = lambda: None
    run.close()
    assert states >= STEPS_A_RUN * STATES_A_STEP
