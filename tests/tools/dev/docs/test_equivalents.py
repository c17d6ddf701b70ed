"""The table of equivalents of the page on Python clients: each cell is run with the library of its column.

kafka-python and confluent-kafka run at the cluster that librdkafka has for tests, redis-py at a Redis server, and
Slipstream's at a broker. What a cell leaves out, as where a consumer connects to, is completed by names of this test.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from engine.clients.consuming.consumer import Consumer
from engine.clients.sending.producer import RemoteProducer
from tests.harness.conditions import SECONDS, await_that
from tests.harness.page_blocks import ROOT
from tools.common.local_broker import LocalBroker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how they read their versions
    import confluent_kafka
    import kafka
    from confluent_kafka.aio import AIOConsumer

COLUMNS = ("kafka-python", "confluent-kafka", "redis-py streams", "here")
SPAN, LOOP, SETTING = re.compile(r"`([^`]+)`"), re.compile(r"for m in (\w+)$"), re.compile(r"([a-z_]+)=[^=]+$")
STATEMENTS = {"async for", "with"}  # the tests of consumers have them
MS = 1000 * SECONDS
Names = dict[str, Any]


def cells(column: str) -> list[tuple[str, list[str]]]:
    """The code in each cell of a column, with the first cell of its row."""
    text = (ROOT / "docs" / "python-clients.md").read_text()
    section = text.split("## Coming from", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split(" | ") for line in section.split("\n") if line[:1] == "|" and "---" not in line]
    header, *rows = [[cell.strip() for cell in row] for row in rows]
    assert tuple(header[1:]) == COLUMNS
    return [(row[0], SPAN.findall(row[header.index(column)])) for row in rows]


def run(span: str, names: Names) -> None:
    """Run one piece of code. A setting is completed as `completed` says, and a callable's bare name calls it."""
    if loop := LOOP.match(span):
        names["m"] = next(iter(names[loop[1]]))
        return
    setting = SETTING.match(span)
    completed = names["completed"].get(setting[1] if setting else span)
    value = eval((completed or "{}").format(span), names)
    if completed is None and span.isidentifier() and callable(value):
        value = value()
    if inspect.iscoroutine(value):
        asyncio.run(value)


@contextmanager
def cluster() -> Iterator[str]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=SECONDS).brokers.values()
    yield f"{broker.host}:{broker.port}"


@contextmanager
def kafka_python(_folder: Path) -> Iterator[Names]:
    with cluster() as at, ExitStack() as ended:
        how = {"bootstrap_servers": at, "api_version": (2, 0)}
        send = ended.enter_context(contextlib.closing(kafka.KafkaProducer(**how))).send
        for _ in range(5):
            send("t", b"body", partition=0).get(SECONDS)

        def joined(*args: Any, **options: Any) -> Any:
            made = kafka.KafkaConsumer(*args, **{"auto_offset_reset": "earliest", **how, **options})
            return ended.enter_context(contextlib.closing(made))

        consumer = joined("t", group_id="g")
        await_that(lambda: consumer.poll(timeout_ms=100, max_records=1), "a first message arrives")
        tp = kafka.TopicPartition("t", 0)
        names = {one: getattr(consumer, one) for one in "poll commit seek pause resume assignment committed".split()}
        yield {
            **names, "KafkaConsumer": joined, "consumer": consumer, "t": "t", "g": "g2", "tp": tp, "n": 1, "b": b"x",
            "send": send, "position": partial(consumer.position, tp), "close": lambda: None,
            "end_offsets": partial(consumer.end_offsets, [tp]), "k": b"k",
            "offsets_for_times": partial(consumer.offsets_for_times, {tp: 1}),
            "completed": {
                "timeout_ms": "poll({})", "enable_auto_commit": "KafkaConsumer(t, group_id='g3', {})",
                "auto_offset_reset": "KafkaConsumer(t, group_id='g4', {})", "key": "send(t, b, {})",
                "position(tp)": "consumer.{}",
            },
        }  # fmt: skip


