"""`register(spark, STORE)`: a store's topics and metadata as tables of a database, on stores that grow and change."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import Row, SparkSession

import slipstream
from spark_bridge import InvalidOption, Registration, explain_read, register
from spark_bridge.sql import database as database_of
from spark_bridge.sql.database import TableOfAnotherStore
from spark_bridge.sql.functions import ByKey, Explain, OffsetsAt
from spark_bridge.sql.registration import _refuse_missing_python
from store.errors import NotAStore
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

DATABASE = "log_in_sql"
METADATA_TABLES = {"queues", "topics", "segments", "replicas", "consumer_groups"}


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "a store, with `a name`", 4096)
    for number in range(30):
        topic = ("orders", "my-topic", "%RETRY%g")[number % 3]
        made.put(topic, b'{"id":%d,"name":"n"}' % number, number % 2, properties=b"KEYS\x01k%d\x02" % number)
    made.put("SCHEDULE_TOPIC_XXXX", b"later")
    made.dispatch()
    return made


@pytest.fixture(autouse=True)
def database(spark: SparkSession) -> Iterator[str]:
    yield DATABASE
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")


def made_of(spark: SparkSession, *stores: SmallStore, **options: Any) -> Registration:
    places = [made.root for made in stores]
    return register(spark, places[0] if len(places) == 1 else places, database=DATABASE, **options)


def answer(spark: SparkSession, query: str) -> Any:
    """The first value of the query, in which tables have no database."""
    spark.sql(f"USE {DATABASE}")
    try:
        return spark.sql(query).collect()[0][0]
    finally:
        spark.sql("USE default")


def tables(spark: SparkSession) -> set[str]:
    return {row.tableName for row in spark.sql(f"SHOW TABLES IN {DATABASE}").collect() if not row.isTemporary}


def test_a_topic_is_a_table_and_so_are_all_messages_and_the_metadata(spark: SparkSession, store: SmallStore) -> None:
    files = sorted(store.root.rglob("*"))
    registered = made_of(spark, store)
    assert registered.tables == {
        topic: f"`{DATABASE}`.`{name}`"
        for topic, name in {"orders": "orders", "my-topic": "my_topic", "%RETRY%g": "RETRY_g"}.items()
    }
    assert tables(spark) == {"messages", "heads", "orders", "my_topic", "retry_g"} | METADATA_TABLES
    assert not registered.left_out
    for topic, table in registered.tables.items():
        assert spark.sql(f"SELECT DISTINCT topic, count(*) FROM {table} GROUP BY ALL").collect() == [Row(topic, 10)]
    assert answer(spark, "SELECT count(*) FROM messages") == 30
    assert answer(spark, "SELECT count(*) FROM heads WHERE topic = 'orders'") == 10
    assert not {"body", "properties"} & set(spark.table(f"{DATABASE}.heads").columns)
    assert answer(spark, "SELECT count FROM topics WHERE topic = 'my-topic'") == 10
    assert answer(spark, "SELECT sum(count) FROM queues") == 30
    assert answer(spark, "SELECT maxPhysicalOffset FROM replicas") == store.end
    told = spark.sql(f"DESCRIBE {DATABASE}.retry_g").collect()[0].comment
    assert "%RETRY%g" in told and str(store.root) in told
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")
    assert sorted(store.root.rglob("*")) == files


def test_a_table_shows_what_is_there_now_and_a_second_call_new_topics(spark: SparkSession, store: SmallStore) -> None:
    made_of(spark, store)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW newest AS SELECT * FROM {DATABASE}.orders WHERE queueOffset >= 0")
    asked = ("SELECT count(*) FROM orders", "SELECT count(*) FROM newest", "SELECT sum(count) FROM queues")
    assert [answer(spark, query) for query in asked] == [10, 10, 30]
    store.put("orders", b"more")
    store.put("new", b"one")
    store.dispatch()
    assert [answer(spark, query) for query in asked] == [11, 11, 32]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        answer(spark, "SELECT count(*) FROM new")
    made_of(spark, store)
    assert answer(spark, "SELECT count(*) FROM new") == 1
    assert [answer(spark, query) for query in asked] == [11, 11, 32]
    shutil.rmtree(store.root / "consumequeue" / "new")
    made_of(spark, store)
    assert "new" not in tables(spark)
    assert answer(spark, "SELECT count(*) FROM orders") == 11
    spark.sql("DROP VIEW newest")


def test_a_second_call_leaves_what_is_as_it_should_be_and_makes_the_rest_anew(
    spark: SparkSession, store: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of(spark, store)
    made: list[str] = []
    catalogue = type(spark.catalog)
    create = catalogue.createTable
    monkeypatch.setattr(catalogue, "createTable", lambda *args, **own: (made.append(args[1]), create(*args, **own))[1])
    made_of(spark, store)
    assert made == []
    made_of(spark, store, topics=["orders"], columns=["queueOffset", "BODY"])
    assert made == [f"`{DATABASE}`.`messages`", f"`{DATABASE}`.`orders`"]
    assert spark.table(f"{DATABASE}.orders").columns == ["queueOffset", "body"]
    assert answer(spark, "SELECT count(*) FROM my_topic") == 10  # a call that names topics leaves others
    assert "SCHEDULE_TOPIC_XXXX" in made_of(spark, store, includeSystemTopics=True).tables
    assert answer(spark, "SELECT count(*) FROM messages") == 31


def test_a_schema_folder_and_per_topic_options_shape_the_tables(
    spark: SparkSession, store: SmallStore, tmp_path: Path
) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "orders.ddl").write_text("id bigint, name string\n")
    avro = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    (schemas / "my-topic.avsc").write_text(json.dumps(avro))
    more = {"%RETRY%g": {"columns": "queueOffset", "where": '{"queueOffset":{"<":2}}'}}
    made_of(spark, store, schemas=schemas, per_topic=more, includeProperties=False)
    assert answer(spark, "SELECT sum(body.id) FROM orders WHERE body.name = 'n'") == sum(range(0, 30, 3))
    assert dict(spark.table(f"{DATABASE}.my_topic").dtypes)["body"] == "struct<id:bigint>"
    assert spark.table(f"{DATABASE}.retry_g").columns == ["queueOffset"]
    assert answer(spark, "SELECT count(*) FROM retry_g") == 4
    assert "properties" not in spark.table(f"{DATABASE}.messages").columns
    made_of(spark, store, columns="queueId int, body struct<id: bigint>", decode="json")
    assert answer(spark, "SELECT sum(body.id) FROM messages WHERE queueId = 0") == sum(range(0, 30, 2))
    for columns, told in (("queueId bigint", "queueId is int"), ("no such", "columns="), ("", "columns with types")):
        with pytest.raises(InvalidOption, match=told):
            made_of(spark, store, columns=columns)


def test_topics_that_share_one_name_are_reported_and_have_no_table(spark: SparkSession, store: SmallStore) -> None:
    made_of(spark, store)
    assert "my_topic" in tables(spark)
    for topic in ("my_topic", "Queues"):
        store.put(topic, b"x")
    store.dispatch()
    with pytest.warns(UserWarning, match="no table for") as told:
        registered = made_of(spark, store)
    assert set(registered.left_out) == {"my_topic", "my-topic", "Queues"} and len(told) == 3
    assert set(registered.tables) == {"orders", "%RETRY%g"}
    assert "my_topic" not in tables(spark)
    assert answer(spark, "SELECT count(*) FROM queues WHERE topic = 'Queues'") == 1
    with pytest.raises(InvalidOption, match="names="):
        made_of(spark, store, topics=["my_topic", "my-topic"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made_of(spark, store, names={"my-topic": "dashed", "Queues": "queues_topic"})
    assert [answer(spark, f"SELECT count(*) FROM {name}") for name in ("dashed", "my_topic", "queues_topic")] == [
        10,
        1,
        1,
    ]


def test_tables_of_others_are_left_as_they_are(spark: SparkSession, store: SmallStore) -> None:
    spark.sql(f"CREATE DATABASE {DATABASE}")
    spark.sql(f"CREATE TABLE {DATABASE}.orders AS SELECT 7 AS mine")
    spark.sql(f"CREATE TABLE {DATABASE}.own AS SELECT 8 AS mine")
    with pytest.warns(UserWarning, match="'orders'.*is a table that register did not make"):
        registered = made_of(spark, store)
    assert "orders" not in registered.tables
    assert answer(spark, "SELECT mine FROM orders") == 7
    assert answer(spark, "SELECT mine FROM own") == 8
    assert answer(spark, "SELECT count(*) FROM my_topic") == 10


def test_several_stores_together_and_in_databases_of_their_own(
    spark: SparkSession, store: SmallStore, tmp_path: Path
) -> None:
    other = SmallStore(tmp_path / "other" / "store", 4096)
    other.put("orders", b"of the other")
    other.put("elsewhere", b"too")
    other.dispatch()
    made_of(spark, store)
    before = tables(spark)
    with pytest.raises(TableOfAnotherStore, match="give another database") as caught:
        made_of(spark, other)
    assert str(store.root) in str(caught.value) and caught.value.code == "TABLE_OF_ANOTHER_STORE"
    assert tables(spark) == before
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")
    registered = made_of(spark, store, other)
    assert set(registered.tables) == {"orders", "my-topic", "%RETRY%g", "elsewhere"}
    assert answer(spark, "SELECT count(*) FROM orders") == 11
    assert answer(spark, "SELECT count(DISTINCT brokerName) FROM orders") == 2
    register(spark, other.root, database=f"{DATABASE}_2")
    try:
        assert spark.table(f"{DATABASE}_2.orders").count() == 1
    finally:
        spark.sql(f"DROP DATABASE {DATABASE}_2 CASCADE")


def test_what_cannot_be_is_refused_before_anything_is_made(
    spark: SparkSession, store: SmallStore, tmp_path: Path
) -> None:
    for options, told in (
        ({"topics": "orders"}, "a list of texts"),
        ({"topics": ["order"]}, "did you mean 'orders'"),
        ({"per_topic": {"order": {}}}, "did you mean 'orders'"),
        ({"decod": "json"}, "did you mean 'decode'"),
        ({"topic": "orders"}, "there is topics="),
        ({"columns": ["body", "nobody"]}, "no column 'nobody'"),
        ({"names": {"orders": "a b"}}, "letters, digits and underscores"),
        ({"names": {"order": "o"}}, "names: no topic 'order' here; did you mean 'orders'"),
        ({"names": {"orders": 5}}, "a dictionary as"),
        ({"per_topic": {"orders": "decode=json"}}, "a dictionary as"),
        ({"topics": [7]}, "a list of texts"),
        ({"columns": 7}, "a list of texts"),
        ({"columns": "queueId intt"}, r"UNSUPPORTED_DATATYPE"),
    ):
        with pytest.raises(InvalidOption, match=told):
            made_of(spark, store, **options)
    with pytest.raises(InvalidOption, match="letters, digits"):
        register(spark, store.root, database="a`b")
    with pytest.raises(InvalidOption, match="a store is missing"):
        register(spark, columns=["body"])
    with pytest.raises(NotAStore):
        register(spark, tmp_path / "nowhere", database=DATABASE)
    with pytest.raises(InvalidOption, match="a store's directory"):
        register(spark, 7, database=DATABASE)
    assert not spark.catalog.databaseExists(DATABASE)


def test_tables_that_another_session_makes_meanwhile_are_those_wanted(
    spark: SparkSession, store: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of(spark, store, topics=["orders"])
    monkeypatch.setattr(database_of, "_names", lambda *_where: [])  # as it was when the other one had not begun
    made_of(spark, store, topics=["orders"])
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        made_of(spark, store, topics=["orders"], columns=["body"])
    assert answer(spark, "SELECT count(*) FROM orders") == 10


def test_without_a_store_it_registers_the_format(spark: SparkSession) -> None:
    assert slipstream.register(spark) == Registration("rocketmq")
    assert not spark.catalog.databaseExists("rocketmq")


@pytest.mark.parametrize(
    ("python", "there"), [("./environment/bin/python", " in {}"), ("/no/environment/bin/python", "")]
)
def test_a_python_that_the_driver_lacks_is_reported_before_anything_is_planned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, there: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(InvalidOption) as error:
        slipstream.register(spark)
    says = f"PYSPARK_PYTHON={python}: it does not exist{there.format(tmp_path)}, but the driver"
    assert str(error.value).startswith(says)
    if not python.startswith("/"):
        folder = tmp_path / "environment" / "bin"
        folder.mkdir(parents=True)
        (folder / "python").symlink_to(sys.executable)
        _refuse_missing_python()  # what is registered now would keep this Python for the tests behind


def test_a_temporary_view_by_sql_alone(spark: SparkSession, store: SmallStore) -> None:
    """With columns and a range; it keeps the plan of its first use, as the documents say."""
    place = str(store.root).replace("'", "\\'")
    where = '{"queueOffset":{">=":1,"<":3}}'
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW of_sql USING rocketmq OPTIONS"
        f" (path '{place}', topic 'orders', columns 'queueId, QUEUEOFFSET', where '{where}')"
    )
    try:
        assert spark.table("of_sql").columns == ["queueId", "queueOffset"]
        assert {tuple(row) for row in spark.table("of_sql").collect()} == {(0, 1), (0, 2), (1, 1), (1, 2)}
        assert spark.sql("SELECT max(queueOffset) FROM of_sql").collect() == [Row(2)]
        store.put("orders", b"later", 2)
        store.put("orders", b"later", 2)
        store.dispatch()
        assert spark.sql("SELECT count(*) FROM of_sql WHERE queueId = 2").collect() == [Row(0)]
    finally:
        spark.sql("DROP VIEW of_sql")


def test_a_store_on_another_host(spark: SparkSession, store: SmallStore, tmp_path: Path) -> None:
    """Through Flight: all of it; the catalogue keeps where the token is, not the token."""
    (tmp_path / "token").write_text(TOKEN)
    with served(store.root) as server:
        place = server.location
        registered = register(spark, place, database=DATABASE, flightTokenFile=tmp_path / "token", columns=["body"])
        assert set(registered.tables) == {"orders", "my-topic", "%RETRY%g"}
        assert tables(spark) == {"messages", "heads", "orders", "my_topic", "retry_g", *METADATA_TABLES}
        assert answer(spark, "SELECT count(body) FROM orders") == 10
        assert answer(spark, "SELECT sum(count) FROM queues WHERE topic = 'my-topic'") == 10
        assert answer(spark, "SELECT count(path) FROM segments") == 0 < answer(spark, "SELECT count(*) FROM segments")
        for options, words in (
            ({"flightToken": TOKEN}, "flightTokenFile"),
            ({"flightTokenFile": tmp_path / "token", "topics": ["order"]}, "did you mean 'orders'"),
        ):
            with pytest.raises(InvalidOption, match=words):
                register(spark, place, database=DATABASE, **options)
        (plan,) = explain_read(spark.table(f"{DATABASE}.orders")).stores
        assert (plan.path, plan.queues) == (place, {"orders/0": 5, "orders/1": 5})
        with pytest.raises(PythonException, match="give a directory"):
            spark.sql(f"SELECT * FROM rocketmq_offsets_at('{place}', 'orders', 0)").collect()
    with served(store.root, token=None) as server:
        rows = spark.sql(f"SELECT * FROM rocketmq_by_key('{server.location}', 'orders', 'k3')").collect()
        assert [row.keys for row in rows] == ["k3"]
        (row,) = spark.sql(f"""SELECT * FROM rocketmq_explain('{server.location}', '{{"topic":"orders"}}')""").collect()
        assert (row.path, row.splits) == (server.location, explain_read(made_frame(spark, store)).splits)


def made_frame(spark: SparkSession, store: SmallStore) -> Any:
    return spark.read.format("rocketmq").options(path=store.root, topic="orders").load()


def test_what_is_read_is_explained(spark: SparkSession, store: SmallStore) -> None:
    made_of(spark, store)
    plan = explain_read(spark.sql(f"SELECT queueId FROM {DATABASE}.orders WHERE queueId = 0"))
    assert plan.stores[0].queues == {"orders/0": 5, "orders/1": 5}  # Spark's filter is not the source's
    plan = explain_read(spark.sql(f"""SELECT * FROM {DATABASE}.orders WITH (where '{{"queueId":0}}')"""))
    assert plan.stores[0].queues == {"orders/0": 5}
    joined = spark.table(f"{DATABASE}.orders").join(spark.table(f"{DATABASE}.my_topic"), "queueId")
    assert [list(one.queues) for one in explain_read(joined).stores] == [
        ["orders/0", "orders/1"],
        ["my-topic/0", "my-topic/1"],
    ]
    frame = slipstream.read(spark, store.root, where="topic = 'orders' AND queueOffset BETWEEN 1 AND 2")
    assert slipstream.explain_read(frame).stores[0].queues == {"orders/0": 2, "orders/1": 2}
    assert f"{plan.bytes:,} bytes of records" in str(plan)
    with pytest.raises(InvalidOption, match="reads no store"):
        explain_read(spark.range(3))
    assert "BatchScan rocketmq" in spark.sql(f"EXPLAIN SELECT * FROM {DATABASE}.orders").collect()[0][0]


def test_table_functions_answer_by_time_by_key_and_explain(spark: SparkSession, store: SmallStore) -> None:
    times = [1_795_000_000_000 + number * 1000 for number in range(12)]
    for number, time in enumerate(times):
        store.put("timed", b"t", number % 3, store_timestamp_ms=time, properties=b"KEYS\x01one two\x02")
    store.dispatch()
    register(spark)
    place = str(store.root).replace("'", "\\'")
    at = datetime.fromtimestamp(times[5] / 1000, UTC).isoformat()
    for text in (f"{times[5]}", f"'{times[5]}'", f"timestamp_millis({times[5]})", f"'{at}'"):
        asked = (
            f"SELECT queueId, queueOffset, minOffset, maxOffset FROM rocketmq_offsets_at('{place}', 'timed', {text})"
        )
        found = [tuple(row) for row in spark.sql(asked).collect()]
        assert sorted(found) == [(0, 2, 0, 4), (1, 2, 0, 4), (2, 1, 0, 4)], text
    rows = spark.sql(f"SELECT * FROM rocketmq_by_key('{place}', 'orders', 'k3')").collect()
    assert [(bytes(row.body), row.keys, row.properties) for row in rows] == [
        (b'{"id":3,"name":"n"}', "k3", {"KEYS": "k3"})
    ]
    read = slipstream.read(spark, store.root, topics=["orders"], keys="k3").collect()
    assert rows == read
    assert spark.sql(f"SELECT * FROM rocketmq_by_key('{place}', 'timed', 'two')").count() == 12
    assert spark.sql(f"SELECT * FROM rocketmq_by_key('{place}', 'timed', 'tw')").count() == 0
    told = spark.sql(f"""SELECT * FROM rocketmq_explain('{place}', '{{"topic":"timed"}}')""").collect()
    assert (told[0].splits, told[0].endOffset, "timed/0 (4)" in told[0].plan) == (1, store.end, True)
    for call, what in (
        (f"rocketmq_by_key('{place}', 'nowhere', 'k')", "UNKNOWN_TOPIC"),
        (f"rocketmq_by_key('{place}', 'orders', NULL)", "key is NULL"),
        (f"rocketmq_offsets_at('{place}', 'orders', 'soon')", "ISO 8601"),
        ("rocketmq_by_key('/nowhere', 'orders', 'k')", "NOT_A_STORE"),
        (f"rocketmq_explain('{place}', 'x')", "give JSON"),
        (f"rocketmq_by_key('{place}', 'orders')", r"^[^\n]*\n[^\n]*INVALID_OPTION: rocketmq_by_key\(path[^\n]*$"),
    ):
        with pytest.raises(PythonException, match=what):
            spark.sql(f"SELECT * FROM {call}").collect()


def test_arguments_that_a_function_does_not_take_are_reported_in_one_line() -> None:
    for function, given, told in (
        (OffsetsAt, ("/s", "orders"), "rocketmq_offsets_at(path, topic, time): missing a required argument: 'time'"),
        (ByKey, ("/s", "orders", "k", "more"), "rocketmq_by_key(path, topic, key): too many positional arguments"),
        (ByKey, ("/s", "orders", 6), "rocketmq_by_key(path, topic, key): key is a text, not 6"),
        (OffsetsAt, ("/s", 7, "-10m"), "rocketmq_offsets_at(path, topic, time): topic is a text, not 7"),
        (Explain, (None, "{}"), "rocketmq_explain(path, options): path is NULL"),
    ):
        with pytest.raises(InvalidOption, match=re.escape(told)):
            list(function().eval(*given))
