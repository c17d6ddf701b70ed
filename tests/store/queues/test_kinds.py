"""Every kind of queue from the log alone: real brokers' files to the byte, extensions, batches, multi-dispatch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.compat import LINES
from store.errors import QueueGap
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message.record import SysFlag
from store.queues.batch_consume_queue import BATCH_DTYPE, BatchConsumeQueue
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue
from store.queues.extension import QueueExt
from store.queues.queue_set import QueueKinds, kinds_found
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import recover
from store.tables import json_files
from store.tables import tables as broker_tables
from store.tables.served_topics import ServedTopics
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents
from tests.store.golden import COMPAT, STORES, unpack

ENDS = {
    ("rocketmq-4.9.7", "master"): 803932, ("rocketmq-5.3.3", "master"): 936619,
    ("rocketmq-4.9.7", "features"): 48497, ("rocketmq-5.3.3", "features"): 83401,
}  # fmt: skip
GOLDEN_QUEUE_FILE_BYTES, GOLDEN_EXT_FILE_BYTES = 4000, 65536
QUEUES = ("consumequeue", "batchconsumequeue")
BATCH_FILE_BYTES = 4 * BATCH_DTYPE.itemsize


def golden_kinds(version: str, name: str) -> QueueKinds:
    """The settings that the golden stores' brokers had."""
    ext = GOLDEN_EXT_FILE_BYTES if name == "features" else 0
    return QueueKinds(ext_file_bytes=ext, multi_dispatch=True, lmq=True, rules=LINES[COMPAT[version]].queues)


def rebuild(root: Path, version: str, name: str) -> None:
    files = SegmentFiles(root / "commitlog", segment_bytes_of(root / "commitlog"))
    dispatcher = Dispatcher(files, root / "consumequeue", GOLDEN_QUEUE_FILE_BYTES, kinds=golden_kinds(version, name))
    assert dispatcher.dispatch(0, ENDS[version, name]) == ENDS[version, name]
    assert dispatcher.findings == []


@pytest.mark.parametrize("version, name", STORES)
def test_a_store_shows_which_kinds_it_has(version: str, name: str, tmp_path: Path) -> None:
    found = kinds_found(unpack(version, name, tmp_path), LINES[COMPAT[version]].queues)
    wanted = golden_kinds(version, name)
    assert found == (wanted if name == "features" else QueueKinds(rules=wanted.rules))


@pytest.mark.parametrize("version, name", STORES)
def test_all_queues_of_a_real_store_come_out_byte_for_byte(version: str, name: str, tmp_path: Path) -> None:
    real, root = unpack(version, name, tmp_path / "real"), unpack(version, name, tmp_path / "ours")
    for directory in QUEUES:
        shutil.rmtree(root / directory, ignore_errors=True)
    rebuild(root, version, name)
    for directory in (*QUEUES, "consumequeue_ext"):
        assert contents(root / directory) == contents(real / directory)
    assert bool(contents(real / "consumequeue_ext")) == (name == "features")


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_without_its_units_a_real_store_lacks_filter_bitmaps_and_nothing_else(version: str, tmp_path: Path) -> None:
    real, root = unpack(version, "features", tmp_path / "real"), unpack(version, "features", tmp_path / "ours")
    for directory in (*QUEUES, "consumequeue_ext"):
        shutil.rmtree(root / directory, ignore_errors=True)
    rebuild(root, version, "features")
    assert contents(root / "batchconsumequeue") == contents(real / "batchconsumequeue")
    for directory in ("consumequeue", "consumequeue_ext"):
        ours, theirs = contents(root / directory), contents(real / directory)
        assert set(ours) == set(theirs)
        assert {path for path in ours if ours[path] != theirs[path]} == {
            path for path in ours if path.startswith("featSql/")
        }
    for queue_id in "01":  # the topic with a filter: the same units but for the bitmaps
        at = Path("consumequeue_ext/featSql", queue_id)
        made, found = (list(QueueExt(store / at, GOLDEN_EXT_FILE_BYTES).units()) for store in (root, real))
        assert [unit[2:4] for unit in made] == [unit[2:4] for unit in found]
        assert {len(unit.bitmap) for unit in made} == {0}
        assert {len(unit.bitmap) for unit in found} == {14}


