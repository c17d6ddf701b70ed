"""Metadata tables through Flight: those of the store in place, without what no client is to know, and bounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.producer import Producer
from spark_bridge.flight import client, served_tables
from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import FlightError, InvalidTicket, OtherBroker, TooManyStreams, TopicNotServed
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.server import FlightServer
from spark_bridge.flight.streams import Limits
from spark_bridge.options.read import TABLE_NAMES, parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import inventory
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.tables.columns import TABLES
from spark_bridge.tables.reader import TableReader, table_schema
from spark_bridge.tables.rows import Bounds, rows_of
from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.upkeep import leases
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import TOKEN, FlightProcess, served
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, unpack_golden
from tools.common.local_broker import LocalBroker

Row = dict[str, Any]
STORES = [*GOLDEN_STORES, ("rocketmq-5.3.3", "killed")]
CALL = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
OFFSETS = {"offsetTable": {"orders@readers": {"0": 1, "1": 0}, "bills@secret-readers": {"0": 1}}}


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    """Two topics of three queues over some segments, with groups that read them."""
    made = SmallStore(tmp_path / "one" / "broker-a" / "store", 4096)
    for number in range(60):
        made.put(("orders", "bills")[number % 2], b"x" * number, number % 3, store_timestamp_ms=1000 + number)
    made.dispatch()
    (made.root / "config").mkdir()
    (made.root / "config" / "consumerOffset.json").write_text(json.dumps(OFFSETS))
    topics = {name: {"topicName": name, "perm": 6, "readQueueNums": 3} for name in ("orders", "bills", "%RETRY%secret")}
    (made.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    return made


def in_place(root: object, table: str, **options: str) -> list[Row]:
    """What Spark gets of a table where the store lies."""
    reader = TableReader(table_schema(table), parse_options({"path": str(root), "table": table, **options}))
    (partition,) = reader.partitions()
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]


def without(rows: list[Row], *names: str) -> list[Row]:
    """What a client is told of rows in place."""
    return [{name: None if name in names else value for name, value in row.items()} for row in rows]


def of(table: str, *topics: str, **options: str) -> ScanRequest:
    return ScanRequest(topics or None, options={"table": table, **options})


def told(location: str, request: ScanRequest) -> pa.Table:
    """What any client of Flight's reads."""
    with flight.FlightClient(location) as plain:
        info = plain.get_flight_info(flight.FlightDescriptor.for_command(request.encoded()), CALL)
        (endpoint,) = info.endpoints
        assert (info.total_records, info.total_bytes) == (-1, -1)
        table = plain.do_get(endpoint.ticket, CALL).read_all()
        assert table.schema == info.schema
        assert plain.get_schema(flight.FlightDescriptor.for_command(request.encoded()), CALL).schema == info.schema
    return table


@pytest.mark.parametrize(("version", "name"), STORES)
def test_rows_and_types_are_those_in_place_but_for_what_is_the_hosts(tmp_path: Path, version: str, name: str) -> None:
    root = unpack_golden(version, name, tmp_path)
    counted = 0
    with served(root) as running:
        for table in TABLE_NAMES:
            for options in ({}, {"includeSystemTopics": "true"}, {"subscribePattern": ".*a.*"}):
                found = told(running.location, of(table, **options))
                expected = without(in_place(root, table, **options), "path", "pid")
                assert found.schema == pa.schema(TABLES[table])
                assert found.to_pylist() == expected, (table, options)
                counted += len(expected)
        topic = in_place(root, "queues")[0]["topic"]
        some = ScanRequest((topic,), ("COUNT", "topic"), {"table": "queues"})
        narrow = [{"count": row["count"], "topic": row["topic"]} for row in in_place(root, "queues", topic=topic)]
        assert told(running.location, some).to_pylist() == narrow != []
    assert counted > 20


