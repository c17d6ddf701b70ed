"""`CREATE TABLE ... USING rocketmq`: a name in SQL that each query plans anew, and that DROP TABLE only forgets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

from spark_bridge import catalogue
from spark_bridge.catalogue import keeping, kept_options, options_of_creation
from spark_bridge.records.spark_schema import schema_of
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

TABLE = "kept_log"


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "a store", 4096)
    for number in range(30):
        made.put("ab"[number % 2], b"%d" % number)
    made.dispatch()
    return made


@pytest.fixture
def table(spark: SparkSession, store: SmallStore) -> Iterator[str]:
    options = f"path '{store.root}', topic 'a', Columns 'queueOffset, BODY'"
    spark.sql(f"CREATE TABLE {TABLE} USING rocketmq OPTIONS ({options})")
    yield TABLE
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def count(spark: SparkSession, query: str) -> Any:
    return spark.sql(query).collect()[0][0]


def test_kept_options_are_found_and_a_plain_path_has_no_kept_options() -> None:
    creation = {"owner": "me", "provider": "rocketmq", "option.Topic": "a", "topic": "a", "path": "file:/s"}
    found = options_of_creation(creation)
    assert found == {"topic": "a", "path": "file:/s"}
    assert options_of_creation({"path": "/s", "topic": "a"}) is None
    schema = keeping(schema_of(["topic", "body"]), found)
    assert schema.fieldNames() == ["topic", "body"]
    assert kept_options(schema, {}) == found
    assert kept_options(schema, {"topic": "b"}) == {"topic": "b", "path": "file:/s"}
    assert kept_options(schema, {"path": "/other"}) == {"path": "/other"}
    assert kept_options(schema_of(["topic"]), {"Mode": "x"}) == {"mode": "x"}


def test_a_table_keeps_its_options_and_is_planned_by_each_query(
    spark: SparkSession, store: SmallStore, table: str
) -> None:
    assert spark.table(table).columns == ["queueOffset", "body"]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW over_it AS SELECT body FROM {table} WHERE queueOffset >= 0")
    assert count(spark, f"SELECT count(*) FROM {table}") == 15
    assert count(spark, "SELECT count(*) FROM over_it") == 15
    store.put("a", b"later")
    store.dispatch()
    assert count(spark, f"SELECT count(*) FROM {table}") == 16
    assert count(spark, "SELECT count(*) FROM over_it") == 16
    assert count(spark, f"SELECT count(*) FROM {table} WITH (topic 'b')") == 15
    assert spark.table(table).count() == 16


def test_a_table_is_a_stream_too(spark: SparkSession, table: str, tmp_path: Path) -> None:
    counts: list[int] = []
    stream = spark.readStream.table(table).writeStream.foreachBatch(lambda batch, _number: counts.append(batch.count()))
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(400)
    assert sum(counts) == 15


def test_dropping_a_table_leaves_the_store(spark: SparkSession, store: SmallStore, table: str) -> None:
    before = sorted(path.relative_to(store.root) for path in store.root.rglob("*"))
    spark.sql(f"DROP TABLE {table} PURGE")
    assert sorted(path.relative_to(store.root) for path in store.root.rglob("*")) == before


def test_a_table_with_columns_of_its_own_says_what_keeps_its_options(spark: SparkSession, store: SmallStore) -> None:
    spark.sql(f"CREATE TABLE own_columns (queueId int) USING rocketmq OPTIONS (path '{store.root}')")
    try:
        with pytest.raises((AnalysisException, PythonException)) as caught:
            count(spark, "SELECT count(*) FROM own_columns")
        assert "CREATE TABLE names no columns of its own" in str(caught.value)
        assert count(spark, f"SELECT count(*) FROM own_columns WITH (path '{store.root}')") == 30
    finally:
        spark.sql("DROP TABLE own_columns")


def test_a_table_whose_options_are_wrong_is_not_made(spark: SparkSession, store: SmallStore) -> None:
    with pytest.raises((AnalysisException, PythonException), match="did you mean 'topic'"):
        spark.sql(f"CREATE TABLE wrong USING rocketmq OPTIONS (path '{store.root}', topics 'a')")
    assert not spark.catalog.tableExists("wrong")


def test_a_frame_keeps_its_first_plan_and_says_how_to_get_another(
    spark: SparkSession, store: SmallStore, table: str
) -> None:
    """What Spark does, and the words for it: the documents say so, too."""
    for number in range(170):  # several segments
        store.put("b", b"%d" % number)
    store.dispatch()
    frame = spark.read.format("rocketmq").option("path", str(store.root)).option("columns", "queueId").load()
    assert frame.count() == 200
    store.put("a", b"later")
    store.dispatch()
    assert frame.count() == 200
    first = store.root / "commitlog" / f"{0:020d}"
    shutil.move(first, store.root / "expired")
    with pytest.raises((AnalysisException, PythonException), match=r"SEGMENT_REMOVED|REPLICA_BEGINS_LATER") as caught:
        frame.count()
    words = "load it again (spark.read...load(), slipstream.read(...), CREATE OR REPLACE TEMPORARY VIEW"
    assert words in str(caught.value)
    shutil.move(store.root / "expired", first)
    assert spark.read.format("rocketmq").option("path", str(store.root)).load().count() == 201


def test_a_table_that_is_read_with_options_warns_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_warned", set())
    schema = keeping(schema_of(["topic", "body"]), {"path": "/s", "topic": "a"})
    with caplog.at_level("WARNING", "slipstream.spark"):
        kept_options(schema, {})
        kept_options(schema_of(["topic"]), {"where": "x"})
        assert caplog.messages == []
        kept_options(schema, {"Where": "x"})
        kept_options(schema, {"where": "y"})
    (message,) = caplog.messages
    assert "WITH (where)" in message and "names it twice" in message
