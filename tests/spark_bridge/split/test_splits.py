"""Plans: whatever the limits, the cuts and the selection, every record wanted is read exactly once."""

from __future__ import annotations

import pytest

from spark_bridge.plan.inventory import find_extent, find_queues
from spark_bridge.split.splits import LogExtent, QueueSplit, RangeSplit, Selection, Split, plan
from store.errors import QueueEntriesRemoved
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, golden_lines, read_rows, unpack_golden

EVERYTHING = Selection()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    """Three segments, three topics, five queues."""
    made = SmallStore(tmp_path_factory.mktemp("store"), 2048)
    for number in range(33):
        topic = ("orders", "payments", "orders-old")[number % 3]
        made.put(topic, bytes([65 + number]) * (7 * number % 90), queue_id=number % 2)
    made.dispatch()
    return made


def planned(store: SmallStore, log: LogExtent, selection: Selection, split_bytes: int | None = None) -> list[Split]:
    queues, scanned = find_queues(str(store.root), log, selection)
    return plan(log, queues, scanned, selection, split_bytes, partitions=3)


def offsets_read(splits: list[Split]) -> list[int]:
    return sorted(row["physicalOffset"] for row in read_rows(splits, ["physicalOffset"]))


def boundaries(store: SmallStore) -> list[int]:
    return [*store.offsets, store.end]


def test_everything_is_read_once_however_it_is_cut(store):
    for split_bytes in (11, 100, 1000, 5000):
        for reput in (0, store.offsets[9], store.end):
            splits = planned(store, store.extent(reput), EVERYTHING, split_bytes)
            assert offsets_read(splits) == store.offsets, (split_bytes, reput)
            assert all(isinstance(split, RangeSplit) for split in splits)


def test_queues_tell_a_record_start_near_each_cut(store):
    splits = planned(store, store.extent(), EVERYTHING, 300)
    assert len(splits) > 6
    assert all(split.start - split.chain_from < 300 for split in splits if isinstance(split, RangeSplit))


def test_a_topic_is_read_once_wherever_the_dispatcher_is(store):
    wanted = [offset for offset, _, topic, *_ in store.records if topic == "orders"]
    for reput in boundaries(store):
        splits = planned(store, store.extent(reput), Selection(frozenset(["orders"])))
        assert offsets_read(splits) == wanted, reput


def test_nothing_above_the_planned_end_is_read_although_the_queues_hold_it(store):
    for end in boundaries(store):
        below = [offset for offset in store.offsets if offset < end]
        log = store.extent(reput=end, end=end)
        assert offsets_read(planned(store, log, EVERYTHING)) == below
        wanted = [offset for offset, _, topic, *_ in store.records if topic == "payments" and offset < end]
        assert offsets_read(planned(store, log, Selection(frozenset(["payments"])))) == wanted


def test_a_dispatched_topic_is_read_through_its_queues_only(store):
    splits = planned(store, store.extent(), Selection(frozenset(["orders"]), frozenset([1])))
    assert [type(split) for split in splits] == [QueueSplit]
    assert {(piece.topic, piece.queue_id) for piece in splits[0].pieces} == {("orders", 1)}  # type: ignore[union-attr]


def test_queue_ids_without_a_topic_are_looked_for_in_the_log(store):
    wanted = [offset for offset, _, _, queue_id, _ in store.records if queue_id == 1]
    splits = planned(store, store.extent(store.offsets[20]), Selection(queue_ids=frozenset([1])))
    assert offsets_read(splits) == wanted


def test_a_topic_without_queues_of_its_own_is_looked_for_in_the_log(store, tmp_path):
    bare = SmallStore(tmp_path, 2048)
    for offset, _, topic, queue_id, _ in store.records:
        assert bare.put(topic, b"", queue_id) <= offset
    for reput in (0, bare.offsets[5], bare.end):
        splits = planned(bare, bare.extent(reput), Selection(frozenset(["payments", "nowhere"])))
        assert offsets_read(splits) == [offset for offset, _, topic, *_ in bare.records if topic == "payments"]


def test_offsets_of_a_queue_bound_it_alone_dispatched_or_not(store):
    bounds = (("orders", 0, 2, 4), ("payments", 1, 3, None))
    selection = Selection(frozenset(["orders", "payments"]), None, bounds)
    wanted = [
        offset
        for offset, _, topic, queue_id, queue_offset in store.records
        if topic in ("orders", "payments")
        and not ((topic, queue_id) == ("orders", 0) and queue_offset not in (2, 3))
        and not ((topic, queue_id) == ("payments", 1) and queue_offset < 3)
    ]
    for reput in boundaries(store):
        assert offsets_read(planned(store, store.extent(reput), selection)) == wanted, reput


def test_a_log_that_lost_its_oldest_segment_is_read_from_its_first_byte_on(store):
    log = LogExtent(store.extent().commitlog, 2048, 2048, store.end, store.end)
    wanted = [(offset, topic) for offset, _, topic, *_ in store.records if offset >= 2048]
    assert offsets_read(planned(store, log, EVERYTHING)) == [offset for offset, _ in wanted]
    by_queue = planned(store, log, Selection(frozenset(["orders"])))
    assert offsets_read(by_queue) == [offset for offset, topic in wanted if topic == "orders"]


def test_queues_are_packed_into_as_many_splits_as_asked_for(store, monkeypatch):
    monkeypatch.setattr("spark_bridge.split.splits.QUEUE_COST_MIN", 1)
    selection = Selection(frozenset(["orders", "payments"]))
    queues, scanned = find_queues(str(store.root), store.extent(), selection)
    for partitions in (1, 3, 8):
        splits = plan(store.extent(), queues, scanned, selection, None, partitions)
        assert partitions <= len(splits) <= 2 * partitions
        assert len(offsets_read(splits)) == 22


def test_an_empty_log_needs_no_split(store):
    log = LogExtent(store.extent().commitlog, 2048, 0, 0, 0)
    assert plan(log, [], frozenset(), EVERYTHING, None, 4) == []


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_rocketmqs_queues_give_the_rows_that_a_scan_finds(version, name, tmp_path):
    root = unpack_golden(version, name, tmp_path)
    log = find_extent(root)
    messages = golden_lines(version, name, "message")
    assert log.max_physical_offset == messages[-1]["physicalOffset"] + messages[-1]["size"]
    queues = {line["topic"]: line for line in golden_lines(version, name, "queue")}
    for topic in queues.keys() | {line["topic"] for line in messages}:
        selection = Selection(frozenset([topic]))
        found = offsets_read(plan(log, *find_queues(root, log, selection), selection, None, 2))
        if topic.startswith("%LMQ%"):  # records of other topics, as RocketMQ's queue of that name has them
            assert found == [offset for offset, _size, _tags_code in queues[topic]["entries"]], topic
            continue
        assert found == [
            line["physicalOffset"]
            for line in messages
            for _ in range(int(line["properties"].get("INNER_NUM", 1)))
            if line["topic"] == topic
        ], topic


def test_queue_files_that_expired_since_the_plan_are_reported(tmp_path):
    store = SmallStore(tmp_path, 1 << 16)
    for _ in range(150):
        store.put("orders")
    store.dispatch()
    splits = planned(store, store.extent(), Selection(frozenset(["orders"])))
    assert len(offsets_read(splits)) == 150
    (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()
    with pytest.raises(QueueEntriesRemoved, match="their messages expired") as told:
        offsets_read(splits)
    assert told.value.code == "QUEUE_ENTRIES_REMOVED"
