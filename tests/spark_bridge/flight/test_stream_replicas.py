"""A checkpoint in a real Spark: in place, through servers of a master and its slave, and of the slave promoted."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_bridge
from engine.producer import Producer
from spark_bridge.flight.remote.put_client import append as put
from spark_bridge.flight.server import Writers
from spark_bridge.options.flights import Flights
from spark_bridge.records.columns import IN_PLACE
from spark_bridge.sink.options import WriteOptions
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.sink.test_log_and_index import COLUMNS, TASK, log_of, row
from tests.spark_bridge.sink.test_log_and_index import batches as batches_of
from tests.spark_bridge.stores import SmallStore
from tests.spark_bridge.streams import Batches, Rows, await_rows, drain, rows_of, start
from tests.spark_bridge.test_live import SIZES, await_slave
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

NAME = {"brokerName": "north"}


def send(broker: LocalBroker, bodies: list[bytes]) -> Rows:
    with Producer(broker.store, timeout=60.0) as producer:
        answers = [(body, producer.send("orders", body)) for body in bodies]
    assert {answer.status.name for _, answer in answers} == {"PUT_OK"}
    return [("orders", answer.queue_id, answer.queue_offset, body) for body, answer in answers]


def places_of(broker: LocalBroker, topic: str) -> list[tuple[int, int, bytes]]:
    return [(one.queue_id, one.queue_offset, bytes(one.body)) for one in log_of(broker, topic)]


def test_a_checkpoint_goes_from_a_store_here_to_one_elsewhere_to_its_slave_and_to_the_slave_promoted(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, batches = tmp_path / "checkpoint", Batches()
    with ExitStack() as up:
        master = up.enter_context(LocalBroker(tmp_path / "m", brokerRole="SYNC_MASTER", brokerId=0, **NAME, **SIZES))
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **NAME, **SIZES}
        slave = up.enter_context(LocalBroker(tmp_path / "s", **keys))
        await_slave(master)
        sent = send(master, [b"%d" % number * 500 for number in range(200)])
        drain(spark, master.store, checkpoint, batches)
        first, second = (up.enter_context(served(broker.store, writers=Writers())) for broker in (master, slave))
        both = f"{first.location},{second.location}"
        sent += send(master, [b"through the master's server"] * 40)
        drain(spark, first.location, checkpoint, batches, flightToken=TOKEN, maxOffsetsPerTrigger="25")
        sent += send(master, [b"through the slave's"] * 40)
        query = start(spark, second.location, checkpoint, batches, continuous=True, flightToken=TOKEN)
        await_rows(query, lambda: len(rows_of(batches)) == len(sent))
        query.stop()
        query = start(spark, both, checkpoint, batches, continuous=True, flightToken=TOKEN)
        sent += send(master, [b"while it runs"] * 40)
        await_rows(query, lambda: len(rows_of(batches)) == len(sent))
        rows = [row("written", number) for number in range(300)]
        target = WriteOptions(both, flights=Flights((tuple(both.split(",")),), TOKEN), timeout_s=120.0)
        assert put(batches_of(rows), TASK, target, COLUMNS, 0) == (300, 0)
        first.stop()
        master.stop()
        slave.stop()
        promoted = up.enter_context(LocalBroker(tmp_path / "s", brokerRole="ASYNC_MASTER", brokerId=0, **NAME, **SIZES))
        assert put(batches_of(rows), TASK, target, COLUMNS, 0) == (0, 300), "it was written before the promotion"
        sent += send(promoted, [b"of the new master"] * 40)
        sent += [("written", *one) for one in places_of(promoted, "written")]
        await_rows(query, lambda: len(rows_of(batches)) == len(sent))
        # Of the last batch Spark tells a moment after its rows are here.
        await_rows(query, lambda: (query.lastProgress or {}) and spark_bridge.lag(query.lastProgress).rows_behind == 0)
        query.stop()
    assert rows_of(batches) == sorted(sent)


def test_a_replica_that_was_set_back_is_refused_as_in_place(spark: SparkSession, tmp_path: Path) -> None:
    store, batches = SmallStore(tmp_path / "north" / "store"), Batches()
    for number in range(30):
        store.put("orders", b"%d" % number)
    store.dispatch()
    shutil.copytree(store.root, tmp_path / "rewound" / "north" / "store")
    for number in range(30, 50):
        store.put("orders", b"%d" % number)
    store.dispatch()
    with served(store.root) as server, served(tmp_path / "rewound" / "north" / "store") as rewound:
        options = {"flightToken": TOKEN, "replicaPath": str(store.root)}
        drain(spark, server.location, tmp_path / "checkpoint", batches, **options)
        assert len(rows_of(batches)) == 50
        with pytest.raises(StreamingQueryException, match=r"DATA_LOST: .*read to offset 50 but ends at 30"):
            drain(spark, rewound.location, tmp_path / "checkpoint", batches, flightToken=TOKEN)
        frame = spark.readStream.format("rocketmq").schema("topic string, _replica string").options(**options)
        seen: set[str] = set()
        frame.option("path", server.location).load().writeStream.option(
            "checkpointLocation", str(tmp_path / "other")
        ).trigger(availableNow=True).foreachBatch(
            lambda batch, _number: seen.update(row[0] for row in batch.select("_replica").distinct().collect())
        ).start().awaitTermination(120)
        assert seen == {IN_PLACE}, "each host reads its own replica"
