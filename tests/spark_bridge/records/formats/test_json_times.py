"""Times, dates, maps and binary values of JSON bodies are what Spark's `from_json` makes of them, in any zone."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as functions
from pyspark.sql.types import StructType

from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.request import ScanRequest
from spark_bridge.options.rows import RowOptions, parse_row_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.options.zones import local_zone, zone_of
from spark_bridge.records.formats import time_texts
from spark_bridge.scanning import scan
from spark_bridge.split.splits import Selection, plan
from tests.spark_bridge.flights import FlightProcess
from tests.spark_bridge.stores import Row, SmallStore, read_rows

ZONES = (
    "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata",
    "Pacific/Apia", "+05:30", "America/St_Johns", "Africa/Casablanca",
)  # fmt: skip
ODD = (
    "", "2026", "2026-3", "2026-03-08T12:00Z", "20190101", "12345", "-141428", "-141427", "now", "2026-02-30",
    "2026-03-08T12:00:00GMT+01:00", "2026-03-08 24:00:00", "2026-12-31T23:59:60", "2026-03-08T", "2026-03-08 x",
    "2026-03-08 2:30:00.1234567 PST", " 2026-03-08 ", "+12026-03-08", "-0044-03-15 12:00:00", "294247-01-10",
    "999999-01-01", "26-01-01", "2026-03-08T2", "2026-03-08T2:3", "2026-03-08T2:3:4.", "2026-03-08t02:00:00",
    "2026-03-08 02:00:00+18:01", "2026-03-08 02:00:00right/UTC", "2026-03-08 02:00:00 Europe/Berlin", "9999999-01-01",
)  # fmt: skip


def texts(chance: random.Random, count: int) -> list[str]:
    """Times as JSON may have them, many of them near a zone's changes."""
    made = list(ODD)
    while len(made) < count:
        day = f"{chance.randint(1970, 2037)}-{chance.choice(['03', '11', '3', '10', '04', '12', '13', '02'])}"
        text = day + "-" + chance.choice(["08", "01", "1", "31", "25", "30", "29", "26", "32"])
        if chance.random() < 0.85:
            clock = [chance.choice(["02", "01", "2", "00", "03", "23", "12"]), chance.choice(["30", "00", "59", "5"])]
            text += chance.choice("T ") + ":".join([*clock, chance.choice(["00", "59", "7", "60"])])
            text += chance.choice(["", "", ".1", ".123456", ".123456789"])
            if chance.random() < 0.5:
                text += chance.choice(["Z", "+01:00", "-05:30", "+1", " UTC", "GMT+2", "America/New_York", "EST", "z"])
        made.append(text)
    return made


def test_texts_are_read_as_from_json_reads_them(spark: SparkSession) -> None:
    said = texts(random.Random(1), 400)
    bodies = spark.createDataFrame([(json.dumps(dict.fromkeys("tdn", text)),) for text in said], "v string").coalesce(1)
    value = functions.from_json("v", "t timestamp, d date, n timestamp_ntz").alias("o")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ZONES:
            spark.conf.set("spark.sql.session.timeZone", name)
            read = (
                bodies.select(value)
                .selectExpr(
                    "unix_micros(o.t)",
                    "unix_date(o.d)",
                    "IF(year(o.n) BETWEEN 1 AND 9999, unix_micros(CAST(o.n AS TIMESTAMP)), NULL)",
                    "o.n IS NULL",
                )
                .collect()
            )
            ours = [(time_texts.micros_of(text, zone_of(name)), time_texts.days_of(text)) for text in said]
            assert list(zip(said, ours, strict=True)) == [(text, row[:2]) for text, row in zip(said, read, strict=True)]
            lacking = [time_texts.local_micros_of(text) is None for text in said]
            assert lacking == [row[3] for row in read]
            if name == "UTC":
                local = [time_texts.local_micros_of(text) for text in said]
                assert all(row[2] in (None, micros) for micros, row in zip(local, read, strict=True))
                assert sum(row[2] is not None for row in read) > 50
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


DDL = (
    "t timestamp, d date, n timestamp_ntz, b binary, m map<string, int>, a array<timestamp>,"
    " mm map<string, struct<t: timestamp, m: map<string, date>>>"
)
BODIES = (
    b'{"t":"2026-03-08","d":"2026-03-08","n":"2026-03-08","b":"AQID","m":{"x":1,"y":null}}',
    b'{"a":["2026-11-01 01:30:00",null,"2026-11-01 01:30:00Z"]}',
    b'{"t":"2026-03-08T02:30:00","d":"2026-3-8 x","n":"2026-03-08 02:30:00.5","b":"","m":{},"a":[]}',
    b'{"t":1700000000,"a":[1,"2026-07-01"],"mm":{"k":{"t":"2026-01-01","m":{"z":"2026-01-02"}},"l":null}}',
    b'{"t":null,"d":null,"n":null,"b":null,"m":null,"a":null,"mm":null,"more":{"t":1}}',
)