@pytest.mark.parametrize("version, name", STORES)
def test_recovery_builds_what_is_missing_of_every_kind(version: str, name: str, tmp_path: Path) -> None:
    real, root = unpack(version, name, tmp_path / "real"), unpack(version, name, tmp_path / "ours")
    for directory in QUEUES:
        shutil.rmtree(root / directory, ignore_errors=True)
    found = recover(
        StoreDirectory(root),
        segment_bytes_of(root / "commitlog"),
        GOLDEN_QUEUE_FILE_BYTES,
        kinds=golden_kinds(version, name),
    )
    assert found.max_physical_offset == ENDS[version, name]
    for directory in (*QUEUES, "consumequeue_ext"):
        assert contents(root / directory) == contents(real / directory)
    if (version, name) == ("rocketmq-5.3.3", "features"):
        assert (found.queue_offsets["featBcq", 0], found.queue_offsets["featBcq", 1]) == (40, 23)
        assert found.queue_offsets["%LMQ%one", 0] > 0


def entries_of(log: SmallLog, topic: str = "topic", queue_id: int = 0) -> list[tuple[int, int, int]]:
    queue = ConsumeQueue.open(log.directory.consumequeue / topic / str(queue_id), QUEUE_FILE_BYTES)
    return [tuple(entry) for entry in queue.entries(0, queue.max_offset).tolist()]


# batch queues


def batch_builder(log: SmallLog, **options: bool) -> Dispatcher:
    kinds = QueueKinds(batch_file_bytes=BATCH_FILE_BYTES)
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=kinds, **options)


def units_of(log: SmallLog) -> list[tuple[int, int, int]]:
    """(log offset, first queue offset, messages)."""
    queue = BatchConsumeQueue.open(log.root / "batchconsumequeue" / "topic" / "0")
    units = queue.entries(0, queue.max_offset)
    assert set(units["compact_offset"].tolist()) <= {-1}
    return list(zip(*(units[name].tolist() for name in ("physical_offset", "base_offset", "count")), strict=True))


def append_batch(log: SmallLog, base: int, count: int | str, **fields: object) -> int:
    inner = {"INNER_BASE": str(base), "INNER_NUM": str(count)}
    placed = log.append(queue_offset=base, properties=inner, sys_flag=int(SysFlag.INNER_BATCH), **fields)  # type: ignore[arg-type]
    return placed.offset


def as_batch_topic(log: SmallLog) -> None:
    (log.root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"topic":{"attributes":{"queue.type":"BatchCQ"}}}}'
    )


