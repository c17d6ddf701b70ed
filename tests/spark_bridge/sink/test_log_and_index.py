"""A task's rows in a running broker's log: each once, however often and in whatever order its attempts write them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.sink.append import Appended, NoEngine, append
from spark_bridge.sink.log import NotIndexed
from spark_bridge.sink.options import SinkColumns, WriteOptions
from spark_bridge.sink.rows import RowRefused
from spark_bridge.sink.task import TaskBusy, TaskId, TaskLock
from spark_bridge.sink.writer import sink_columns
from store.message.record import Message
from store.reading.extent import require_running
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.spark_bridge.schemas import struct
from tools.common.local_broker import LocalBroker

DDL = "topic string, tags string, keys string, properties map<string,string>, body string"
COLUMNS = sink_columns(struct(DDL), None)
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.string()),
    ]
)
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 16, "maxHashSlotNum": 1000, "maxIndexNum": 2500}
TASK = TaskId("query", 3, 1)


class Died(Exception):
    """An attempt's end in the middle."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("sink") / "master", brokerRole="ASYNC_MASTER", **SIZES) as running:
        yield running


def row(topic: str, number: int) -> dict[str, object]:
    return {
        "topic": topic,
        "tags": f"t{number % 3}" if number % 4 else None,
        "keys": f"k{number} more" if number % 5 else None,
        "properties": [(f"p{number % 90}", str(number))] if number % 2 else None,
        "body": f"body {number}",
    }


def batches(rows: list[dict[str, object]], die_after: int | None = None) -> Iterator[pa.RecordBatch]:
    """Arrow batches of some hundred rows; an attempt that dies does so behind its `die_after`-th."""
    for number, start in enumerate(range(0, len(rows), 700)):
        if number == die_after:
            raise Died
        yield pa.RecordBatch.from_pylist(rows[start : start + 700], SCHEMA)


def write(broker: LocalBroker, rows: list[dict[str, object]], task: TaskId = TASK, **how: object) -> Appended:
    die_after = how.pop("die_after", None)
    options = WriteOptions(str(broker.store), timeout_s=120.0, **how)  # type: ignore[arg-type]
    return append(batches(rows, die_after), task, options, COLUMNS, 0)  # type: ignore[arg-type]


def log_of(broker: LocalBroker, topic: str) -> list[Message]:
    reader = open_log(broker.store)
    found = messages(reader, reader.min_offset, reader.max_offset)
    return [message for message in found if message.topic == topic]


def test_every_part_of_a_row_is_in_its_message(broker: LocalBroker) -> None:
    rows = [row("parts", number) for number in range(2000)]
    assert write(broker, rows) == Appended(2000, 0)
    log = log_of(broker, "parts")
    found = {message.properties.get("KEYS") or bytes(message.body).decode(): message for message in log}
    for number, one in enumerate(rows):
        message = found[str(one["keys"] or one["body"])]
        properties = dict(message.properties)
        assert bytes(message.body).decode() == one["body"]
        assert properties.pop("TAGS", None) == one["tags"]
        assert properties.pop("KEYS", None) == one["keys"]
        assert len(properties.pop("UNIQ_KEY")) == 32
        assert properties.get(f"p{number % 90}") == (str(number) if number % 2 else None)
    queues = Counter(message.queue_id for message in found.values())
    assert len(queues) == 3  # three pieces of a thousand rows, one queue after the other


