"""Plans of one replica read on another one: behind the plan, catching up, torn, beginning later, or not there."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ipc import waiting
from ipc.counters import Counters
from ipc.process import start_time
from spark_bridge.options.read import parse_options
from spark_bridge.options.rows import DEFAULT_ROWS
from spark_bridge.plan.planner import plan_read
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.replica import replica
from spark_bridge.replica.name_servers import NoReplicaHere
from spark_bridge.replica.replica import ReplicaBeginsLater, ReplicaBehind
from spark_bridge.split.splits import QueueSplit, RangeSplit, RecordSplit, Split
from spark_bridge.stream.reader import RocketMQStreamReader
from store.errors import SegmentRemoved, SegmentSizeMismatch
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.reading import extent
from tests.spark_bridge.stores import SmallStore, read_rows

SEGMENT = 2048
AT_ONCE = replace(DEFAULT_ROWS, replica_wait_s=0.0)
PATIENT = replace(DEFAULT_ROWS, replica_wait_s=120.0)
MODES = (AT_ONCE, replace(AT_ONCE, mode="permissive"), replace(AT_ONCE, fail_on_data_loss=False))
COUNT = 40


def filled(store: SmallStore, count: int) -> SmallStore:
    for number in range(len(store.records), count):
        store.put(("orders", "payments")[number % 2], b"%03d" % number * 20, queue_id=number % 3)
    store.dispatch()
    return store


@pytest.fixture
def ahead(tmp_path: Path) -> SmallStore:
    """The store that is planned on."""
    return filled(SmallStore(tmp_path / "ahead", SEGMENT), COUNT)


@pytest.fixture
def here(tmp_path: Path, ahead: SmallStore) -> Path:
    """Where hosts have their replicas: the one that was planned, as long as nobody else moves in."""
    link = tmp_path / "here"
    link.symlink_to(ahead.root)
    return link


def move_in(here: Path, root: Path) -> None:
    """From now on we are on the host of that replica."""
    here.unlink()
    here.symlink_to(root)


def plan(here: Path, **options: str) -> list[Split]:
    return plan_read(parse_options({"path": str(here), **options}))


def offsets(splits: list[Split], rows: object = AT_ONCE) -> list[int]:
    names = ["physicalOffset", "_error"] if rows.permissive else ["physicalOffset"]  # type: ignore[attr-defined]
    return sorted(row["physicalOffset"] for row in read_rows(splits, names, rows))  # type: ignore[arg-type]


SELECTIONS = ({}, {"topic": "orders"}, {"topic": "payments", "maxRecordsPerPartition": "3"})


@pytest.mark.parametrize("rows", MODES)
@pytest.mark.parametrize("count", [0, 1, 5, 16, 17, 18, 30, COUNT - 2])
@pytest.mark.parametrize("options", SELECTIONS)
def test_a_replica_that_lags_is_reported_with_both_offsets_not_as_damage(ahead, here, tmp_path, rows, count, options):
    splits = plan(here, **options)
    behind = filled(SmallStore(tmp_path / "behind", SEGMENT), count)
    behind.root.mkdir(exist_ok=True)
    move_in(here, behind.root)
    with pytest.raises(ReplicaBehind) as told:
        offsets(splits, rows)
    assert told.value.code == "REPLICA_BEHIND"
    assert told.value.end < told.value.planned
    assert f"up to offset {told.value.end}," in str(told.value) and "\n" not in str(told.value)
    assert f"up to {told.value.planned}," in str(told.value)
    move_in(here, ahead.root)
    assert len(offsets(splits, rows)) == (COUNT if not options else COUNT // 2)


def test_the_segment_where_the_replica_ends_may_be_read_before_and_not_behind(ahead, here, tmp_path):
    splits = plan(here, splitBytes="4096")
    assert all(isinstance(split, RangeSplit) for split in splits)
    behind = SmallStore(tmp_path / "behind", SEGMENT)
    for number in range(COUNT):
        if ahead.records[number][0] >= 2 * SEGMENT:
            break
        filled(behind, number + 1)
    assert not (behind.root / "commitlog" / file_name(2 * SEGMENT)).exists()
    shutil.copy(ahead.root / "commitlog" / file_name(SEGMENT), behind.root / "commitlog")  # with its blank record
    move_in(here, behind.root)
    whole = [split for split in splits if split.base_offset < 2 * SEGMENT]  # type: ignore[union-attr]
    assert offsets(whole) == [offset for offset in ahead.offsets if offset < 2 * SEGMENT]
    with pytest.raises(ReplicaBehind) as told:
        offsets(splits[len(whole) :])
    assert told.value.end == 2 * SEGMENT
    (behind.root / "commitlog" / file_name(2 * SEGMENT)).write_bytes(bytes(SEGMENT))  # made beforehand
    with pytest.raises(ReplicaBehind):
        offsets(splits[len(whole) :])


def test_half_a_record_is_no_record(ahead, here, tmp_path):
    """Its head is there, and its body is zeros: nobody who only looks at heads would notice."""
    splits = plan(here)
    torn = SmallStore(tmp_path / "torn", SEGMENT)
    shutil.copytree(ahead.root, torn.root)
    last, size = ahead.records[-1][:2]
    path = torn.root / "commitlog" / file_name(last - last % SEGMENT)
    content = bytearray(path.read_bytes())
    content[last % SEGMENT + 100 : last % SEGMENT + size] = bytes(size - 100)
    path.write_bytes(content)
    StoreDirectory(torn.root).abort.touch()  # it was killed as it received
    move_in(here, torn.root)
    with pytest.raises(ReplicaBehind) as told:
        offsets(splits)
    assert (told.value.end, told.value.planned) == (last, ahead.end)


def test_records_by_key_are_waited_for_too(ahead, here, tmp_path):
    (log,) = {split.log for split in plan(here)}
    wanted = tuple(ahead.offsets[-3:])
    split = RecordSplit(log, wanted, plan(here)[0].selection)
    assert offsets([split]) == list(wanted)
    move_in(here, filled(SmallStore(tmp_path / "behind", SEGMENT), COUNT - 2).root)
    with pytest.raises(ReplicaBehind):
        offsets([split])


class Broker:
    """This process claims to be the broker of a store."""

    def __init__(self, root: Path, directory: Path, reput: int, end: int) -> None:
        directory.mkdir()
        counters = Counters.create(directory / COUNTERS_FILE, 8)
        first = next(base for base, _ in named_files(root / "commitlog"))
        for label, value in (("min_physical_offset", first), ("max_physical_offset", 0), ("reput_from_offset", 0)):
            waiting.publish(counters.allocate(label, kind="cursor", owner="test"), value)
        self.end, self.reput = counters.cursor("max_physical_offset"), counters.cursor("reput_from_offset")
        self.is_at(reput, end)
        pointer = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "settings": {"brokerRole": "SLAVE"}}
        StoreDirectory(root).write_pointer({**pointer, "region_directory": str(directory)})

    def is_at(self, reput: int, end: int) -> None:
        waiting.publish(self.end, end)
        waiting.publish(self.reput, reput)


@pytest.mark.parametrize("options", SELECTIONS)
def test_a_broker_tells_how_far_its_replica_is_and_one_that_catches_up_is_waited_for(ahead, here, tmp_path, options):
    splits = plan(here, **options)
    wanted = offsets(splits)
    slave = shutil.copytree(ahead.root, tmp_path / "slave")
    broker = Broker(slave, tmp_path / "regions", 0, ahead.offsets[20])
    move_in(here, slave)
    with pytest.raises(ReplicaBehind):
        offsets(splits)
    waits = threading.Event()
    polled = []

    def read() -> None:
        polled.append(offsets(splits, PATIENT))
        waits.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    broker.is_at(ahead.end, ahead.end)
    assert waits.wait(120)
    assert polled == [wanted]


def test_a_broker_whose_shared_memory_is_not_to_be_seen_here_is_done_without(ahead, here, tmp_path):
    splits = plan(here)
    slave = filled(SmallStore(tmp_path / "slave", SEGMENT), COUNT - 3)
    Broker(slave.root, tmp_path / "regions", 0, 0)
    (tmp_path / "regions").rename(tmp_path / "elsewhere")  # as in a container with a /dev/shm of its own
    StoreDirectory(slave.root).abort.touch()
    move_in(here, slave.root)
    with pytest.raises(ReplicaBehind) as told:
        offsets(splits)
    assert told.value.end == slave.end
    filled(slave, COUNT)  # it went on
    assert offsets(splits) == ahead.offsets


@pytest.mark.parametrize("is_seen", [True, False])
def test_queues_of_a_dispatcher_that_is_behind_have_not_lost_their_entries(ahead, here, tmp_path, is_seen):
    """The log is all there; the queue is not: that is no retention (QUEUE_ENTRIES_REMOVED), and may not pass as one.

    Nor for a broker that is not seen: it was killed, or it starts and receives before it serves.
    """
    splits = plan(here, topic="orders")
    assert all(isinstance(split, QueueSplit) for split in splits)
    slave = filled(SmallStore(tmp_path / "slave", SEGMENT), COUNT - 10)
    shutil.rmtree(slave.root / "commitlog")
    shutil.copytree(ahead.root / "commitlog", slave.root / "commitlog")
    if is_seen:
        Broker(slave.root, tmp_path / "regions", slave.end, ahead.end)
    else:
        StoreDirectory(slave.root).abort.touch()
    move_in(here, slave.root)
    for rows in MODES:
        with pytest.raises(ReplicaBehind, match=r"queue \d of topic 'orders' up to offset \d+, the plan wants"):
            offsets(splits, rows)


def test_a_stream_reads_no_damage_from_a_replica_that_lags(ahead, here, tmp_path):
    options = {"path": str(here), "replicaWaitSeconds": "0"}
    reader = RocketMQStreamReader(schema_of(["physicalOffset"]), options)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    move_in(here, filled(SmallStore(tmp_path / "behind", SEGMENT), 7).root)
    with pytest.raises(ReplicaBehind):
        [list(reader.read(part)) for part in parts]
    move_in(here, ahead.root)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == COUNT
    reader.stop()


def test_a_replica_whose_log_begins_later_has_an_error_code_of_its_own(ahead, here, tmp_path, caplog):
    ranges, queues = plan(here), plan(here, topic="orders")
    young = shutil.copytree(ahead.root, tmp_path / "young")
    (young / "commitlog" / file_name(0)).unlink()
    move_in(here, young)
    for splits in (ranges, queues):
        with pytest.raises(ReplicaBeginsLater) as told:
            offsets(splits)
        assert told.value.code == "REPLICA_BEGINS_LATER"
        assert f"begins at offset {SEGMENT}, the plan begins at 0;" in str(told.value)
    lossy = replace(AT_ONCE, fail_on_data_loss=False)
    assert offsets(ranges, lossy) == [offset for offset in ahead.offsets if offset >= SEGMENT]
    assert "REPLICA_BEGINS_LATER" in caplog.text
    move_in(here, ahead.root)
    (ahead.root / "commitlog" / file_name(0)).unlink()
    (ahead.root / "abort").touch()
    again = [
        replace(split, log=replace(split.log, planned=replica.place_of(here / "commitlog", is_written=True)))
        for split in ranges
    ]
    with pytest.raises(SegmentRemoved) as removed:
        offsets(again)
    assert removed.value.code == "SEGMENT_REMOVED", "retention on the very store that was planned"


def test_a_replica_with_other_segments_and_a_missing_one_are_reported(ahead, here, tmp_path):
    splits = plan(here)
    move_in(here, filled(SmallStore(tmp_path / "other", SEGMENT * 3), COUNT + 40).root)
    with pytest.raises(SegmentSizeMismatch, match=f"{3 * SEGMENT} bytes long, but segments here have {SEGMENT}"):
        offsets(splits)
    here.unlink()
    with pytest.raises(NoReplicaHere, match=f"{here} is not a directory on .*, where this task of Spark runs"):
        offsets(splits)


def test_each_slave_may_end_at_another_place_of_a_record(ahead, here, tmp_path):
    """The master died as it sent a record: its slaves have all whole ones, and of that one each another part."""
    last = ahead.records[-1][0]
    ends = {"first": last + 90, "second": last + 40}
    for name, end in ends.items():
        slave = shutil.copytree(ahead.root, tmp_path / name)
        Broker(slave, tmp_path / f"{name}-regions", last, end)
    move_in(here, tmp_path / "first")
    splits = plan(here)
    move_in(here, tmp_path / "second")
    assert offsets(splits) == ahead.offsets[:-1]


def test_what_was_planned_here_is_not_looked_for_again(ahead, here, monkeypatch):
    splits = plan(here)
    monkeypatch.setattr(extent, "readable_range", None)
    assert offsets(splits) == ahead.offsets
