"""Bodies of a registry read in every way there is: batches, streams, SQL, scans, in place and through Flight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

import spark_bridge
from spark_bridge.flight import questions
from spark_bridge.flight.errors import InvalidTicket
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.tickets import parsed
from spark_bridge.options.values import InvalidOption
from spark_bridge.scanning import scan
from store.errors import MalformedData
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.registries import AVRO_BODIES, DESCRIPTORS, PROTOBUF_BODIES, Registry, serving
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """Orders in Avro by two schemas, and payments in Protobuf."""
    made = SmallStore(tmp_path / "broker-a" / "store")
    for number in range(20):
        made.put("orders", AVRO_BODIES[number % 2], 0)
        made.put("payments", PROTOBUF_BODIES[number % 2], 0)
    made.dispatch()
    return made


def test_every_way_of_reading_has_the_same_rows(spark: SparkSession, store: SmallStore, tmp_path: Path) -> None:
    expected = sorted([7, 1 << 40] * 10)
    with serving(Registry(authorization="Bearer secret")) as registry, served(store.root) as server:
        (tmp_path / "token").write_text("secret")
        decoding = {
            "decode": "avro", "schemaRegistry": registry.url, "schemaRegistryTokenFile": str(tmp_path / "token"),
            "schemaSubject": "orders-value",
        }  # fmt: skip
        frame = spark_bridge.read(spark, store.root, columns=["body"], topics=["orders"], **decoding)
        assert sorted(row.id for row in frame.select("body.id").collect()) == expected
        options = ", ".join(f"{name} '{text}'" for name, text in {**decoding, "columns": "body"}.items())
        place = f"path '{store.root}', topic 'orders'"
        spark.sql(f"CREATE TABLE registry_orders USING rocketmq OPTIONS ({place}, {options})")
        try:
            assert spark.sql("SELECT sum(body.id) FROM registry_orders").first()[0] == sum(expected)
        finally:
            spark.sql("DROP TABLE registry_orders")
        remote = {**decoding, "flightToken": TOKEN}
        for number, given in enumerate(({**decoding, "path": str(store.root)}, {**remote, "path": server.location})):
            stream = spark.readStream.format("rocketmq").options(topic="orders", columns="body", **given)
            rows: list[int] = []
            bodies = stream.load().select("body.id")

            def take(frame: DataFrame, _number: int, rows: list[int] = rows) -> None:
                rows.extend(row.id for row in frame.collect())

            query = bodies.writeStream.foreachBatch(take)
            query = query.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
            assert query.trigger(availableNow=True).start().awaitTermination(300)
            assert sorted(rows) == expected
        frame = spark_bridge.read(spark, server.location, columns=["body", "_replica"], topics=["orders"], **remote)
        assert sorted(row.body.id for row in frame.collect()) == expected
        for place, given in ((store.root, decoding), (server.location, remote)):
            table = scan(place, topics=["orders"], columns=["body"], **given).read_all()
            assert sorted(value["id"] for value in table["body"].to_pylist()) == expected
        assert {path for path in registry.asked if "orders" in path} == {"/subjects/orders-value/versions/latest"}


def test_protobuf_through_flight_is_decoded_by_the_reader_or_reported(store: SmallStore, tmp_path: Path) -> None:
    path = tmp_path / "orders.desc"
    path.write_bytes(DESCRIPTORS)
    store.put("payments", b"\0\0\0\0\x69\x04\x02\x00", 0)
    store.dispatch()
    with serving(Registry()) as registry, served(store.root) as server:
        decoding = {
            "decode": "protobuf", "protobufDescriptors": path, "protobufMessage": "shop.Order",
            "schemaRegistry": registry.url,
        }  # fmt: skip
        through = {"flightToken": TOKEN}
        for place, given in (
            (store.root, {}),
            (server.location, through),
            (server.location, {**through, "replicaPath": store.root}),
        ):
            read = scan(place, topics=["payments"], columns=["_error", "body"], mode="permissive", **decoding, **given)
            table = read.read_all()
            assert table.column_names == ["_error", "body"]
            *good, bad = table.to_pylist()
            assert {json.dumps(row["body"]["state"]) for row in good} == {'"PAID"', '"NEW"'}
            assert bad["body"] is None
            assert f"record at offset {store.offsets[-1]}: its body as protobuf: " in bad["_error"]
            with pytest.raises(MalformedData, match=r"its body as protobuf"):
                scan(place, topics=["payments"], columns=["body"], **decoding, **given).read_all()


def test_a_flight_server_asks_no_registry_and_opens_no_file_for_a_stranger() -> None:
    for name in ("schemaRegistry", "schemaRegistryTokenFile", "protobufDescriptors", "SCHEMASUBJECT"):
        with pytest.raises(InvalidOption, match="decode where you read"):
            ScanRequest(options={name: "/etc/passwd"})
        with pytest.raises(InvalidOption, match="not for servers"):
            questions.parsed(json.dumps({"version": 1, "ask": "look", "options": {name: "/x"}}).encode())
        ticket = {"version": 1, "broker": "b", "segment": 4096, "log": [0, 1, 1], "range": [0, 0, 0, 1],
                  "columns": ["body"], "rows": {"decode": "avro", name: "http://169.254.169.254"}}  # fmt: skip
        with pytest.raises(InvalidTicket, match="options that are not among"):
            parsed(json.dumps(ticket).encode())


def test_a_registry_that_is_down_is_one_line_in_spark(spark: SparkSession, store: SmallStore) -> None:
    frame = spark_bridge.read(
        spark,
        store.root,
        columns=["body"],
        topics=["orders"],
        decode="avro",
        avroSchema='"int"',
        schemaRegistry="http://127.0.0.1:1",
    )
    with pytest.raises(
        (AnalysisException, PythonException), match=r"SCHEMA_REGISTRY_UNREACHABLE: http://127.0.0.1:1/sch"
    ):
        frame.collect()