@pytest.mark.parametrize("acks", ["none", "appended", "broker"])
def test_attempts_that_die_and_are_repeated_in_another_order_write_each_row_once(
    broker: LocalBroker, acks: str
) -> None:
    topic = f"again-{acks}"
    rows = [row(topic, number // 2) for number in range(6000)]  # every row twice
    for attempt in range(3):
        order = random.Random(attempt).sample(rows, len(rows))
        with pytest.raises(Died):
            write(broker, order, die_after=2 * attempt + 1, acks=acks)
    done = write(broker, rows, acks=acks)
    assert done.appended + done.in_log == 6000
    assert done.in_log >= 700
    assert write(broker, rows, acks=acks) == Appended(0, 6000)
    found = Counter(bytes(message.body) for message in log_of(broker, topic))
    assert found == Counter(str(one["body"]).encode() for one in rows)


def test_other_epochs_partitions_and_queries_are_other_rows(broker: LocalBroker) -> None:
    rows = [row("others", number) for number in range(50)]
    tasks = [TASK, TASK._replace(epoch=4), TASK._replace(partition=2), TASK._replace(query="another")]
    for task in tasks:
        assert write(broker, rows, task) == Appended(50, 0)
    assert [write(broker, rows, task).in_log for task in tasks] == [50] * 4
    assert len(log_of(broker, "others")) == 200


def test_without_idempotence_a_repeated_task_appends_again(broker: LocalBroker) -> None:
    rows = [row("twice", number) for number in range(10)]
    for _attempt in range(2):
        assert write(broker, rows, idempotent=False) == Appended(10, 0)
    assert len(log_of(broker, "twice")) == 20


def test_two_attempts_at_once_do_not_write_together(broker: LocalBroker) -> None:
    regions = require_running(broker.store).region_directory
    with TaskLock(regions, TASK, 1.0), pytest.raises(TaskBusy), TaskLock(regions, TASK, 0.05):
        raise AssertionError("both hold it")


def test_the_epoch_behind_the_last_one_cannot_have_been_written(tmp_path: Path) -> None:
    task, seen = TaskId("noted", 7, 0), []
    for epoch in (7, 8, 8, 9, 11, 10, 11, 12):
        with TaskLock(tmp_path, task._replace(epoch=epoch), 1.0) as lock:
            seen.append(lock.may_be_written)
    assert seen == [True, False, True, False, True, True, True, False]


def test_keyed_rows_of_one_key_go_to_one_queue_and_rows_with_a_queue_to_it(broker: LocalBroker) -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("partition", pa.int32())])
    columns: SinkColumns = sink_columns(struct("key string, value string, partition int"), "keyed")
    rows = [{"key": f"k{n % 9}", "value": str(n), "partition": n % 2 if n % 9 == 0 else None} for n in range(180)]
    options = WriteOptions(str(broker.store), topic="keyed")
    append(iter([pa.RecordBatch.from_pylist(rows, schema)]), TASK, options, columns, 0)
    queues: dict[str, set[int]] = {}
    bodies: dict[tuple[str, int], list[int]] = {}
    for message in log_of(broker, "keyed"):
        key = message.properties["KEYS"]
        queues.setdefault(key, set()).add(message.queue_id)
        bodies.setdefault((key, message.queue_id), []).append(int(bytes(message.body)))
    assert queues.pop("k0") == {0, 1}
    assert {len(found) for found in queues.values()} == {1}
    assert len(set.union(*queues.values())) > 1
    assert all(found == sorted(found) for found in bodies.values())


def test_queues_that_a_topic_does_not_have_are_refused_row_by_row_and_nothing_is_sent(broker: LocalBroker) -> None:
    schema = pa.schema([("body", pa.string()), ("queueId", pa.int32())])
    columns = sink_columns(struct("body string, queueId int"), "few")
    options = WriteOptions(str(broker.store), topic="few")

    def put(*queue_ids: int | None) -> Appended:
        rows = [{"body": f"to {queue_id}", "queueId": queue_id} for queue_id in queue_ids]
        return append(iter([pa.RecordBatch.from_pylist(rows, schema)]), TASK, options, columns, 0)

    with pytest.raises(RowRefused) as told:
        put(0, 4, None, 99)
    assert [(refusal.row, refusal.what) for refusal in told.value.refusals] == [(1, "queueId 4"), (3, "queueId 99")]
    assert "topic few has queues 0 to 3; row 3 of this task" in str(told.value)
    assert log_of(broker, "few") == []
    assert put(0, 3, None) == Appended(3, 0)


def never() -> Iterator[pa.RecordBatch]:
    """Rows that nobody may ask for."""
    raise AssertionError("a row was asked for")
    yield


def test_a_missing_engine_is_reported_before_the_first_row(tmp_path: Path, broker: LocalBroker) -> None:
    for path, why in ((tmp_path / "nothing", "no such directory"), (tmp_path, "no broker runs on this store")):
        with pytest.raises(NoEngine, match=why):
            append(never(), TASK, WriteOptions(str(path)), COLUMNS, 0)
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": broker.ha_address, **SIZES}
    with LocalBroker(tmp_path / "slave", **keys) as slave, pytest.raises(NoEngine, match="the broker is a slave"):
        append(never(), TASK, WriteOptions(str(slave.store)), COLUMNS, 0)


def test_a_broker_without_an_index_is_reported_before_the_first_row(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", messageIndexEnable="false", **SIZES) as plain:
        with pytest.raises(NotIndexed, match="messageIndexEnable=false"):
            append(never(), TASK, WriteOptions(str(plain.store)), COLUMNS, 0)
        assert write(plain, [row("t", 1)], idempotent=False) == Appended(1, 0)
