"""Scans while a writer appends, a slave receives, segments are deleted, and scans that nobody takes to the end.

A scan's rows are those below the log's end at its plan, whatever happens to the log meanwhile. Nothing here waits for
a time: what happens, happens between two batches.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ipc import waiting
from ipc.counters import Counters
from spark_bridge.records.columns import BY_NAME
from spark_bridge.scanning import scan
from store.columns.records import Records
from store.errors import SegmentRemoved
from store.files.pointer import COUNTERS_FILE
from store.files.segment import file_name
from tests.spark_bridge.columnar.side_files import write_side_files
from tests.spark_bridge.plan.test_inventory import run_broker
from tests.spark_bridge.stores import SmallStore

SEGMENT, JOIN_SECONDS = 4096, 60
THREADS = pytest.mark.parametrize("threads", [1, 3])


class GrowingStore(SmallStore):
    """A store whose segments are written in place, as a broker writes them: readers have them mapped."""

    def _write(self, data: bytes) -> None:
        self.write_at(self.end, data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Write bytes of one segment, which is made if it is missing."""
        base = offset - offset % self.segment_bytes
        path = self.root / "commitlog" / file_name(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(file, self.segment_bytes)
            os.pwrite(file, data, offset - base)
        finally:
            os.close(file)


class Published:
    """The cursors of a broker that this process claims to be."""

    def __init__(self, store: SmallStore, directory: Path) -> None:
        (store.root / "commitlog").mkdir(parents=True, exist_ok=True)
        run_broker(store, directory, 0, 0)
        self._end = Counters.attach(directory / COUNTERS_FILE, writable=True).cursor("max_physical_offset")

    def publish(self, end: int) -> None:
        waiting.publish(self._end, end)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "store", SEGMENT)


def fill(store: SmallStore, messages: int) -> None:
    for number in range(messages):
        store.put("orders", bytes([65 + number % 26]) * (number % 300), queue_id=number % 3)


def offsets_of(reader: pa.RecordBatchReader) -> list[int]:
    return [at for batch in reader for at in batch.column(0).to_pylist()]


def take(reader: pa.RecordBatchReader, found: list[int], batches: int | None = None) -> None:
    """Add the offsets of some batches, or of all that are left."""
    for batch in itertools.islice(reader, batches):
        found += batch.column(0).to_pylist()


def scanned(store: SmallStore, threads: int = 1, **options: str) -> pa.RecordBatchReader:
    return scan(store.root, columns=["physicalOffset", "body"], threads=threads, **options)


@THREADS
def test_a_scan_ends_where_the_log_ended_at_its_plan_while_a_writer_appends(
    growing: GrowingStore, tmp_path: Path, threads: int
) -> None:
    broker = Published(growing, tmp_path)
    begun: list[tuple[pa.RecordBatchReader, list[int], list[int]]] = []
    for _ in range(8):
        fill(growing, 30)
        broker.publish(growing.end)
        begun.append((scanned(growing, threads), list(growing.offsets), []))
        growing.put("orders", b"not published")
        for reader, _, found in begun:
            take(reader, found, batches=1)
    for reader, expected, found in begun:
        assert found + offsets_of(reader) == expected
    assert len(begun[-1][1]) == 8 * 30 + 7


@THREADS
def test_a_scan_gives_the_whole_records_that_a_slave_had_at_its_plan_while_it_receives(
    growing: GrowingStore, tmp_path: Path, threads: int
) -> None:
    fill(growing, 40)
    log = b"".join(path.read_bytes() for path in sorted((growing.root / "commitlog").iterdir()))[: growing.end]
    slave, chance, end = GrowingStore(tmp_path / "slave", SEGMENT), random.Random(5), 0
    broker, older = Published(slave, tmp_path), None
    ends = [offset + size for offset, size, *_ in growing.records]
    while end < len(log):  # frames end anywhere inside of records, never beyond a segment
        until = min(len(log), end + chance.randrange(1, 300), end - end % SEGMENT + SEGMENT)
        slave.write_at(end, log[end:until])
        end = until
        broker.publish(end)
        whole = growing.offsets[: int(np.searchsorted(ends, end, "right"))]
        assert offsets_of(scanned(slave, threads)) == whole, end
        if older is None:
            older = scanned(slave, threads), whole
        elif chance.randrange(3) == 0:
            reader, expected = older
            assert offsets_of(reader) == expected
            older = None
    assert whole == growing.offsets