def test_nothing_of_hidden_topics_is_shown(small: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_tables, "BOUNDS", Bounds(log_bytes=0))  # nor is the log searched for `none`
    with served(small.root, ["orders", "none"]) as running:
        for table, hidden in (
            ("queues", ()), ("topics", ()), ("consumer_groups", ()), ("segments", ("minTimestamp", "modified")),
            ("replicas", ("minTimestamp",)),
        ):  # fmt: skip
            about_topics = {"topic": "orders"} if table in ("queues", "topics", "consumer_groups") else {}
            expected = without(in_place(small.root, table, **about_topics), "path", "pid", *hidden)
            for options in ({}, {"includeSystemTopics": "true"}):
                found = told(running.location, of(table, **options))
                assert found.to_pylist() == expected != [], table
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, found.schema) as writer:
                    writer.write_table(found)
                for secret in (b"bills", b"secret", str(small.root).encode()):
                    assert secret not in sink.getvalue().to_pybytes(), table
            assert told(running.location, of("queues", subscribePattern="b.*")).num_rows == 0
        with RemoteStore(running.location, TOKEN) as store:
            ticket = json.loads(store.plan(of("queues")).tickets[0])
            for topics in (["bills"], ["orders", "bills"], ["none"], ["never"]):
                for ask in (
                    lambda topics=topics: store.plan(of("consumer_groups", *topics)),
                    lambda topics=topics: forged(store, {**ticket, "request": {**ticket["request"], "topics": topics}}),
                ):
                    with pytest.raises(TopicNotServed) as refused:
                        ask()
                    assert str(refused.value).count("bills") == ("bills" in topics)


def forged(store: RemoteStore, fields: object) -> list[Row]:
    return [row for batch in store.read(json.dumps(fields).encode()) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden("rocketmq-5.3.3", "master", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def server(golden: str) -> Iterator[FlightServer]:
    with served(golden) as running:
        yield running


@pytest.mark.parametrize(
    ("request_fields", "kind"),
    [
        ({"options": {"table": "nothing"}}, InvalidOption),
        ({"options": {"table": ""}}, InvalidOption),
        ({"options": {"table": "queues", "keys": "k"}}, InvalidOption),
        ({"options": {"table": "queues", "leaseSeconds": "9"}}, InvalidOption),
        ({"options": {"table": "queues", "mode": "permissive"}}, InvalidOption),
        ({"options": {"table": "queues", "path": "/etc"}}, InvalidOption),
        ({"options": {"table": "queues", "TABLE": "topics"}}, InvalidOption),
        ({"options": {"table": "queues"}, "columns": ["body"]}, InvalidOption),
        ({"options": {"table": "queues"}, "where": [["queueId", "==", 1]]}, InvalidOption),
        ({"options": {"table": "queues"}, "topics": ["alphaFore"]}, UnknownTopic),
        ({"options": {"table": "queues"}, "topics": ["../../etc"]}, UnknownTopic),
        ({"options": {"table": "queues", "subscribePattern": "(?=a).*"}}, InvalidOption),
    ],
)
def test_what_is_no_table_is_refused_when_it_is_planned(
    server: FlightServer, golden: str, request_fields: dict[str, Any], kind: type[Exception]
) -> None:
    command = json.dumps({"version": 1, **request_fields}).encode()
    with RemoteStore(server.location, TOKEN) as store, pytest.raises(kind) as refused:
        descriptor = flight.FlightDescriptor.for_command(command)
        store._asked(lambda options: store._client.get_flight_info(descriptor, options))
    assert golden not in str(refused.value) and "\n" not in str(refused.value)


def test_hostile_tickets_end_in_a_line(server: FlightServer, golden: str) -> None:
    with RemoteStore(server.location, TOKEN) as store:
        good = json.loads(store.plan(of("topics")).tickets[0])
        assert forged(store, good)
        with pytest.raises(OtherBroker):
            forged(store, {**good, "broker": "another"})
        for wrong in (
            {**good, "request": {"version": 1}},
            {**good, "request": None},
            {**good, "columns": ["topic"]},
            {"version": 1, "request": good["request"]},
            {**good, "version": 2},
            {**good, "broker": None},
            {**good, "request": {**good["request"], "options": {"table": "topics", "path": "/etc"}}},
            {**good, "request": {**good["request"], "topics": ["\ud800"]}},
        ):
            with pytest.raises(InvalidTicket):
                forged(store, wrong)
        texts = st.sampled_from([*TABLE_NAMES, "table", "topics", "topic", "alphaOne", "", ".."]) | st.text(max_size=6)
        values = st.recursive(
            st.none() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner)
        )

        @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.sampled_from(["version", "topics", "columns", "options", "where"]), values)
        def hostile(name: str, value: object) -> None:
            try:
                forged(store, {**good, "request": {**good["request"], name: value}})
            except (FlightError, InvalidOption, StoreError) as error:
                text = str(error)
                assert golden not in text and "Traceback" not in text and "\n" not in text and len(text) < 5000

        hostile()
        assert forged(store, good), "it serves on"