def test_bodies_are_decoded_as_from_json_decodes_them_in_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark_bridge.driver import read
    from spark_bridge.source import RocketMQSource

    spark.dataSource.register(RocketMQSource)
    store = SmallStore(tmp_path / "store", 1 << 14)
    for body in BODIES:
        store.put("t", body)
    store.dispatch()
    frame = read(spark, store.root, columns=["queueOffset", "body"], topics=["t"], decode="json", valueSchema=DDL)
    typed = (
        spark.read.format("rocketmq")
        .option("path", str(store.root))
        .option("decode", "json")
        .schema(f"queueOffset bigint, body struct<{DDL}>")
    )
    plain = read(spark, store.root, columns=["queueOffset", "body"], topics=["t"])
    text = functions.col("body").cast("string")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ("America/New_York", "Europe/Berlin", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", name)
            theirs = plain.select("queueOffset", functions.from_json(text, DDL).alias("body"))
            rows = [str(row) for row in frame.orderBy("queueOffset").collect()]
            assert rows == [str(row) for row in theirs.orderBy("queueOffset").collect()], name
            assert rows == [str(row) for row in typed.load().orderBy("queueOffset").collect()], name
        assert frame.schema == StructType.fromDDL(f"queueOffset bigint, body struct<{DDL}>")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def options(**given: str) -> RowOptions:
    return parse_row_options({"mode": "permissive", "decode": "json", **given})


def decoded(directory: Path, bodies: list[bytes], rows: RowOptions) -> list[Row]:
    store = SmallStore(directory, 1 << 14)
    for body in bodies:
        store.put("t", body)
    names = ["physicalOffset", "_error", "body"]
    return read_rows(plan(store.extent(), [], frozenset(), Selection(), None, 1), names, rows)


def test_a_scan_reads_times_in_the_zone_of_its_process_or_in_the_one_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SmallStore(tmp_path, 1 << 14)
    store.put("t", b'{"t":"2026-03-08"}')
    store.dispatch()

    def hour(**given: str) -> int:
        rows = scan(str(store.root), columns=["body"], decode="json", valueSchema="t timestamp", **given).read_all()
        return int(rows.column("body").to_pylist()[0]["t"].hour)

    monkeypatch.setenv("TZ", "America/New_York")
    assert local_zone() == "America/New_York"
    assert (hour(), hour(timeZone="UTC"), hour(timeZone="-03:00")) == (5, 0, 3)
    monkeypatch.setenv("TZ", "Nowhere/City")
    assert hour() == 0
    with pytest.raises(InvalidOption, match=r"timeZone='Nowhere/City'.*is not a time zone"):
        hour(timeZone="Nowhere/City")
    with pytest.raises(InvalidOption, match="timeZone belongs to decode=json"):
        parse_row_options({"timeZone": "UTC"})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"t":"2026-02-30"}', "'2026-02-30' is no time"),
        (b'{"t":"2026-03-08T12:00Z"}', "is no time"),
        (b'{"t":1.5}', "1.5 seconds are no time"),
        (b'{"d":5}', "number"),
        (b'{"n":"2026-03-08 12:00:00Z"}', "is no time without a zone"),
        (b'{"b":"?"}', "is not a binary value in Base64"),
        (b'{"m":{"x":1,"x":2}}', "an object that is to be a map has a name twice"),
        (b'{"m":[1]}', "a map is to be an object"),
        (b'{"m":{"x":"1"}}', "number to string"),
    ],
)
def test_a_body_that_does_not_fit_is_reported_and_others_are_read(tmp_path: Path, body: bytes, why: str) -> None:
    good = b'{"t":"2026-03-08 12:00:00","m":{"k":7}}'
    ddl = "t timestamp, d date, n timestamp_ntz, b binary, m map<string, int>"
    rows = decoded(tmp_path, [good, body, b'{"t":60}', good], options(valueSchema=ddl, timeZone="UTC"))
    assert rows[1]["body"] is None
    assert why in rows[1]["_error"], rows[1]["_error"]
    assert [rows[number]["_error"] for number in (0, 2, 3)] == [None] * 3
    time = dt.datetime(2026, 3, 8, 12, tzinfo=dt.UTC)
    assert (rows[0]["body"]["t"], rows[0]["body"]["m"]) == (time, [("k", 7)])
    assert rows[2]["body"]["t"] == dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)


def test_the_key_of_a_map_is_a_text(spark: SparkSession) -> None:  # which reads the DDL
    with pytest.raises(InvalidOption, match="the keys of a map in JSON are texts"):
        options(valueSchema="m map<int, string>")
    as_json = StructType.fromDDL(DDL).json()
    assert options(valueSchema=as_json).value_type == options(valueSchema=DDL).value_type


def test_through_flight_times_are_in_the_readers_zone_and_of_other_clients_in_utc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SmallStore(tmp_path / "store", 1 << 14)
    store.put("t", b'{"t":"2026-03-08"}')
    store.dispatch()
    asked = {"decode": "json", "valueSchema": "t timestamp"}
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # the server's
    with FlightProcess(store.root, "--no-token") as server:
        monkeypatch.setenv("TZ", "America/New_York")
        (row,) = scan(server.location, columns=["body"], topics=["t"], **asked).read_all().to_pylist()
        with RemoteStore(server.location) as other:
            plan = other.plan(ScanRequest(("t",), ("body",), asked))
            (theirs,) = [row for ticket in plan.tickets for batch in other.read(ticket) for row in batch.to_pylist()]
    assert (row["body"]["t"].hour, theirs["body"]["t"].hour) == (5, 0)
