"""Rows through Flight into a running master's log: each once, as in place, whatever goes in the middle, for who may."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.sql import SparkSession

import spark_bridge
from spark_bridge.flight import client, puts
from spark_bridge.flight import server as server_module
from spark_bridge.flight.access import bearer
from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import InvalidPut, MayNotWrite, NotLetIn, NotWritable, PutInterrupted, ServerUnreachable
from spark_bridge.flight.puts import MESSAGES, Put, parsed
from spark_bridge.flight.remote import put_client
from spark_bridge.flight.remote.put_client import append as put
from spark_bridge.flight.server import Writers
from spark_bridge.flight.streams import Limits
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption
from spark_bridge.sink.append import Appended, append
from spark_bridge.sink.options import WriteOptions, parse_write_options
from spark_bridge.sink.rows import RowRefused
from spark_bridge.sink.task import TaskId
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import TOKEN, FlightProcess, served
from tests.spark_bridge.sink.test_log_and_index import COLUMNS, SIZES, Died, batches, log_of, row
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import LocalBroker, free_port

TASK = TaskId("remote", 1, 0)
WRITERS_TOKEN = "a-token-of-those-who-write"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("puts") / "master", brokerRole="ASYNC_MASTER", **SIZES) as running:
        yield running


@pytest.fixture(scope="module")
def place(broker: LocalBroker) -> Iterator[str]:
    with served(broker.store, writers=Writers()) as server:
        yield server.location


def options(*places: str, token: str | None = TOKEN, **how: Any) -> WriteOptions:
    return WriteOptions(places[0], flights=Flights((places,), token), **{"timeout_s": 120.0, **how})


def write(place: str, rows: list[dict[str, object]], task: TaskId = TASK, **how: Any) -> Appended:
    return put(batches(rows), task, options(place, **how), COLUMNS, 0)


def bodies(broker: LocalBroker, topic: str) -> Counter[str]:
    return Counter(bytes(message.body).decode() for message in log_of(broker, topic))


def raw(location: str, command: bytes, schema: pa.Schema, sent: list[pa.RecordBatch], token: str = TOKEN) -> bytes:
    """What a client of anybody's makes of a put."""
    with RemoteStore(location, token) as store, store.putting(command, schema) as call:
        for batch in sent:
            call.send(batch)
        return call.answer()


def message(**fields: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"topic": "t", "body": b"b", **fields}], MESSAGES)