@contextmanager
def confluent(_folder: Path) -> Iterator[Names]:
    with cluster() as at:
        conf = {"bootstrap.servers": at, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        producer = confluent_kafka.Producer({"bootstrap.servers": at, "log_level": 0})
        for _ in range(5):
            producer.produce("t", b"body", b"key", 0)
        assert producer.flush(SECONDS) == 0
        consumer = confluent_kafka.Consumer({**conf, "enable.auto.offset.store": False})
        consumer.subscribe(["t"])
        m = consumer.poll(SECONDS)
        tp = confluent_kafka.TopicPartition("t", 0, 0)

        def configured(key: str, value: object) -> None:
            confluent_kafka.Consumer({**conf, key: value}).close()

        async def in_asyncio() -> None:
            one = AIOConsumer(conf)
            await one.subscribe(["t"])
            await one.close()

        plain = "store_offsets commit assignment committed position close".split()
        yield {
            **{one: getattr(consumer, one) for one in plain}, "Consumer": lambda _conf: confluent_kafka.Consumer(conf),
            "conf": conf, "t": "t", "tp": tp, "n": 1, "m": m, "b": b"x", "k": b"k", "f": lambda _error, _m: None,
            "poll": partial(consumer.poll, SECONDS), "consume": lambda count: consumer.consume(count, SECONDS),
            "subscribe": consumer.subscribe, "TopicPartition": tp, "seek": consumer.seek, "configured": configured,
            "offsets_for_times": partial(consumer.offsets_for_times, [tp], SECONDS),
            "pause": partial(consumer.pause, [tp]), "resume": partial(consumer.resume, [tp]),
            "get_watermark_offsets": partial(consumer.get_watermark_offsets, tp, SECONDS), "AIOConsumer": in_asyncio,
            "produce": producer.produce, "flush": producer.flush,
            "completed": {
                "enable.auto.commit": "configured('{}', False)", "auto.offset.reset": "configured('{}', 'latest')",
                "timeout": "consumer_poll({})", "key": "produce(t, b, {})",
            },
            "consumer_poll": consumer.poll,
        }  # fmt: skip


@contextmanager
def redis_py(folder: Path) -> Iterator[Names]:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on this machine: install Debian's package redis-server")
    path = folder / "s"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            await_that(path.exists, "Redis listens")
            with redis.Redis(unix_socket_path=str(path)) as one:
                created = one.xgroup_create("t", "g", id="0", mkstream=True)
                added = [one.xadd("t", {"body": str(number)}) for number in range(9)]
                read = partial(one.xreadgroup, "g", "me", {"t": ">"})
                assert created and len(read(count=2)[0][1]) == 2

                async def in_asyncio() -> None:
                    async with redis.asyncio.Redis(unix_socket_path=str(path)) as other:
                        assert await other.xreadgroup("g", "me", {"t": ">"}, count=1)

                yield {
                    "xgroup_create": partial(one.xgroup_create, "t", "g2", id="0"), "xreadgroup": read, "n": 1,
                    "xack": partial(one.xack, "t", "g", added[0]), "fields": read(count=1)[0][1][0][1],
                    "xclaim": partial(one.xclaim, "t", "g", "another", 0, [added[1]]),
                    "xgroup_setid": partial(one.xgroup_setid, "t", "g", "0"), "in_asyncio": in_asyncio,
                    "xinfo_groups": partial(one.xinfo_groups, "t"), "xadd": partial(one.xadd, "t", {"body": "x"}),
                    "completed": {
                        "block": "xreadgroup({})", "NOACK": "xreadgroup(noack=True)", "redis.asyncio": "in_asyncio()",
                    },
                }  # fmt: skip
        finally:
            server.terminate()


@contextmanager
def here(folder: Path) -> Iterator[Names]:
    settings = {"mappedFileSizeCommitLog": 1 << 20, "brokerFastFailureEnable": "false"}
    with LocalBroker(folder / "b", **settings, osPageCacheBusyTimeOutMills=600_000) as broker, ExitStack() as ended:
        at = f"127.0.0.1:{broker.port}"
        producer = ended.enter_context(RemoteProducer(broker=at, group="p", timeout=120.0))
        for _ in range(5):
            producer.send("t", b"body", keys=["k"], shard_by="k")

        def joined(where: None, group: str, topics: str, **options: Any) -> Consumer:
            return ended.enter_context(
                Consumer(where, group, topics, broker=at, **{"consume_from": "first", "timeout": 120.0, **options})
            )

        consumer = joined(None, "g", "t", acknowledges=False)
        (m,) = consumer.poll(1)
        (queue,) = [place for place in consumer.assignment() if (place.topic, place.queue_id) == ("t", m.queue_id)]
        plain = "poll commit seek pause resume assignment committed position lag poll_awaited close".split()
        yield {
            **{one: getattr(consumer, one) for one in plain}, "Consumer": joined, "consumer": joined(None, "g3", "t"),
            "where": None, "g": "g2", "t": "t", "n": 1, "m": m, "queue": queue, "datetime": datetime.now(UTC),
            "b": b"x", "k": "k", "RemoteProducer": producer, "send_async": producer.send_async,
            "completed": {
                "timeout": "poll({})", "acknowledges": "Consumer(where, 'g4', t, {})", "poll_awaited": "{}(1, 0.0)",
                "consume_from": "Consumer(where, 'g5', t, {})", "shard_by": "send_async(t, b, {})",
            },
        }  # fmt: skip


WORLDS: dict[str, Callable[[Path], Any]] = dict(zip(COLUMNS, (kafka_python, confluent, redis_py, here), strict=True))


@pytest.mark.parametrize("column", COLUMNS)
def test_each_cell_of_a_column_runs(column: str, tmp_path: Path) -> None:
    ran = 0
    with WORLDS[column](tmp_path) as names:
        for row, spans in cells(column):
            for span in spans:
                if span in STATEMENTS:
                    continue
                try:
                    run(span, names)
                except Exception as error:
                    raise AssertionError(f"{row}: `{span}`: {error!r}") from error
                ran += 1
    assert ran > 12
