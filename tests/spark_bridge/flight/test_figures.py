"""What came from where, in figures: of batches and streams, in place, from servers, and from those that were left."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession

import spark_bridge
from spark_bridge.flight.errors import OtherBroker
from spark_bridge.flight.remote.anywhere import plan_anywhere, read_anywhere
from spark_bridge.options.columns import READING_COLUMN
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import IN_PLACE, columns_of
from spark_bridge.records.reading import Reading, Source, counted, counted_in_place, figures
from store.columns.columns import arrow_schema
from tests.spark_bridge.flights import TOKEN, FlightProcess, served
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import free_port

SEGMENT_BYTES = 8192
COUNT = 300
KILLS, LARGE, LARGE_BYTES = 5, 400, 1 << 18  # more behind each kill than sockets and gRPC hold
SCHEMA = pa.schema([("n", pa.int64()), (READING_COLUMN, pa.string())])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    made = SmallStore(tmp_path_factory.mktemp("figures") / "north" / "store", SEGMENT_BYTES)
    for number in range(COUNT):
        made.put("orders", b"x" * 60, number % 4)
    made.dispatch()
    return made


def copied(store: SmallStore, root: Path) -> Path:
    shutil.copytree(store.root, root / "north" / "store")
    return root / "north" / "store"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": number} for number in numbers], SCHEMA)


class Observed:
    """An Observation that has its reports."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.get = {"reading": [text for one in batches for text in one[READING_COLUMN].to_pylist() if text]}


def test_the_last_batch_of_a_split_tells_of_all() -> None:
    reading = Reading()
    reading.failed("b")
    given = [("a", batch(1, 2)), ("c", batch(3)), ("c", batch())]
    batches = list(reading.counted(given))
    assert [one["n"].to_pylist() for one in batches] == [[1, 2], [3]]
    seen = figures(Observed(batches))
    assert seen["a"] == Source(0, 2, given[0][1].nbytes, 0) and seen["b"] == Source(0, 0, 0, 1)
    assert (seen["c"].splits, seen["c"].rows) == (1, 1)
    assert list(Reading().counted([])) == []
    plain = batch(7).select(["n"])
    assert list(counted_in_place(iter([plain]), plain.schema)) == [plain]
    assert figures(Observed([])) == {}


def test_a_server_killed_five_times_in_one_read_costs_tries_and_no_row(tmp_path: Path) -> None:
    large = SmallStore(tmp_path / "north" / "store", 1 << 20)
    for number in range(LARGE):
        large.put("orders", bytes([number % 256]) * LARGE_BYTES)
    large.dispatch()
    (tmp_path / "token").write_text(TOKEN)
    columns, port = columns_of(["physicalOffset", "body", READING_COLUMN]), free_port()
    schema, arguments = arrow_schema(columns), (large.root, "--token-file", tmp_path / "token")
    lives = [FlightProcess(*arguments, port=port)]
    try:
        flights = Flights(((lives[0].location,),), TOKEN, asked={"minpartitions": "1", "topic": "orders"})
        splits, read = plan_anywhere(flights, [column.name for column in columns]), []
        for number, one in enumerate(batch for split in splits for batch in read_anywhere(split, schema)):
            read.append(one)
            if number % 3 == 1 and len(lives) <= KILLS:
                lives[-1].process.kill()
                lives[-1].__exit__()
                lives.append(FlightProcess(*arguments, port=port))
    finally:
        lives[-1].__exit__()
    table = pa.Table.from_batches(read, schema)
    assert len(lives) == KILLS + 1
    assert table["physicalOffset"].to_pylist() == large.offsets
    assert [body[:1] for body in table["body"].to_pylist()] == [bytes([n % 256]) for n in range(LARGE)]
    (seen,) = figures(Observed(read)).values()
    assert (seen.rows, seen.splits, seen.bytes > LARGE * LARGE_BYTES) == (LARGE, len(splits), True)
    assert seen.failures > 0, "not one a kill: what was on its way is read to its end, past the next server's life"


def test_unusable_replicas_are_each_tried_once_before_the_usable_one(store: SmallStore, tmp_path: Path) -> None:
    """Lagging, of another broker, gone, and last the one that has it: each once, and none is asked for ever."""
    behind = copied(store, tmp_path / "behind")
    shutil.rmtree(behind / "consumequeue")
    for segment in sorted((behind / "commitlog").iterdir())[1:]:
        segment.unlink()
    foreign = tmp_path / "south" / "store"
    shutil.copytree(store.root, foreign)
    columns = columns_of(["physicalOffset", READING_COLUMN])
    schema, nowhere = arrow_schema(columns), f"grpc://127.0.0.1:{free_port()}"
    with served(store.root) as able, served(behind) as late, served(foreign) as other:
        flights = Flights(((able.location,),), TOKEN, None, str(foreign), {"minpartitions": "1", "topic": "orders"})
        (split,) = plan_anywhere(flights, [column.name for column in columns])
        places = (nowhere, late.location, other.location, able.location)
        read = list(read_anywhere(replace(split, locations=places), schema))
        seen = figures(Observed(read))
        assert {place: source.failures for place, source in seen.items()} == {
            IN_PLACE: 1, nowhere: 1, late.location: 1, other.location: 1, able.location: 0
        }  # fmt: skip
        assert seen[able.location].rows == COUNT
        with pytest.raises(OtherBroker):
            list(read_anywhere(replace(split, locations=(other.location,)), schema))


@pytest.mark.spark
def test_spark_tells_of_batches_and_streams(spark: SparkSession, store: SmallStore, tmp_path: Path) -> None:
    with served(store.root) as server:
        for options, source in (
            ({"path": str(store.root)}, IN_PLACE),
            ({"path": server.location, "flightToken": TOKEN}, server.location),
            ({"path": server.location, "flightToken": TOKEN, "replicaPath": str(store.root)}, IN_PLACE),
        ):
            seen = Observation("reading")
            place = options.pop("path")
            frame = spark_bridge.read(spark, place, columns=["queueId", "_reading"], minPartitions=3, **options)
            grouped = counted(frame, seen).filter("queueId > 1").groupBy("queueId").count()
            assert {row[0]: row[1] for row in grouped.collect()} == {2: 75, 3: 75}
            figure = figures(seen)[source]
            assert (figure.rows, figure.failures, len(figures(seen))) == (COUNT, 0, 1)
            assert figure.splits > 1 and figure.bytes >= 4 * COUNT
            stream = spark.readStream.format("rocketmq").schema("queueId int, _reading string")
            query = counted(stream.options(path=place, **options).load()).writeStream.format("noop")
            query = query.option("checkpointLocation", str(tmp_path / f"{source[:4]}-{len(options)}"))
            running = query.trigger(availableNow=True).start()
            assert running.awaitTermination(300)
            assert figures(running.lastProgress)[source].rows == COUNT
    with pytest.raises(InvalidOption, match="name it among the columns"):
        counted(spark_bridge.read(spark, str(store.root), columns=["queueId"]))
