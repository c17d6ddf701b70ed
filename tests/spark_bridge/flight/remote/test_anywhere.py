"""A real Spark without a store of its own: planned and read through servers, in place where a replica is."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from spark_bridge.flight import client
from spark_bridge.flight.client import RemoteStore, read_remote
from spark_bridge.flight.errors import ServerUnreachable
from spark_bridge.flight.remote import anywhere
from spark_bridge.flight.remote.anywhere import RemoteSplit, plan_anywhere, read_anywhere
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.served import Opened
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import IN_PLACE, columns_of
from spark_bridge.scanning import scan
from store.columns.columns import arrow_schema
from store.upkeep import leases
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import free_port

pytestmark = pytest.mark.spark

NAMES = ["topic", "queueId", "queueOffset", "physicalOffset", "body"]
SEGMENT_BYTES = 8192
BODY_AT = 88  # in a record with two IPv4 hosts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    """Of a broker called broker-a: 300 messages over six segments."""
    made = SmallStore(tmp_path_factory.mktemp("master") / "broker-a" / "store", SEGMENT_BYTES)
    for number in range(300):
        made.put(("orders", "bills")[number % 2], b'{"n":%d}' % number * (number % 9 == 0) + b" " * 30, number % 4)
    made.dispatch()
    return made


def copy_of(store: SmallStore, directory: Path) -> SmallStore:
    """A replica elsewhere, of the same broker."""
    root = directory / "broker-a" / "store"
    shutil.copytree(store.root, root)
    return SmallStore(root, store.segment_bytes, store.end, store.records)


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*NAMES).collect())


def in_place(spark: SparkSession, store: SmallStore, **options: object) -> list[tuple[object, ...]]:
    return rows_of(spark_bridge.read(spark, store.root, columns=NAMES, **options))


def through(spark: SparkSession, place: str, **options: object) -> DataFrame:
    return spark_bridge.read(spark, place, columns=[*NAMES, "_replica"], flightToken=TOKEN, **options)


def test_a_driver_and_executors_without_a_store_read_what_is_there(spark, store, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with served(store.root) as server:
        frame = through(spark, server.location)
        assert rows_of(frame) == in_place(spark, store)
        assert {row[0] for row in frame.select("_replica").distinct().collect()} == {server.location}
        chosen = spark_bridge.read(
            spark,
            server.location,
            columns=NAMES,
            topics=["orders"],
            where="queueId = 2 AND queueOffset > 3",
            flightTokenFile=tmp_path / "token",
            minPartitions=3,
        )
        expected = spark_bridge.read(
            spark, store.root, columns=NAMES, topics=["orders"], where="queueId = 2 AND queueOffset > 3"
        )
        assert rows_of(chosen) == rows_of(expected) != []
        decoded = spark.read.format("rocketmq").schema("queueOffset bigint, body struct<n: int>")
        decoded = decoded.options(path=server.location, flightToken=TOKEN, decode="json", mode="failfast")
        with pytest.raises(PySparkException, match="JSON"):
            decoded.load().collect()  # bodies of blanks are no JSON: the schema that was given is asked for there, too


def test_a_replica_of_the_executors_host_is_read_in_place(spark, store, tmp_path):
    replica = copy_of(store, tmp_path)
    with served(store.root) as server:
        frame = through(spark, server.location, replicaPath=replica.root)
        assert rows_of(frame) == in_place(spark, store)
        assert [row[0] for row in frame.select("_replica").distinct().collect()] == [IN_PLACE]
        foreign = tmp_path / "broker-b" / "store"
        shutil.copytree(store.root, foreign)
        other = through(spark, server.location, replicaPath=foreign)
        assert [row[0] for row in other.select("_replica").distinct().collect()] == [server.location]


def test_a_slow_reader_in_place_holds_the_log_with_each_batch(store, tmp_path, monkeypatch):
    now_ms = 0
    monkeypatch.setattr(leases, "monotonic_ms", lambda: now_ms)
    batch = pa.RecordBatch.from_pydict({"queueId": [0]})
    opened = Opened(batch.schema, iter([batch] * 3), leases.acquire(tmp_path, 7, 60_000))
    monkeypatch.setattr(anywhere, "_store_at", lambda _root: SimpleNamespace(open=lambda _ticket: opened))
    for _batch in anywhere._in_place(RemoteSplit(b"", (), replica_path=str(store.root))):
        now_ms += 50_000
        assert leases.held_from(tmp_path, now_ms) == 7
    assert leases.held_from(tmp_path, now_ms) is None


def test_a_replica_that_lags_gives_what_it_has_and_a_server_the_rest(spark, store, tmp_path):
    replica = copy_of(store, tmp_path)
    for segment in sorted((replica.root / "commitlog").iterdir())[3:]:
        segment.unlink()
    shutil.rmtree(replica.root / "consumequeue")
    with served(store.root) as server:
        frame = through(spark, server.location, replicaPath=replica.root, splitBytes=4096, minPartitions=12)
        assert rows_of(frame) == in_place(spark, store)
        sources = Counter(row[0] for row in frame.select("_replica").collect())
        assert sources.keys() == {IN_PLACE, server.location}


def test_a_replica_that_is_damaged_in_the_middle_is_left_for_a_server(store, tmp_path):
    replica = copy_of(store, tmp_path)
    segment = sorted((replica.root / "commitlog").iterdir())[2]
    content = bytearray(segment.read_bytes())
    content[SEGMENT_BYTES // 2 : SEGMENT_BYTES // 2 + 64] = bytes(64)
    segment.write_bytes(content)
    columns = columns_of(["physicalOffset", "_replica"])
    schema = arrow_schema(columns)
    with served(store.root) as server:
        flights = Flights(((server.location,),), TOKEN, None, str(replica.root), {"splitbytes": "100000"})
        splits = plan_anywhere(flights, [column.name for column in columns])
        table = pa.Table.from_batches([b for split in splits for b in read_anywhere(split, schema)], schema)
    assert sorted(table["physicalOffset"].to_pylist()) == store.offsets
    assert set(table["_replica"].to_pylist()) == {IN_PLACE, server.location}


def test_a_server_that_goes_in_the_middle_is_followed_by_another(store, tmp_path, monkeypatch):
    replica = copy_of(store, tmp_path)
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    schema = arrow_schema(columns_of(["physicalOffset", "_replica"]))
    with served(replica.root) as second:
        with served(store.root) as first:
            place = f"{first.location}, {second.location}"
            flights = Flights((tuple(place.split(", ")),), TOKEN, asked={"maxrecordsperpartition": "300"})
            splits = plan_anywhere(flights, ["physicalOffset", "_replica"])
            batches = (batch for split in splits for batch in read_anywhere(split, schema))
            read = [next(batches)]
        read += batches  # the first server is gone by now
        table = pa.Table.from_batches(read, schema)
    assert sorted(table["physicalOffset"].to_pylist()) == store.offsets
    assert table["_replica"].to_pylist()[-1] == second.location


def test_a_server_that_goes_while_it_plans_is_followed_by_another(store, tmp_path, monkeypatch):
    replica = copy_of(store, tmp_path)
    plan = client.RemoteStore.plan
    with served(replica.root) as second, ExitStack() as running:
        first = running.enter_context(served(store.root))

        def planned(at: client.RemoteStore, request: object) -> object:
            if at.location == first.location:
                running.close()
            return plan(at, request)

        monkeypatch.setattr(client.RemoteStore, "plan", planned)
        splits = plan_anywhere(Flights(((first.location, second.location),), TOKEN), ["topic"])
        assert splits[0].locations[0] == second.location, "who does not answer comes last"
        assert set(splits[0].locations) == {first.location, second.location}
    nobody = ("grpc://127.0.0.1:1", "grpc://127.0.0.1:2")
    with pytest.raises(ServerUnreachable):
        plan_anywhere(Flights((nobody,), TOKEN), ["topic"])


def test_a_scan_without_spark_goes_through_a_server_too(store, tmp_path):
    where = [("queueId", "in", [1, 2]), ("bodyLength", ">", 30), ("topic", "==", "bills")]
    with served(store.root) as server:
        for filters in (None, where):
            expected = scan(store.root, columns=NAMES, where=filters).read_all()
            for more in ({}, {"replicaPath": store.root}):
                found = scan(server.location, columns=NAMES, where=filters, flightToken=TOKEN, **more).read_all()
                assert found.schema == expected.schema
                assert found.sort_by("physicalOffset") == expected.sort_by("physicalOffset")
        expected = scan(store.root, columns=NAMES, dictionaries=True).read_all()
        found = scan(server.location, columns=NAMES, flightToken=TOKEN, dictionaries=True).read_all()
        assert found.schema == expected.schema != scan(store.root, columns=NAMES).schema
        assert found.sort_by("physicalOffset").to_pylist() == expected.sort_by("physicalOffset").to_pylist()
        with pytest.raises(InvalidOption, match="leave it out"):
            scan(server.location, zero_copy=True)


def test_tickets_that_are_read_at_once_come_in_order_and_end_with_their_reader(store):
    before, split_small = set(threading.enumerate()), {"splitBytes": "4096", "columns": NAMES}
    expected = scan(store.root, **split_small).read_all()
    with served(store.root) as server:
        asked = ScanRequest(columns=tuple(NAMES), options={"splitBytes": "4096"})
        assert len(RemoteStore(server.location, TOKEN).plan(asked).tickets) > 4
        assert read_remote(server.location, asked, TOKEN).read_all().equals(expected)
        assert scan(server.location, threads=3, flightToken=TOKEN, **split_small).read_all().equals(expected)
        readers = [
            read_remote(server.location, asked, TOKEN),
            scan(server.location, threads=3, flightToken=TOKEN, **split_small),
        ]
        for reader in readers:
            assert reader.read_next_batch().num_rows
        del reader, readers
        await_that(lambda: not ahead_threads(before), "who is no longer read lets go of its threads")


def ahead_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one not in before and one.name.startswith("slipstream-ahead")]


def test_several_brokers_and_one_that_is_named_twice(spark, store, tmp_path):
    other = SmallStore(tmp_path / "broker-b" / "store", SEGMENT_BYTES)
    for number in range(20):
        other.put("orders", b"%d" % number)
    other.dispatch()
    with served(store.root) as first, served(other.root) as second:
        both = spark_bridge.read(spark, [first.location, second.location], columns=["brokerName"], flightToken=TOKEN)
        counts = {row[0]: row[1] for row in both.groupBy("brokerName").count().collect()}
        assert counts == {"broker-a": 300, "broker-b": 20}
        for places, told in (
            ([first.location, first.location], "one path, with commas"),
            ([f"{first.location},{second.location}"], "one path is one broker's log"),
        ):
            with pytest.raises(PySparkException, match=told):
                spark_bridge.read(spark, places, columns=["topic"], flightToken=TOKEN).count()


def test_one_replica_that_does_not_answer_is_not_missed(spark, store):
    nowhere = f"grpc://127.0.0.1:{free_port()}"
    with served(store.root) as server:
        frame = through(spark, f"{nowhere},{server.location}")
        assert rows_of(frame) == in_place(spark, store)
    with pytest.raises(PySparkException, match="slipstream flight"):
        through(spark, nowhere).count()


def test_what_does_not_fit_is_refused_in_one_line(spark, store, tmp_path):
    place = "grpc://127.0.0.1:1"
    for options, told in (
        ({"path": str(store.root), "flightToken": "x"}, "flightToken belongs to"),
        ({"path": f"{place},/a/store"}, "is not an address"),
        ({"path": "grpc://127.0.0.1"}, "is not an address"),
        ({"path": f"{place}/store"}, "is not an address"),
        ({"path": place, "table": "queues"}, "SERVER_UNREACHABLE"),
        ({"path": place, "flightToken": "a", "flightTokenFile": "b"}, "twice"),
        ({"path": place, "flightRoots": str(tmp_path / "none.pem")}, "No such file"),
        ({"path": place, "replicaPath": "s3://bucket"}, "cannot be mapped"),
    ):
        with pytest.raises((AnalysisException, PySparkException), match=told):
            spark.read.format("rocketmq").schema("topic string").options(**options).load().count()
    with pytest.raises(PySparkException, match="SERVER_UNREACHABLE"):
        stream = spark.readStream.format("rocketmq").schema("topic string").option("path", place).load()
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)
    with pytest.raises(PySparkException, match="mapped segments"):
        spark_bridge.map_segments(spark, place, lambda _records: [[1]], "n bigint").count()


def test_a_token_is_shown_nowhere(spark, store):
    with served(store.root) as server:
        frame = through(spark, server.location)
        explained = frame._jdf.queryExecution().toString()
        splits = plan_anywhere(Flights(((server.location,),), TOKEN), ["topic"])
    assert TOKEN not in explained
    assert TOKEN not in repr(splits)
    assert TOKEN not in repr(Flights(((),), TOKEN))


def test_tasks_that_are_placed_read_the_same(spark, store, tmp_path):
    with served(store.root) as server:
        by_name = server.location.replace("127.0.0.1", "localhost")
        frame = through(spark, f"{server.location},{by_name}", placed=True, minPartitions=4)
        assert rows_of(frame) == in_place(spark, store)
        tasks = frame._jdf.queryExecution().toRdd()
        scheduler = spark.sparkContext._jsc.sc()
        wanted = {scheduler.getPreferredLocs(tasks, at).mkString(" ") for at in range(tasks.getNumPartitions())}
        assert wanted == {"127.0.0.1 localhost", "localhost 127.0.0.1"}, "all of them hosts of replicas"
        few = spark_bridge.read(
            spark, server.location, columns=NAMES, where="queueId = 1", placed=True, flightToken=TOKEN
        )
        assert rows_of(few) == [row for row in in_place(spark, store) if row[1] == 1]
        none = spark_bridge.read(spark, server.location, columns=NAMES, placed=True, flightToken=TOKEN, keys="none")
        assert none.count() == 0
    with pytest.raises(InvalidOption, match="addresses of Flight servers"):
        spark_bridge.read(spark, store.root, columns=NAMES, placed=True)
