"""Batches of a consumer as Arrow: the rows of a scan, each once, acknowledged when the loop comes back."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.clients.blocks import blocks_of
from engine.clients.cluster import Place
from engine.clients.consuming.arrow_batches import columns_named, made_batches
from engine.clients.consuming.assigned_queue import AssignedQueue
from engine.clients.consuming.database_offsets import DatabaseOffsets
from engine.clients.consuming.shelf import HandedBlock
from engine.clients.names import ClientError
from engine.clients.sending.messages import send_fields
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from ipc import extras
from spark_bridge.scanning import scan
from store.message import properties as property_string
from store.message.record import SysFlag, encode
from store.message.walk_kernel import ALL_TAGS
from tests.engine.clients.consuming.test_local_consumer import item
from tests.harness.conditions import SECONDS
from tests.harness.consumers import FIRST, SIZES, Broker, make_batch_topic, send
from tools.common.local_broker import LocalBroker


def send_raw(
    broker: LocalBroker, topic: str, body: bytes, flag: int = 0, code: int = RequestCode.SEND_MESSAGE_V2
) -> None:
    """Send what no producer of Slipstream sends: `flag` is the system flag."""
    with RemotingClient(f"127.0.0.1:{broker.port}", timeout=120.0) as client:
        is_batch = {"m": "true"} if code == RequestCode.SEND_BATCH_MESSAGE else {}
        client.ask(code, {**send_fields("p", topic, 0, "", 1), "f": str(flag), **is_batch}, body)


def batches_of(broker: Broker, topic: str, count: int, topics: Any = None, **given: Any) -> list[pa.RecordBatch]:
    """The first batches that a new member of the group gets, with `count` rows; all but the last are acknowledged."""
    batches: list[pa.RecordBatch] = []
    with broker.consumer(topic, topics or topic, **FIRST) as consumer, closing(consumer.batches(**given)) as loop:
        while sum(batch.num_rows for batch in batches) < count:
            batches.append(next(loop))
    return batches


def texts(*batches: pa.RecordBatch) -> list[str]:
    return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]


def in_place_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["queueId"], row["queueOffset"]))


def test_batches_are_the_rows_of_a_scan(broker: Broker, topic: str) -> None:
    for number in range(40):
        fields = {"tags": f"t{number % 3}", "keys": [f"k{number}", "ü"], "properties": {"x": "y" * number}}
        send(broker, topic, [f"{number} ".ljust(number * 7, "ö")], number % 4, **(fields if number % 5 else {}))
    batches = batches_of(broker, topic, 40, max_messages=7)
    assert max(batch.num_rows for batch in batches) <= 7
    read = scan(broker.store, topics=[topic], zero_copy=True).read_all()
    assert batches[0].schema == read.schema
    assert in_place_order(pa.Table.from_batches(batches)) == in_place_order(read)


def test_a_batch_is_acknowledged_when_the_loop_comes_back(broker: Broker, topic: str) -> None:
    send(broker, topic, [str(number) for number in range(6)])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        loop = consumer.batches(2)
        first, second = next(loop), next(loop)
        loop.close()
        [place] = [place for place in consumer.assignment() if place.topic == topic and place.queue_id == 0]
        assert consumer.position(place) == first.num_rows, "the second one is not acknowledged"
        again = next(consumer.batches(9))
        assert texts(first, again)[:2] == texts(first, second)[:2]
    everything = texts(*batches_of(broker, topic, 6 - first.num_rows))
    assert texts(first) + everything == list("012345")


def test_a_body_outlives_its_consumer(broker: Broker, topic: str) -> None:
    bodies = [str(number) * 1000 for number in range(5)]
    send(broker, topic, bodies)
    batches = batches_of(broker, topic, 5, columns=["queueId", "body"])
    gc.collect()
    assert texts(*batches) == bodies and batches[0].schema.names == ["queueId", "body"]


def test_tags_choose_rows(broker: Broker, topic: str) -> None:
    for number, tag in enumerate(["Aa", "BB", "C", None, "Aa"]):  # the first two have one hash
        send(broker, topic, [str(number)], tags=tag)
    assert texts(*batches_of(broker, topic, 3, {topic: "Aa || C"})) == ["0", "2", "4"]


def test_compressed_bodies_come_inflated_and_a_false_one_null(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("store.columns.bodies.INFLATED_BYTES_MAX", 10)
    send(broker, topic, ["plain"])
    for body in (zlib.compress(b"squeezed"), b"false", zlib.compress(b"squeezed more")):
        send_raw(broker, topic, body, SysFlag.COMPRESSED)
    send(broker, topic, ["behind"])
    batches = batches_of(broker, topic, 5)
    bodies = [body for batch in batches for body in batch.column("body").to_pylist()]
    assert bodies == [b"plain", b"squeezed", None, b"squeezed more", b"behind"]
    assert "a body is null in its batch" in caplog.text


def test_the_messages_of_an_inner_batch_are_rows(tmp_path: Path) -> None:
    with Broker(tmp_path / "b", compat="5", **SIZES) as broker:
        assert isinstance(broker, Broker)
        with RemotingClient(broker.address, timeout=120.0) as client:
            make_batch_topic(client)
        for first in (0, 3):
            body = b"".join(item(str(number).encode()) for number in range(first, first + 3))
            send_raw(broker, "t", body, code=RequestCode.SEND_BATCH_MESSAGE)
        send(broker, "other", ["end"])
        for is_local in (True, False):
            broker.is_local = is_local
            with broker.consumer(f"g{is_local}", "t", **FIRST) as consumer:
                rows: list[dict[str, Any]] = []
                for batch in consumer.batches(4):
                    rows += batch.to_pylist()
                    if len(rows) == 6:
                        break
            assert [(row["body"], row["queueOffset"]) for row in rows] == [(b"%d" % n, n) for n in range(6)]
            assert {row["sysFlag"] for row in rows} == {0}


def test_rows_that_are_given_back_come_again_alone(broker: Broker, topic: str) -> None:
    send(broker, topic, list("abc"))
    rows: list[dict[str, Any]] = []
    with broker.consumer(topic, topic, **FIRST) as consumer:
        for batch in consumer.batches():
            rows += batch.to_pylist()
            for number, body in enumerate(texts(batch)):
                if body == "b" and batch.column("reconsumeTimes")[number].as_py() == 0:
                    with pytest.raises(ClientError, match=rf"row {batch.num_rows}"):
                        consumer.retry_rows(batch, [batch.num_rows])
                    consumer.retry_rows(batch, [number, number])
            if len(rows) == 4:
                break
        with pytest.raises(ClientError, match="not the one that a loop"):
            consumer.retry_rows(batch, [0])
    assert [row["body"] for row in rows] == [b"a", b"b", b"c", b"b"]
    assert (rows[3]["topic"], rows[3]["reconsumeTimes"], rows[3]["queueId"]) == (topic, 1, 0)


def test_in_order_a_queue_waits_for_its_batch(broker: Broker, topic: str) -> None:
    for queue_id in (0, 1):
        send(broker, topic, [f"{queue_id}{number}" for number in range(4)], queue_id)
    with broker.consumer(topic, topic, ordered=True, **FIRST) as consumer:
        loop, seen = consumer.batches(2), list[str]()
        while len(seen) < 8:
            batch = next(loop)
            in_hand = {row["queueId"] for row in batch.to_pylist()}
            others = consumer.poll(1, 0.0)
            assert in_hand.isdisjoint(message.queue_id for message in others)
            for message in others:
                seen.append(message.text)
                message.ack()
            seen += texts(batch)
            with pytest.raises(ClientError, match="gives no rows back"):
                consumer.retry_rows(batch, [0])
        loop.close()
    for queue_id in (0, 1):
        assert [one[1] for one in seen if one[0] == str(queue_id)] == list("0123")


def test_batches_and_polls_share_what_waits(broker: Broker, topic: str) -> None:
    send(broker, topic, [str(number) for number in range(30)])
    seen: list[str] = []
    with broker.consumer(topic, topic, **FIRST) as consumer, closing(consumer.batches(4)) as loop:
        while len(seen) < 30:
            seen += [message.text for message in consumer.poll(3, 0.0)]
            seen += texts(next(loop)) if len(seen) < 30 else []
    assert sorted(seen, key=int) == [str(number) for number in range(30)]


def test_threads_get_each_row_once_and_stop_ends_them(broker: Broker, topic: str) -> None:
    for queue_id in range(4):
        send(broker, topic, [f"{queue_id}{number}" for number in range(30)], queue_id)
    seen: list[str] = []
    with broker.consumer(topic, topic, **FIRST) as consumer:

        def work() -> None:
            for batch in consumer.batches(5):
                seen.extend(texts(batch))
                if len(seen) == 120:
                    consumer.stop()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
    assert len(set(seen)) == len(seen) == 120


def test_a_loop_ends_when_nothing_comes(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        assert texts(next(consumer.batches())) == ["one"]
        assert texts(*consumer.batches(timeout=0.5)) == ["one"], "the loop that was left did not acknowledge it"
        assert [*consumer.batches(timeout=0.0)] == []


def test_a_coroutine_loops_over_batches(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two"])

    async def program() -> list[str]:
        seen: list[str] = []
        async with broker.consumer(topic, topic, **FIRST) as consumer:
            async for batch in consumer.batches_awaited(1):
                seen += texts(batch)
                if len(seen) == 2:
                    break
        return seen

    assert asyncio.run(program()) == ["one", "two"]


def test_what_batches_cannot_do_is_refused(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = broker.consumer(topic, topic, **FIRST)
    with pytest.raises(ClientError, match="no column 'colour'; these are: topic, queueId"):
        consumer.batches(columns=["body", "colour"])
    with pytest.raises(ClientError, match="max_messages=0"):
        consumer.batches(0)
    offsets = DatabaseOffsets(lambda: sqlite3.connect(":memory:"), "t")
    for options in ({"acknowledges": False}, {"ordered": True, "offsets": offsets}):
        with (
            closing(broker.consumer(topic, topic, **options)) as other,
            pytest.raises(ClientError, match="acknowledged as a whole"),
        ):
            other.batches()
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(extras.ExtraMissing, match=r"batches of messages needs the package pyarrow.*log\[arrow\]"):
        consumer.batches_awaited()
    consumer.close()


def test_a_row_shows_another_topic_only_where_it_came_through_a_retry_topic() -> None:
    handed = []
    for topic in ("%RETRY%g", "another"):
        properties = property_string.format({"RETRY_TOPIC": "orders"})
        [block] = blocks_of(encode(topic=topic, body=b"x", properties=properties), ALL_TAGS, 0, "b")
        handed.append(HandedBlock(block, AssignedQueue(Place(topic, "b", 0), 0), 0))
    [made] = made_batches(handed, columns_named(["topic"]))
    assert made.batch.column("topic").to_pylist() == ["orders", "another"]