def test_a_table_that_is_too_large_is_refused_before_its_queues_are_opened(
    small: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    find = inventory.find_queues
    monkeypatch.setattr(inventory, "find_queues", lambda *given: opened.append(given) or find(*given))
    with served(small.root) as running, RemoteStore(running.location, TOKEN) as store:
        monkeypatch.setattr(served_tables, "BOUNDS", Bounds(rows=6))
        assert sum(batch.num_rows for batch in store.table(of("queues"))) == 6 and opened
        monkeypatch.setattr(served_tables, "BOUNDS", Bounds(rows=5))
        opened.clear()
        for table in ("queues", "topics", "consumer_groups"):
            with pytest.raises(InvalidOption, match="more than 5 queues"):
                store.table(of(table))
        assert not opened
        assert store.table(of("queues", "orders"))
        monkeypatch.setattr(served_tables, "BOUNDS", Bounds(rows=1))
        with pytest.raises(InvalidOption, match="more than 1 rows in table segments"):
            store.table(of("segments"))


def test_a_log_that_is_in_no_queue_is_looked_through_as_far_as_a_server_does(
    small: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(small.root / "consumequeue")
    with served(small.root) as running, RemoteStore(running.location, TOKEN) as store:
        monkeypatch.setattr(served_tables, "BOUNDS", Bounds(log_bytes=small.end))
        found = [row for batch in store.table(of("queues")) for row in batch.to_pylist()]
        assert found == in_place(small.root, "queues") and len(found) == 6
        monkeypatch.setattr(served_tables, "BOUNDS", Bounds(log_bytes=small.end - 1))
        with pytest.raises(InvalidOption, match=f"{small.end} bytes of the log"):
            store.table(of("queues"))
        assert store.table(of("segments")) and store.table(of("replicas")), "they look through nothing"


def test_rows_are_made_in_the_turn_of_a_plan(small: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    with (
        served(small.root, limits=Limits(plans=1, plans_waiting=0)) as running,
        RemoteStore(running.location, TOKEN) as store,
    ):
        messages, table = store.plan(ScanRequest()).tickets[0], store.plan(of("queues")).tickets[0]
        with running._plans.taken():
            with pytest.raises(TooManyStreams):
                list(store.read(table))
            assert list(store.read(messages)), "who has a plan is in nobody's way"
        assert list(store.read(table))


@pytest.mark.broker
def test_beside_a_broker_the_log_is_held_while_rows_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int | None] = []
    make = rows_of

    def making(*given: Any) -> Any:
        held.append(leases.held_from(root, 0))
        return make(*given)

    monkeypatch.setattr(served_tables, "rows_of", making)
    with LocalBroker(tmp_path / "broker-a", mappedFileSizeCommitLog=1 << 20) as broker:
        root = broker.store
        with Producer(root, timeout=60) as producer:
            producer.send_batch("orders", [b"body"] * 20, timeout=60)
        with served(root) as running, RemoteStore(running.location, TOKEN) as store:
            for table in TABLE_NAMES:  # what the broker still does shows a moment later
                await_that(lambda table=table: as_told(store, table) == shown_in_place(root, table), f"{table} agree")
            (replica,) = as_told(store, "replicas")
            assert (replica["role"], replica["path"], replica["pid"]) == ("ASYNC_MASTER", None, None)
            assert replica["storeHost"].startswith("127.0.0.1:")
            monkeypatch.setattr(served_tables, "batch_of", lambda *_given: 1 / 0)
            with pytest.raises(FlightError):
                store.table(of("replicas"))
        assert set(held) == {0}
        assert leases.held_from(root, 0) is None, "nothing is held behind it"


def as_told(store: RemoteStore, table: str) -> list[Row]:
    return [row for batch in store.table(of(table)) for row in batch.to_pylist()]


def shown_in_place(root: object, table: str) -> list[Row]:
    return without(in_place(root, table), "path", "pid")


def spark_rows(spark: SparkSession, table: str, **options: object) -> list[tuple[Any, ...]]:
    frame = spark.read.format("rocketmq").options(table=table, **options).load()
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.mark.spark
def test_spark_reads_them_as_it_does_in_place(spark: SparkSession, small: SmallStore, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    other = SmallStore(tmp_path / "two" / "broker-b" / "store", 4096)
    other.put("orders", b"one")
    other.dispatch()
    StoreDirectory(other.root).create()
    place = {"flightTokenFile": tmp_path / "token"}
    with (
        FlightProcess(small.root, "--token-file", tmp_path / "token") as one,
        FlightProcess(other.root, "--token-file", tmp_path / "token") as two,
    ):
        for table in TABLE_NAMES:
            names = [name for name, _kind in TABLES[table] if name not in ("path", "pid")]
            columns = ",".join(names)
            found = spark_rows(spark, table, path=one.location, columns=columns, **place)
            assert found == spark_rows(spark, table, path=small.root, columns=columns) != [], table
        both = json.dumps([one.location, two.location])
        local = json.dumps([str(small.root), str(other.root)])
        assert spark_rows(spark, "topics", paths=both, **place) == spark_rows(spark, "topics", paths=local)
        few = spark_rows(spark, "queues", path=one.location, topic="bills", columns="queueId,count", **place)
        assert few == [(0, 10), (1, 10), (2, 10)]
        spark.sql(
            f"CREATE TABLE far_queues USING rocketmq OPTIONS (path '{one.location}', table 'queues',"
            f" flightTokenFile '{tmp_path}/token')"
        )
        try:
            assert spark.sql("SELECT sum(count) FROM far_queues WHERE topic = 'orders'").collect()[0][0] == 30
        finally:
            spark.sql("DROP TABLE far_queues")
        for options, words in (({"topic": "orderz"}, "did you mean 'orders'"), ({"columns": "body"}, "no column")):
            with pytest.raises(PySparkException, match=words):
                spark_rows(spark, "queues", path=one.location, **options, **place)
        with pytest.raises(PySparkException, match="one path, with commas"):
            spark_rows(spark, "queues", paths=json.dumps([one.location] * 2), **place)


def test_a_server_that_is_killed_in_between_is_followed_by_another(
    small: SmallStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one that has come less far, none of the one that was asked first: all are of one moment."""
    (tmp_path / "token").write_text(TOKEN)
    copy = tmp_path / "two" / "broker-a" / "store"
    shutil.copytree(small.root, copy)
    small.put("orders", b"later")
    small.dispatch()
    monkeypatch.setattr(served_tables, "BATCH_ROWS", 2)
    with (
        FlightProcess(small.root, "--token-file", tmp_path / "token") as first,
        FlightProcess(copy, "--token-file", tmp_path / "token") as second,
    ):
        plan = RemoteStore.plan

        def planned(store: RemoteStore, request: ScanRequest) -> Any:
            made = plan(store, request)
            if store.location == first.location:
                first.process.kill()
                first.process.wait()
            return made

        place = f"{second.location},{first.location}"
        options = {"path": place, "table": "queues", "flightToken": TOKEN}
        whole = spark_free(options)
        assert whole == in_place(small.root, "queues"), "the one that has come furthest"
        monkeypatch.setattr(RemoteStore, "plan", planned)
        assert spark_free(options) == in_place(copy, "queues") != whole
        assert spark_free(options) == in_place(copy, "queues"), "who is gone is not asked"


def spark_free(options: dict[str, str]) -> list[Row]:
    """What Spark's driver would read."""
    from spark_bridge.flight.remote.table_reader import RemoteTableReader

    parsed = parse_options({name: text for name, text in options.items() if text})
    reader = RemoteTableReader(table_schema(parsed.table or "", parsed.columns), parsed)
    (partition,) = reader.partitions()
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]
