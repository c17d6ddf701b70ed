"""Spark on side files against the rows in place: selections, conditions, mixed freshness, and what goes in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from spark_bridge.parquet_reads.parts import SideFiles
from spark_bridge.scanning import scan
from spark_bridge.split.splits import LogExtent, RangeSplit, Selection
from store.files.segment import file_name
from store.upkeep.side_files import data_path, manifest_path
from tests.spark_bridge.columnar.side_files import SEGMENT_BYTES, START_MS, make, write_side_files
from tests.spark_bridge.stores import SmallStore, unpack_golden

FIXED = ["topic", "queueId", "queueOffset", "physicalOffset", "tags", "bornTimestamp", "storeHost", "brokerName"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    store = make(tmp_path_factory.mktemp("a store"))
    write_side_files(store.root, group_rows=16, end=store.end)
    return store


@pytest.fixture
def made(template: SmallStore, tmp_path: Path) -> SmallStore:
    """A copy under a name that is a pattern to Spark."""
    shutil.copytree(template.root, tmp_path / "[st]ore {1}")
    return replace(template, root=tmp_path / "[st]ore {1}", records=list(template.records))


def in_place(root: Path, columns: list[str], **asked: Any) -> pa.Table:
    return scan(root, columns=columns, columnarSidecar=False, **asked).read_all().sort_by("physicalOffset")


def both(
    spark: SparkSession, root: Path, columns: list[str], where: str | None = None, **asked: Any
) -> tuple[DataFrame, pa.Table]:
    """The frame over side files, whose rows are those in place."""
    frame = spark_bridge.read(spark, root, columns=columns, where=where, columnarSidecar=True, **asked)
    rows = frame.toArrow().sort_by("physicalOffset")
    if where is None:
        expected = in_place(root, columns, **asked)
    else:
        plain = spark_bridge.read(spark, root, columns=columns, where=where, **asked)
        expected = plain.toArrow().sort_by("physicalOffset")
    assert rows.cast(expected.schema).equals(expected)
    return frame, rows


def side_paths(frame: DataFrame) -> list[str]:
    return sorted(frame.inputFiles())


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_a_store_of_rocketmqs_gives_the_same_rows(spark, version, tmp_path):
    root = Path(unpack_golden(version, "master", tmp_path))
    write_side_files(root, group_rows=64, end=3 * 262144)
    frame, rows = both(spark, root, FIXED)
    assert len(side_paths(frame)) == 3
    assert rows.num_rows > 200
    both(spark, root, FIXED, includeSystemTopics=True)
    frame, _ = both(spark, root, ["physicalOffset", "body", "properties"], where="queueOffset % 3 = 1")
    assert len(side_paths(frame)) == 3
    topic = rows["topic"][0].as_py()
    both(spark, root, FIXED, topics=[topic])
    assert frame.count() == both(spark, root, ["physicalOffset"], where="queueOffset % 3 = 1")[1].num_rows


SELECTIONS: list[dict[str, Any]] = [
    {"where": "physicalOffset >= 9000 AND physicalOffset < 30001"},
    {"where": "storeTimestamp >= timestamp'2023-11-14 22:13:20.100' AND bornTimestamp < timestamp'2035-01-01'"},
    {"where": "topic IN ('orders', 'zoo') AND queueId = 1 OR keys IS NULL"},
    {"topics": ["orders", "RMQ_SYS_TRACE_TOPIC"]},
    {"assign": '{"orders":[1,2],"zoo":[0]}'},
    {"startingOffsets": '{"orders":{"1":5}}', "endingOffsets": '{"orders":{"1":9},"zoo":{"0":3}}'},
    {"startingTimestamp": str(START_MS + 100), "endingTimestamp": str(START_MS + 350)},
    {"topics": ["orders", "zoo"], "startingOffsetsByTimestamp": f'{{"orders":{{"1":{START_MS + 200}}}}}'},
    {"subExpression": "a || c"},
    {"splitBytes": "4096"},
    {"includeSystemTopics": "true"},
]


@pytest.mark.parametrize("asked", SELECTIONS, ids=str)
def test_selections_take_the_same_rows(spark, made, asked):
    frame, rows = both(spark, made.root, FIXED, **asked)
    assert rows.num_rows
    assert side_paths(frame)


def test_a_brokers_name_is_shown_as_it_is_whatever_sql_makes_of_its_letters(spark, made):
    name = "it's a \\'\"`broker`\\n-日本"
    names, where = ["physicalOffset", "brokerName", "body"], "queueId = 1"
    root = made.root.rename(made.root.with_name(name))  # without a configuration the directory's name is the broker's
    frame = spark_bridge.read(spark, root, columns=names, where=where, columnarSidecar=True)
    assert side_paths(frame)
    assert {row["brokerName"] for row in frame.collect()} == {name}


def test_bodies_are_fetched_only_for_rows_that_meet_the_conditions(spark, made):
    names = ["physicalOffset", "body", "keys", "queueId"]
    frame, rows = both(spark, made.root, names, where="queueId = 1 AND bodyLength > 10")
    assert rows.num_rows
    assert side_paths(frame)
    assert "MapInArrow" in plan_of(frame)
    frame, _ = both(spark, made.root, names, where="length(body) > 10")
    assert not side_paths(frame), "asks bodies: the source's tasks read, by side files of their own"
    both(spark, made.root, names)
    kafka = spark_bridge.read(
        spark,
        made.root,
        columns=["offset", "value", "key", "timestampType"],
        where=F.col("partition") == 2,
        schema="kafka",
        columnarSidecar=True,
    )
    assert side_paths(kafka)
    expected = scan(
        made.root, columns=["offset", "value", "key", "timestampType"], where=("partition", "==", 2), schema="kafka"
    )
    assert sorted(map(str, kafka.toArrow().to_pylist())) == sorted(map(str, expected.read_all().to_pylist()))


def test_times_are_the_same_in_any_session(spark, made):
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        names = ["physicalOffset", "bornTimestamp", "body"]
        frame = spark_bridge.read(spark, made.root, columns=names, where="queueId >= 0", columnarSidecar=True)
        assert side_paths(frame)
        expected = in_place(made.root, names)
        assert frame.toArrow().sort_by("physicalOffset").cast(expected.schema).equals(expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("dispatched", [120, 300], ids=str)
def test_a_topic_is_read_once_however_far_queues_go(spark, dispatched, tmp_path):
    """What queues name in segments without side files, what side files have, and what is not dispatched."""
    store = make(tmp_path / "store", transactions=False)
    replace(store, records=store.records[:dispatched]).dispatch()
    write_side_files(store.root, group_rows=16, end=store.end)
    for base in (SEGMENT_BYTES, 3 * SEGMENT_BYTES):
        data_path(store.root, base).unlink()
    frame, rows = both(spark, store.root, FIXED, topics=["orders", "zoo"])
    assert side_paths(frame)
    assert rows.num_rows == sum(topic in ("orders", "zoo") for _, _, topic, _, _ in store.records)
    assert both(spark, store.root, FIXED, keys="k7")[1].num_rows, "through the index, or the whole log"


def test_a_part_of_a_segment_is_asked_for_its_place(tmp_path):
    made = make(tmp_path, transactions=False)
    write_side_files(made.root, end=made.end)
    log = LogExtent(str(made.root / "commitlog"), SEGMENT_BYTES, 0, made.end, made.end, root=str(made.root))
    wanted, third = Selection(), 3 * SEGMENT_BYTES
    inside = [RangeSplit(log, third, third, third + 9, third + 99, wanted)]
    reads, rest = SideFiles(["queueId"]).parted(inside)
    assert ([read.ranges for read in reads], rest) == ([((third + 9, third + 99),)], [])
    halves = [RangeSplit(log, third, third, third + at, third + at + 4096, wanted) for at in (0, 4096)]
    tail = RangeSplit(log, made.end - made.end % SEGMENT_BYTES, 0, 0, made.end, wanted)
    reads, rest = SideFiles(["queueId"]).parted(
        [*halves, tail, replace(inside[0], selection=Selection(keys=frozenset("k")))]
    )
    assert [len(read.paths) for read in reads] == [1]
    assert [read.ranges for read in reads] == [()], "the halves are all of it"
    assert {split.selection.keys for split in rest} == {None, frozenset("k")}


def harmed(store: SmallStore) -> None:
    """Of four segments one each: missing, truncated, a flipped byte in a page, one in the footer; one rewritten."""
    data_path(store.root, 0).unlink()
    os.truncate(data_path(store.root, SEGMENT_BYTES), 1000)
    flip(data_path(store.root, 2 * SEGMENT_BYTES), 40)
    flip(data_path(store.root, 3 * SEGMENT_BYTES), -20)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_segments_in_every_state_give_the_same_rows(spark, made):
    whole = side_paths(both(spark, made.root, FIXED)[0])
    harmed(made)
    flip(made.root / "commitlog" / file_name(4 * SEGMENT_BYTES), 12)  # queueId of its first record: another history
    frame, _ = both(spark, made.root, FIXED)
    assert len(side_paths(frame)) == len(whole) - 5
    both(spark, made.root, ["physicalOffset", "body"], where="queueId > 0")
    both(spark, made.root, FIXED, topics=["orders"])
    shutil.rmtree(data_path(made.root, 0).parent)
    assert not side_paths(both(spark, made.root, FIXED)[0])


def test_a_read_keeps_its_plan_while_the_log_grows_and_side_files_are_made(spark, made):
    frame = spark_bridge.read(spark, made.root, columns=["physicalOffset"], columnarSidecar=True)
    count = in_place(made.root, ["physicalOffset"]).num_rows
    for number in range(200):
        made.put("orders", b"more", number % 4)
    write_side_files(made.root, end=made.end)
    assert frame.count() == count
    assert both(spark, made.root, ["physicalOffset"])[1].num_rows == count + 200


GONE: dict[str, tuple[Callable[[SmallStore], None], str]] = {
    "side file": (lambda store: data_path(store.root, 0).unlink(), "FAILED_READ_FILE.FILE_NOT_EXIST"),
    "page": (lambda store: flip(data_path(store.root, 0), 60), "FAILED_READ_FILE"),
    "segment": (lambda store: (store.root / "commitlog" / file_name(0)).unlink(), "SEGMENT_REMOVED"),
}


@pytest.mark.parametrize("what", GONE)
def test_what_goes_between_plan_and_task_is_an_error_never_other_rows(spark, made, what):
    change, message = GONE[what]
    names = ["topic", "physicalOffset", *(["body"] if what == "segment" else [])]
    frame = spark_bridge.read(spark, made.root, columns=names, where="queueId >= 0", columnarSidecar=True)
    assert side_paths(frame)
    change(made)
    with pytest.raises((PySparkException, Py4JJavaError), match=message):
        frame.collect()


def test_what_looks_for_damage_or_has_no_side_file_is_the_sources_own(spark, made):
    for asked in ({"verifyCrc": "body"}, {"mode": "permissive"}, {"keys": "k7"}, {"maxBytesPerPartition": "5000"}):
        names = ["physicalOffset", *(["_error"] if "mode" in asked else [])]
        assert not side_paths(both(spark, made.root, names, **asked)[0])
    manifest_path(made.root, 0).unlink()
    assert pc.sum(both(spark, made.root, ["physicalOffset", "bodyLength"])[1]["bodyLength"]).as_py()