def test_a_batch_queue_has_a_unit_for_every_record(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    as_batch_topic(log)
    single = log.append(queue_offset=0).offset
    offsets = [append_batch(log, base, count) for base, count in ((1, 4), (5, 3), (8, 2), (10, 7))]
    batch_builder(log).dispatch(0, log.end)
    expected = [(single, 0, 1), *zip(offsets, (1, 5, 8, 10), (4, 3, 2, 7), strict=True)]
    assert units_of(log) == expected
    queue = BatchConsumeQueue.open(log.root / "batchconsumequeue" / "topic" / "0")
    assert (queue.bases(), queue.messages_end(5)) == ([0, BATCH_FILE_BYTES], 17)
    assert queue.entries(1, 2)["store_timestamp_ms"][0] == 1_700_000_000_001
    assert not (log.directory.consumequeue / "topic").exists()
    before = contents(log.root)
    for record in log.records:
        batch_builder(log).dispatch(record.offset, log.end)
        assert contents(log.root) == before
    again = batch_builder(log)
    for _ in range(2):
        again.dispatch(0, log.end)
        assert contents(log.root) == before


def test_an_unknown_topic_is_what_its_first_record_says(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    offset = append_batch(log, 0, 2)
    log.append("plain")
    log.append("plain", sys_flag=int(SysFlag.INNER_BATCH))
    batch_builder(log).dispatch(0, log.end)
    assert units_of(log) == [(offset, 0, 2)]
    assert [place for place, _, _ in entries_of(log, "plain")] == [record.offset for record in log.records[1:]]


@pytest.mark.parametrize("count", ["x", "0", "-1", "40000"])
def test_a_batch_of_no_sound_number_is_named(count: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    append_batch(log, 0, 2)
    odd = append_batch(log, 2, count)
    dispatcher = batch_builder(log)
    dispatcher.dispatch(0, log.end)
    assert str(odd) in dispatcher.findings[0]
    assert len(units_of(log)) == (2 if count in ("x", "40000") else 1)  # no number: as one message


def test_a_gap_in_a_batch_queue_is_refused_when_asked(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    as_batch_topic(log)
    append_batch(log, 3, 2)
    with pytest.raises(QueueGap):
        batch_builder(log, refuse_gaps=True).dispatch(0, log.end)
    assert contents(log.root / "batchconsumequeue") == {}
    batch_builder(log).dispatch(0, log.end)
    assert units_of(log) == [(0, 3, 2)]


def test_a_damaged_batch_queue_is_built_again(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(6):
        append_batch(log, 3 * number, 3)
    kinds = QueueKinds(batch_file_bytes=BATCH_FILE_BYTES)
    log.directory.mark_stopped()
    recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, kinds=kinds)
    before = units_of(log)
    path = log.root / "batchconsumequeue/topic/0" / f"{BATCH_FILE_BYTES:020d}"
    content = bytearray(path.read_bytes())
    content[36] = 0xFF  # a count below zero
    path.write_bytes(content)
    found = recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, kinds=kinds)
    assert "consume queues are rebuilt" in found.findings[0]
    assert units_of(log) == before
    assert found.queue_offsets == {("topic", 0): 18}


@given(st.binary(max_size=BATCH_FILE_BYTES), st.binary(max_size=BATCH_FILE_BYTES), st.integers(0, 1 << 62))
def test_any_bytes_are_units_up_to_a_sound_end(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes, log_end: int
) -> None:
    directory = tmp_path_factory.mktemp("queue")
    for number, content in enumerate((first, second)):
        (directory / f"{number * BATCH_FILE_BYTES:020d}").write_bytes(content.ljust(BATCH_FILE_BYTES, b"\0"))
    queue = BatchConsumeQueue.open(directory)
    end = queue.sound_end(log_end)
    assert 0 <= end <= queue.max_offset <= 8
    units = queue.entries(0, end)
    assert (units["count"] > 0).all() and (units["base_offset"] >= 0).all()
    assert all(int(unit["physical_offset"]) + int(unit["size"]) <= log_end for unit in units)
    assert queue.messages_end(end) == (int(units[-1]["base_offset"]) + int(units[-1]["count"]) if end else 0)


@pytest.mark.parametrize("dtype, queue", [(CQ_DTYPE, ConsumeQueue), (BATCH_DTYPE, BatchConsumeQueue)])
def test_an_offset_at_the_end_of_all_numbers_is_not_sound(
    dtype: np.dtype[np.void], queue: type[ConsumeQueue], tmp_path: Path
) -> None:
    entries = np.zeros(2, dtype)
    entries["size"], entries["physical_offset"] = 100, [0, (1 << 63) - 50]
    if queue is BatchConsumeQueue:
        entries["count"] = 1
    (tmp_path / ("0" * 20)).write_bytes(entries.tobytes())
    assert queue._sound_count(entries, 1 << 40) == 1
    assert queue.open(tmp_path).sound_end(1 << 40) == 1


def test_a_batch_topic_that_nobody_configured_is_served_as_one(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    append_batch(log, 0, 2)
    log.append("plain")
    batch_builder(log).dispatch(0, log.end)
    path = log.root / "config" / "topics.json"
    served = ServedTopics(path, line=LINES["5"])
    served.note([("topic", 0), ("plain", 0)])
    served.save(1)
    assert broker_tables.batch_topics(json_files.read(path)) == {"topic"}
    assert broker_tables.topic_attributes(json_files.read(path))["plain"] == {}


# multi-dispatch


def lmq_builder(log: SmallLog, *, lmq: bool = True, five: bool = True, refuse_gaps: bool = False) -> Dispatcher:
    kinds = QueueKinds(multi_dispatch=True, lmq=lmq, rules=LINES["5" if five else "4.9"].queues)
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=kinds, refuse_gaps=refuse_gaps)


def further(names: str, offsets: str) -> dict[str, str]:
    return {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets, "TAGS": "t"}


def built_queues(log: SmallLog) -> dict[str, list[int]]:
    """The records' numbers in every queue."""
    numbers = {record.offset: number for number, record in enumerate(log.records)}
    found = {}
    for path in sorted(log.directory.consumequeue.glob("*/*")):
        queue = ConsumeQueue.open(path)
        places = queue.entries(0, queue.max_offset)["physical_offset"].tolist()
        found[f"{path.parent.name}/{path.name}"] = [numbers[place] for place in places]
    return found


def test_a_message_goes_to_every_queue_that_it_names(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append(queue_id=1, properties=further("%LMQ%a,%LMQ%b", "0,0"))
    log.append(queue_id=2, properties=further("%LMQ%b,", "1,"))
    log.append(queue_id=1, sys_flag=4, properties=further("%LMQ%a", "1"))
    log.append(queue_id=1, properties=further("%LMQ%a,%LMQ%a", "1,1"))
    lmq_builder(log).dispatch(0, log.end)
    assert built_queues(log) == {"%LMQ%a/0": [0, 3], "%LMQ%b/0": [0, 1], "topic/1": [0, 3], "topic/2": [1]}
    before = contents(log.root)
    for record in log.records:
        lmq_builder(log).dispatch(record.offset, log.end)
        assert contents(log.root) == before
    plain = Dispatcher(log.files, tmp_path / "off" / "consumequeue", QUEUE_FILE_BYTES)
    plain.dispatch(0, log.end)
    assert sorted(path.name for path in (tmp_path / "off" / "consumequeue").iterdir()) == ["topic"]


def test_the_versions_differ_about_names_and_topics(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("%RETRY%g", properties=further("%LMQ%a", "0"))
    log.append("rmq_sys_x", properties=further("%LMQ%a", "0"))
    log.append(queue_id=3, properties=further("a/b,other", "0,0"))
    lmq_builder(log).dispatch(0, log.end)
    own = {"%RETRY%g/0": [0], "rmq_sys_x/0": [1], "topic/3": [2]}
    assert built_queues(log) == {**own, "other/3": [2]}
    shutil.rmtree(log.directory.consumequeue)
    old = lmq_builder(log, lmq=False, five=False)
    old.dispatch(0, log.end)
    assert built_queues(log) == {**own, "%LMQ%a/0": [0], "other/3": [2]}
    assert any("'a/b'" in finding for finding in old.findings)


@pytest.mark.parametrize("names, offsets", [("%LMQ%a,%LMQ%b", "1"), ("%LMQ%a", "x"), ("a,%LMQ%b", ",0")])
def test_properties_that_contradict_each_other_are_named_and_left_out(names: str, offsets: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append(properties=further(names, offsets))
    log.append(properties=further("%LMQ%a", " "))
    dispatcher = lmq_builder(log)
    dispatcher.dispatch(0, log.end)
    assert built_queues(log) == {"topic/0": [0, 1]}
    assert ["record at 0" in finding for finding in dispatcher.findings] == [True]


def test_messages_of_batch_queues_go_nowhere_else(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    as_batch_topic(log)
    log.append(properties=further("%LMQ%a", "0"))
    lmq_builder(log).dispatch(0, log.end)
    assert built_queues(log) == {}
    assert len(units_of(log)) == 1


def test_a_queue_of_own_and_further_messages_is_in_the_logs_order(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("topic", queue_offset=0)
    log.append("other", properties=further("topic,new", "1,0"))
    log.append("topic", queue_offset=2)
    log.append("other", properties=further("topic,new", "3,1"))
    dispatcher = lmq_builder(log)
    dispatcher.dispatch(0, log.end)
    assert built_queues(log) == {"topic/0": [0, 1, 2, 3], "other/0": [1, 3], "new/0": [1, 3]}
    assert dispatcher.findings == []


def test_recovery_builds_multi_dispatch_queues_only_where_they_are_on(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(4):
        log.append(properties=further("%LMQ%a", str(number)))
    lmq_builder(log).dispatch(0, log.end)
    before = contents(log.directory.consumequeue)
    kinds = QueueKinds(multi_dispatch=True, lmq=True)
    (log.directory.consumequeue / "topic/0" / ("0" * 20)).write_bytes(b"short")
    off = recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES)
    assert "1 consume queues are rebuilt" in off.findings[0]
    assert contents(log.directory.consumequeue) == before
    shutil.rmtree(log.directory.consumequeue / "%LMQ%a")
    found = recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, kinds=kinds)
    assert contents(log.directory.consumequeue) == before
    assert found.queue_offsets == {("%LMQ%a", 0): 4, ("topic", 0): 4}