def test_a_task_repeated_here_and_there_has_each_row_once(broker: LocalBroker, place: str) -> None:
    rows = [row("both", number // 2) for number in range(3000)]  # every row twice
    for attempt in range(2):
        order = random.Random(attempt).sample(rows, len(rows))
        with pytest.raises(Died):
            put(batches(order, die_after=1 + attempt), TASK, options(place), COLUMNS, 0)
    with pytest.raises(Died):
        append(batches(rows, die_after=2), TASK, WriteOptions(str(broker.store), timeout_s=120.0), COLUMNS, 0)
    finished = write(place, rows)
    assert finished.appended + finished.in_log == 3000 and finished.in_log >= 700
    assert append(batches(rows), TASK, WriteOptions(str(broker.store), timeout_s=120.0), COLUMNS, 0) == (0, 3000)
    assert write(place, rows) == (0, 3000)
    assert bodies(broker, "both") == Counter(str(one["body"]) for one in rows)
    (first,) = [one for one in log_of(broker, "both") if one.properties.get("KEYS") == "k7 more"][:1]
    assert first.properties["p7"] == "7" and first.properties["TAGS"] == "t1"


@pytest.mark.parametrize("kept_bytes", [16 << 20, 0])
def test_a_server_killed_in_the_middle_leaves_each_row_once(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Few rows are sent again by the same task; of many the task is told to run again, as Spark has it do."""
    monkeypatch.setattr(put_client, "KEPT_BYTES_MAX", kept_bytes)
    topic, port = f"killed-{kept_bytes}", free_port()
    rows = [row(topic, number // 2) for number in range(4200)]
    (tmp_path / "token").write_text(TOKEN)
    arguments = (broker.store, "--token-file", tmp_path / "token", "--writable")
    kills = [FlightProcess(*arguments, port=port)]

    def dying() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(rows)):
            yield batch
            if number == 3:
                await_that(lambda: bool(log_of(broker, topic)), "some rows are in the log")
                kills[0].process.kill()
                kills[0].process.wait()
                kills.append(FlightProcess(*arguments, port=port))

    try:
        target = options(kills[0].location)
        if kept_bytes:
            finished = put(dying(), TASK, target, COLUMNS, 0)
        else:
            with pytest.raises(PutInterrupted, match="run the task again"):
                put(dying(), TASK, target, COLUMNS, 0)
            finished = put(batches(rows), TASK, target, COLUMNS, 0)
        assert finished.appended + finished.in_log == 4200 and finished.in_log > 0
    finally:
        for process in kills:
            process.__exit__()
    assert bodies(broker, topic) == Counter(str(one["body"]) for one in rows)


def test_the_master_is_looked_for_among_the_replicas_servers(
    broker: LocalBroker, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    at_rest = SmallStore(tmp_path / "rest" / "store", 4096)
    at_rest.put("orders")
    with served(at_rest.root, writers=Writers()) as other, served(broker.store) as reading:
        nowhere = f"grpc://127.0.0.1:{free_port()}"
        places = (nowhere, other.location, reading.location, place)
        assert put(batches([row("sought", 1)]), TASK, options(*places), COLUMNS, 0) == (1, 0)
        for refused in ((other.location,), (reading.location,), (other.location, reading.location)):
            with pytest.raises(NotWritable, match="no server accepts messages"):
                put(batches([row("sought", 1)]), TASK, options(*refused), COLUMNS, 0)
            with pytest.raises(NotWritable):
                raw(refused[0], Put(TASK).encoded(), MESSAGES, [message()])
        with pytest.raises(PutInterrupted):
            put(batches([row("sought", 1)]), TASK, options(nowhere, timeout_s=0.1), COLUMNS, 0)
    assert len(log_of(broker, "sought")) == 1


def test_a_reader_writes_nothing(broker: LocalBroker) -> None:
    with served(broker.store, ["mine"], writers=Writers(WRITERS_TOKEN)) as server:
        for token, topic, refusal in (
            (TOKEN, "mine", MayNotWrite), (None, "mine", NotLetIn), ("another-token-altogether", "mine", NotLetIn),
            (WRITERS_TOKEN, "others", MayNotWrite), (WRITERS_TOKEN, "TBW102", MayNotWrite),
        ):  # fmt: skip
            with pytest.raises(refusal):
                write(server.location, [row(topic, 1)], token=token)
            assert log_of(broker, topic) == []
        assert write(server.location, [row("mine", 1)], token=WRITERS_TOKEN) == (1, 0)
        with RemoteStore(server.location, WRITERS_TOKEN) as store:
            await_that(lambda: store.topics() == {"mine": 1}, "who writes reads, too, once it is in its queue")
    with served(broker.store, writers=Writers(WRITERS_TOKEN)) as server, pytest.raises(MayNotWrite, match="RMQ_SYS"):
        write(server.location, [row("RMQ_SYS_TRACE_TOPIC", 1)], token=WRITERS_TOKEN)


COMMAND = json.loads(Put(TASK).encoded())


@pytest.mark.parametrize(
    "command",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 50_000, b"x" * (1 << 17),
        *(json.dumps({**COMMAND, **change}).encode() for change in (
            {"version": 2}, {"version": True}, {"query": ""}, {"query": 7}, {"query": "a\nb"}, {"query": "q" * 2000},
            {"epoch": -1}, {"partition": "0"}, {"acks": "most"}, {"idempotent": 1}, {"keyed": None}, {"timeout": 0},
            {"timeout": float("nan")}, {"timeout": True}, {"since": 1 << 70}, {"path": "/etc"},
        )),
    ],
)  # fmt: skip
def test_commands_of_no_writer_are_refused(command: bytes) -> None:
    with pytest.raises(InvalidPut) as refusal:
        parsed(command)
    assert "\n" not in str(refusal.value)


def broken() -> pa.RecordBatch:
    """Of whose two bodies one ends far beyond the buffers, while all of them together do not."""
    good = pa.RecordBatch.from_pylist([{"topic": "t"}] * 2, MESSAGES)
    offsets = pa.array([0, 1 << 30, 1], pa.int32()).buffers()[1]
    body = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"b")])
    return pa.RecordBatch.from_arrays([*good.columns[:4], body, good.columns[5]], schema=MESSAGES)


def test_rows_of_no_writer_are_refused_and_the_next_put_is_served(
    broker: LocalBroker, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_command = Put(TASK).encoded()
    other = pa.schema([pa.field("body", pa.binary())])
    monkeypatch.setattr(puts, "BATCH_ROWS_MAX", 10)
    for schema, batch, code in (
        (other, pa.RecordBatch.from_pylist([{"body": b"b"}], other), "INVALID_PUT"),
        (MESSAGES, broken(), "INVALID_PUT"),
        (MESSAGES, pa.RecordBatch.from_pylist([{"topic": "t", "body": b""}] * 11, MESSAGES), "INVALID_PUT"),
        (MESSAGES, message(topic="../../etc"), "ROW_REFUSED"),
        (MESSAGES, message(topic=None), "ROW_REFUSED"),
        (MESSAGES, message(body=None), "ROW_REFUSED"),
        (MESSAGES, message(body=b"x" * (1 << 17)), "ROW_REFUSED"),
        (MESSAGES, message(queueId=-1), "ROW_REFUSED"),
        (MESSAGES, message(queueId=99), "ROW_REFUSED"),
        (MESSAGES, message(tags="a\x01b"), "ROW_REFUSED"),
        (MESSAGES, message(properties=[("UNIQ_KEY", "forged")]), "ROW_REFUSED"),
        (MESSAGES, message(properties=[("p", "x" * (1 << 16))]), "ROW_REFUSED"),
        (MESSAGES, message(topic="%DLQ%g" + "x" * 300), "ROW_REFUSED"),
    ):
        with pytest.raises(Exception, match=r"\w") as refusal:
            raw(place, put_command, schema, [batch])
        assert getattr(refusal.value, "code", None) == code, refusal.value
        assert str(broker.store) not in str(refusal.value)
    assert log_of(broker, "t") == []
    assert json.loads(raw(place, put_command, MESSAGES, [message()])) == {"appended": 1, "inLog": 0}
    with pytest.raises(RowRefused, match="row 1 of this task: body"):
        put(batches([row("t", 1), {**row("t", 2), "body": None}]), TASK, options(place), COLUMNS, 0)


def test_what_a_writer_may_hold_is_bounded(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOOK_S", 0.05)
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    with served(broker.store, writers=Writers(), limits=Limits(puts=1)) as server:
        writing = flight.connect(server.location)
        call = flight.FlightCallOptions(headers=bearer(TOKEN))
        descriptor = flight.FlightDescriptor.for_command(Put(TASK).encoded())
        silent, _answer = writing.do_put(descriptor, MESSAGES, call)
        await_that(lambda: len(server._streams) == 1, "it has begun")
        with monkeypatch.context() as patch:
            patch.setattr(puts.Incoming, "patience_s", 0.3)
            await_that(lambda: len(server._streams) == 0, "a writer that says nothing is hung up on")
        with pytest.raises(pa.ArrowException):
            silent.close()
        writing.close()
        assert write(server.location, [row("after", 1)]) == (1, 0), "its turn and its lock are given back"
    with pytest.raises((ServerUnreachable, PutInterrupted)):
        write(server.location, [row("after", 2)], timeout_s=0.1)


def test_a_writer_that_went_before_its_answer_is_no_fault_of_the_system() -> None:
    class Gone:
        def write(self, _answer: bytes) -> None:
            raise OSError("Unknown error writing metadata.")

    with pytest.raises(InvalidPut, match="7 of its rows were appended"):
        puts.answer(Gone(), Appended(7, 0))


def test_options_of_a_write_through_flight(tmp_path: Path) -> None:
    given = {"path": "grpc://a:1,grpc+tls://b:2", "flightToken": "t", "topic": "orders"}
    parsed_options = parse_write_options(given, overwrite=False)
    assert parsed_options.flights is not None and parsed_options.flights.stores == (("grpc://a:1", "grpc+tls://b:2"),)
    assert "'t'" not in repr(parsed_options.flights)
    for wrong, match in (
        ({"path": "grpc://a"}, "not an address"),
        ({"replicaPath": "/x"}, "unknown option"),
        ({"path": str(tmp_path)}, "flightToken belongs to"),
    ):
        with pytest.raises(InvalidOption, match=match):
            parse_write_options({**given, **wrong}, overwrite=False)


@pytest.mark.spark
def test_spark_writes_and_streams_where_it_has_no_master(
    spark: SparkSession, broker: LocalBroker, place: str, tmp_path: Path
) -> None:
    target = {"path": f"grpc://127.0.0.1:{free_port()},{place}", "flightToken": TOKEN}
    columns = "'far' AS topic", "concat('k', id) AS key", "cast(id AS string) AS value"
    frame = spark.range(0, 300, 1, 3).selectExpr(*columns)
    for _attempt in range(2):
        frame.write.format("rocketmq").mode("append").options(**target, writeId="day-1").save()
    assert bodies(broker, "far") == Counter(map(str, range(300)))
    checkpoint = tmp_path / "checkpoint"
    for _run in range(2):
        source = spark.readStream.format("rocketmq").options(path=place, flightToken=TOKEN, topic="far")
        copied = source.schema("queueId int, body binary").load().selectExpr("body")
        writer = copied.writeStream.format("rocketmq").options(**target, topic="copied")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        for commit in (checkpoint / "commits").glob("[0-9]*"):  # the driver died before it noted that it is done
            commit.unlink()
    assert bodies(broker, "copied") == Counter(map(str, range(300)))
    read = spark_bridge.read(spark, place, columns=["body"], topics=["copied"], flightToken=TOKEN)
    assert read.count() == 300
