"""Delayed messages on a running broker: in time, in order, once; over deaths of the delay role and of the writer."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.monitoring.problems import what_stops
from engine.producer.producer import Producer, SendRequest
from engine.services import delay_puts
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.delay_table import DelayTable
from store.message.delay import SCHEDULE_TOPIC, levels_ms
from store.message.record import Message
from store.reading import extent
from store.tables import json_files
from store.tables.tables import delay_offsets
from tests.engine.producer.test_producer import Stopped
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

LEVELS = "1s 2s 1s 3s"
SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536, "messageDelayLevel": LEVELS, "mappedFileSizeConsumeQueue": 20 * 100,
}  # fmt: skip
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])
TIMEOUT, SECONDS = 60.0, 90.0


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def all_of(store: Path) -> list[Message]:
    return messages_of(store, counters_of(store).max_physical_offset.read())


def send(producer: Producer, made: random.Random, count: int, first: int = 0) -> None:
    """Delayed messages whose bodies are their numbers; now and then one that leaves the fast path."""
    for number in range(first, first + count):
        odd = "\x02clé\x01é" if made.random() < 0.1 else ""
        level, topic = made.randrange(1, 6), made.choice(("t", "u", "%RETRY%g"))
        properties = f"UNIQ_KEY\x01K{number:08}\x02TAGS\x01a\x02DELAY\x01{level}{odd}"
        body = f"{number:08}".encode() + bytes(made.randrange(400))
        queue_id = 0 if topic.startswith("%") else made.randrange(3)
        request = SendRequest(topic=topic, body=body, queue_id=queue_id, properties=properties)
        producer.put_message(request)


def number_of(message: Message) -> int:
    return int(bytes(message.body[:8]))


def delivered_of(store: Path) -> list[Message]:
    return [message for message in all_of(store) if message.topic != SCHEDULE_TOPIC]


def check(messages: list[Message], count: int, *, twice: int = 0) -> None:
    """Each once, none early, those of a level in their order; `twice` may come again."""
    waiting = {number_of(message): message for message in messages if message.topic == SCHEDULE_TOPIC}
    came = [message for message in messages if message.topic != SCHEDULE_TOPIC]
    times = Counter(map(number_of, came))
    assert sorted(times) == list(range(count))
    assert sum(times.values()) <= count + twice
    by_level: dict[int, list[int]] = {}
    for message in came:
        delayed = waiting[number_of(message)]
        due_ms = delayed.store_timestamp_ms + levels_ms(LEVELS)[delayed.queue_id]
        assert message.store_timestamp_ms >= due_ms, "before its time"
        assert message.topic == delayed.properties["REAL_TOPIC"]
        assert message.queue_id == int(delayed.properties["REAL_QID"])
        assert (bytes(message.body), message.properties) == (bytes(delayed.body), delayed.properties)
        by_level.setdefault(delayed.queue_id, []).append(delayed.queue_offset)
    if not twice:
        assert all(offsets == sorted(offsets) for offsets in by_level.values())


def offsets_of(store: Path) -> dict[int, int]:
    table = DelayTable.attach(extent.require_running(store).region_directory)
    try:
        return table.current()
    finally:
        table.close()


@BOTH
def test_delayed_messages_come_once_in_time_and_in_order_after_a_restart_too(tmp_path: Path, compat: str) -> None:
    made, settings = random.Random(14), {**SMALL, "compat": compat}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            send(producer, made, 300)
        await_that(lambda: len(delivered_of(broker.store)) >= 150, "deliveries", SECONDS)
    said = delay_offsets(json_files.read(tmp_path / "b" / "store" / "config" / "delayOffset.json"))
    assert sum(said.values()) >= 150
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            send(producer, made, 100, first=300)
        await_that(lambda: len(delivered_of(broker.store)) >= 400, "deliveries", SECONDS)
        await_that(lambda: sum(offsets_of(broker.store).values()) == 400, "offsets", SECONDS)
        assert counters_of(broker.store).delay.delivered.read() == 400 - sum(said.values())
        check(all_of(broker.store), 400)


@BOTH
def test_deaths_of_the_role_and_of_the_writer_lose_nothing_and_repeat_nothing(tmp_path: Path, compat: str) -> None:
    made = random.Random(414)
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            for turn in range(12):
                send(producer, made, 100, first=100 * turn)
                victim = made.choice(("delay", "delay", "writer"))
                pid = await_that(lambda victim=victim: counters.pids[victim].read(), f"{victim} runs", SECONDS)  # type: ignore[misc]
                os.kill(pid, signal.SIGKILL)
                await_that(
                    lambda victim=victim, pid=pid: counters.pids[victim].read() not in (0, pid), "again", SECONDS
                )  # type: ignore[misc]
        await_that(lambda: len(delivered_of(broker.store)) >= 1200, "deliveries", SECONDS)
        await_that(lambda: sum(offsets_of(broker.store).values()) == 1200, "offsets", SECONDS)
        assert counters.delay.repeated.read() == 0
        check(all_of(broker.store), 1200)


@pytest.mark.parametrize("content", [bytes(200), None], ids=["zeros", "gone"])
def test_delivered_messages_do_not_come_again_where_no_file_says_how_far_the_levels_are(
    tmp_path: Path, content: bytes | None
) -> None:
    made, config = random.Random(77), tmp_path / "b" / "store" / "config"
    with LocalBroker(tmp_path / "b", **SMALL) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            send(producer, made, 300)
        await_that(lambda: len(delivered_of(broker.store)) >= 150, "deliveries", SECONDS)
    for path in config.glob("delayOffset.json*"):
        path.unlink()
    if content is not None:
        (config / "delayOffset.json").write_bytes(content)
    with LocalBroker(tmp_path / "b", **SMALL) as broker:
        await_that(lambda: sum(offsets_of(broker.store).values()) == 300, "offsets", SECONDS)
        check(all_of(broker.store), 300)
        counters = counters_of(broker.store)
        found = [one.reason for one in what_stops(counters, str(broker.store), "ASYNC_MASTER")]
        assert found == (["TABLE"] if content else [])


def test_a_message_that_can_be_put_nowhere_holds_up_nobody(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL) as broker, Producer(broker.store, timeout=TIMEOUT) as producer:
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "a b", "x" * 300, ""):
            properties = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x011\x02DELAY\x010"
            request = SendRequest(topic="t", body=b"00000000", properties=properties)
            producer.put_message(request)
        counters = counters_of(broker.store)
        send(producer, random.Random(3), 20)
        await_that(lambda: sum(offsets_of(broker.store).values()) == 20, "offsets", SECONDS)
        assert counters.delay.dropped.read() == 0


def test_a_backlog_of_more_than_may_be_under_way_is_delivered_by_one_process(tmp_path: Path) -> None:
    """An array of answers that is never begun anew ends the role after as many answers as it has rows."""
    count, level = delay_puts.PUTS_MAX + 1000, "UNIQ_KEY\x01K\x02DELAY\x012"
    with LocalBroker(tmp_path / "b", **SMALL) as broker, Producer(broker.store, timeout=TIMEOUT) as producer:
        counters = counters_of(broker.store)
        with Stopped(counters, "delay"):
            for number in range(count):
                producer.put_message(SendRequest(topic="t", body=b"%08d" % number, properties=level))
        await_that(lambda: counters.delay.delivered.read() == count, "deliveries", SECONDS)
        await_that(lambda: sum(offsets_of(broker.store).values()) == count, "offsets", SECONDS)
        assert counters.restarts["delay"].read() == 0 and counters.delay.repeated.read() == 0
        numbers = [number_of(message) for message in delivered_of(broker.store)]
        assert numbers == list(range(count)), "each once, in order"
