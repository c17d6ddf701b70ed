"""What the driver finds: the cursors of a broker that runs, else the log's own end; and which queues it trusts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ipc import waiting
from ipc.counters import Counters
from ipc.process import start_time
from spark_bridge.options.read import parse_options
from spark_bridge.plan.inventory import find_extent, find_queues, selection_of
from spark_bridge.split.splits import Selection, plan
from store.errors import NotAStore
from store.files import file_times
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.files.segment import file_name
from store.reading import extent
from tests.spark_bridge.stores import SmallStore, read_rows

LONG_AGO_NS = 1_700_000_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """Two segments of messages in queues; its log ends in a record."""
    made = SmallStore(tmp_path / "store", 2048)
    for number in range(20):
        made.put(("orders", "payments")[number % 2], b"x" * number, queue_id=number % 3)
    made.dispatch()
    return made


def run_broker(store: SmallStore, directory: Path, reput: int, end: int) -> None:
    """This process claims to be the store's broker."""
    counters = Counters.create(directory / COUNTERS_FILE, 8)
    for label, value in (("min_physical_offset", 0), ("max_physical_offset", end), ("reput_from_offset", reput)):
        waiting.publish(counters.allocate(label, kind="cursor", owner="test"), value)
    pointer = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "settings": {}}
    StoreDirectory(store.root).write_pointer({**pointer, "region_directory": str(directory)})


def offsets_read(store: SmallStore, selection: Selection) -> list[int]:
    log = find_extent(str(store.root))
    queues, scanned = find_queues(str(store.root), log, selection)
    splits = plan(log, queues, scanned, selection, None, 2)
    return sorted(row["physicalOffset"] for row in read_rows(splits, ["physicalOffset"]))


def test_a_running_broker_tells_its_cursors(store, tmp_path):
    end, reput = store.offsets[15], store.offsets[11]
    run_broker(store, tmp_path, reput, end)
    log = find_extent(str(store.root))
    assert (log.min_physical_offset, log.reput_from_offset, log.max_physical_offset) == (0, reput, end)
    assert offsets_read(store, Selection()) == store.offsets[:15]
    assert offsets_read(store, Selection(frozenset(["orders"]))) == store.offsets[:15:2]


def test_a_slave_whose_log_ends_inside_a_record_shows_what_is_whole(store, tmp_path):
    run_broker(store, tmp_path, store.offsets[18], store.end - 1)
    assert offsets_read(store, Selection()) == store.offsets[:19]
    assert offsets_read(store, Selection(frozenset(["payments"]))) == store.offsets[1:19:2]


def test_a_pointer_of_a_dead_broker_does_not_count(store, tmp_path):
    run_broker(store, tmp_path, 0, store.offsets[3])
    fields = {"pid": os.getpid(), "start_time": 1, "region_directory": str(tmp_path), "settings": {}}
    StoreDirectory(store.root).write_pointer(fields)
    assert find_extent(str(store.root)).max_physical_offset == store.end


def test_a_store_at_rest_trusts_its_queues_and_one_that_was_killed_does_not(store):
    assert find_extent(str(store.root)).reput_from_offset == store.end
    StoreDirectory(store.root).abort.touch()
    log = find_extent(str(store.root))
    assert (log.reput_from_offset, log.max_physical_offset) == (0, store.end)
    assert offsets_read(store, Selection(frozenset(["orders"]))) == store.offsets[::2]


def set_times(store: SmallStore, ns: int) -> None:
    for path in (store.root / "commitlog").iterdir():
        os.utime(path, ns=(ns, ns))


def test_a_store_at_rest_is_looked_at_again_when_it_changed(store, monkeypatch):
    set_times(store, LONG_AGO_NS)
    first = find_extent(str(store.root))
    with monkeypatch.context() as patch:
        patch.setattr(extent, "readable_range", None)
        assert find_extent(str(store.root)) is first
    store.put("orders")
    set_times(store, LONG_AGO_NS + 1)
    assert find_extent(str(store.root)).max_physical_offset == store.end > first.max_physical_offset


def test_another_store_at_the_inodes_with_the_times_and_lengths_of_a_deleted_one_is_looked_at(store):
    """As a copy that keeps its times may come to lie."""
    set_times(store, LONG_AGO_NS)
    first = find_extent(str(store.root))
    changed = {path: path.stat().st_ctime_ns for path in (store.root / "commitlog").iterdir()}
    shutil.rmtree(store.root / "consumequeue" / "payments")
    while any(path.stat().st_ctime_ns == ctime_ns for path, ctime_ns in changed.items()):
        set_times(store, LONG_AGO_NS)  # the clock behind a file's times goes on in ticks
    assert find_extent(str(store.root)).reput_from_offset < first.reput_from_offset == store.end


def test_a_store_that_changes_within_a_tick_of_its_files_clock_is_looked_at_again(store, monkeypatch):
    monkeypatch.setattr(file_times, "SETTLED_NS", 1 << 62)
    set_times(store, LONG_AGO_NS)
    first = find_extent(str(store.root))
    store.put("orders")
    set_times(store, LONG_AGO_NS)
    assert find_extent(str(store.root)).max_physical_offset == store.end > first.max_physical_offset


def test_a_blank_record_behind_the_last_message_is_not_worth_a_scan(tmp_path):
    made = SmallStore(tmp_path, 1024)
    while made.end < 1024:
        made.put("t", b"x" * 100)
    made.records.pop()
    first_of_second = made.end - (made.end - 1024)
    made.dispatch()
    log = find_extent(str(made.root))
    assert log.reput_from_offset == first_of_second < log.max_physical_offset


def test_an_empty_store_is_no_rows_and_no_store_is_an_error(tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(bytes(4096))
    log = find_extent(str(tmp_path))
    assert log.max_physical_offset == 0
    assert plan(log, [], frozenset(), Selection(), None, 4) == []
    with pytest.raises(NotAStore):
        find_extent(str(tmp_path / "commitlog"))


def test_where_and_other_options_select_together():
    where = '{"topic":["b","c"],"queueId":1,"partition":[1,2],"tags":["x","y"]}'
    given = {"topic": "a,b", "startingOffsets": '{"a":{"0":3}}', "subExpression": "y || z", "where": where}
    selection = selection_of(parse_options({"path": "/s", **given}))
    assert selection.topics == {"b"}
    assert selection.queue_ids == {1}
    assert selection.tags == {"y"}
    assert selection.bounds_by_queue() == {("a", 0): (3, None)}


def test_topics_that_plain_queues_do_not_hold_are_looked_for_in_the_log(store):
    (store.root / "batchconsumequeue" / "payments" / "0").mkdir(parents=True)
    (store.root / "consumequeue" / "%LMQ%light" / "0").mkdir(parents=True)
    log = find_extent(str(store.root))
    wanted = frozenset(["orders", "payments", "%LMQ%light", "unknown"])
    queues, scanned = find_queues(str(store.root), log, Selection(wanted))
    assert {queue.topic for queue in queues} == {"orders", "%LMQ%light"}
    assert scanned == {"payments", "unknown"}