@THREADS
@pytest.mark.parametrize("may_lose", ["false", "true"])
def test_what_retention_deletes_under_a_scan_is_named_or_left_out_by_whole_segments(
    growing: GrowingStore, threads: int, may_lose: str
) -> None:
    fill(growing, 200)
    by_segment: dict[int, list[int]] = {}
    for offset in growing.offsets:
        by_segment.setdefault(offset - offset % SEGMENT, []).append(offset)
    bases = list(by_segment)
    reader = scanned(growing, threads, splitBytes=str(SEGMENT), failOnDataLoss=str(may_lose == "false").lower())
    found = reader.read_next_batch().column(0).to_pylist()
    deleted = bases[:-2]
    for base in deleted:
        (growing.root / "commitlog" / file_name(base)).unlink()
    error = None
    try:
        take(reader, found)
    except SegmentRemoved as removed:
        error = removed
    given = [base for base in bases if by_segment[base][0] in found]
    assert found == [at for base in given for at in by_segment[base]]
    if threads == 1:
        assert given == (bases[:1] if may_lose == "false" else [bases[0], *bases[-2:]])
    if may_lose == "true":
        assert error is None and given[-2:] == bases[-2:]
    elif error is not None:
        assert file_name(bases[len(given)]) in str(error) and bases[len(given)] in deleted
    else:
        assert given == bases, "threads had them all open"


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(JOIN_SECONDS)
    return not any(thread.is_alive() for thread in threads)


class Stopped(Exception):
    """The consumer's own error."""


def closes(reader: pa.RecordBatchReader) -> None:
    reader.read_next_batch()
    reader.close()


def drops(reader: pa.RecordBatchReader) -> None:
    reader.read_next_batch()


def fails(reader: pa.RecordBatchReader) -> None:
    for batch in reader:
        if len(batch):
            raise Stopped


def is_interrupted(reader: pa.RecordBatchReader) -> None:
    for batch in reader:
        if len(batch):
            raise KeyboardInterrupt


def takes_two_over_the_c_interface(reader: pa.RecordBatchReader) -> None:
    other = pa.RecordBatchReader._import_from_c_capsule(reader.__arrow_c_stream__())
    other.read_next_batch()
    other.read_next_batch()
    other.close()


CONSUMERS = (closes, drops, fails, is_interrupted, takes_two_over_the_c_interface)


@pytest.mark.parametrize("stops", CONSUMERS)
@pytest.mark.parametrize("has_side_files", [False, True])
def test_a_consumer_that_stops_early_ends_the_threads_and_leaves_no_file_open(
    growing: GrowingStore, stops: Callable[[pa.RecordBatchReader], None], has_side_files: bool
) -> None:
    fill(growing, 300)
    if has_side_files:
        write_side_files(growing.root, end=growing.end)
    whole = offsets_of(scanned(growing))  # segments are mapped now, and stay so
    gc.collect()
    before, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    reader = scanned(growing, 3, splitBytes=str(SEGMENT))
    assert set(threading.enumerate()) == before
    reader.read_next_batch()
    begun = [thread for thread in threading.enumerate() if thread not in before]
    assert len(begun) == 3
    with pytest.raises((Stopped, KeyboardInterrupt)) if stops in (fails, is_interrupted) else nullcontext():
        stops(reader)
    del reader
    gc.collect()
    assert ended(begun)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert offsets_of(scanned(growing, 3, splitBytes=str(SEGMENT))) == whole == growing.offsets


def test_a_scan_that_is_dropped_in_the_middle_of_its_batches_ends_its_threads(
    growing: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread is known to be inside of a batch when the consumer goes."""
    fill(growing, 300)
    column, inside, is_gone = BY_NAME["physicalOffset"], threading.Semaphore(0), threading.Event()
    first = iter([True])

    def held(records: Records) -> pa.Array:
        if next(first, False):
            return column.build(records)
        inside.release()
        assert is_gone.wait(JOIN_SECONDS)
        return column.build(records)

    monkeypatch.setitem(BY_NAME, "physicalOffset", column._replace(build=held))
    before = set(threading.enumerate())
    reader = scanned(growing, 3, splitBytes=str(SEGMENT))
    assert reader.read_next_batch().num_rows
    begun = [thread for thread in threading.enumerate() if thread not in before]
    for _ in begun:
        assert inside.acquire(timeout=JOIN_SECONDS)
    assert len(begun) == 3
    del reader
    assert all(thread.is_alive() for thread in begun)
    is_gone.set()
    assert ended(begun)
    assert not inside.acquire(blocking=False), "no thread began another batch"
