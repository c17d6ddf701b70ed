"""Statistics of running brokers: master and slave say what many producer processes sent, and no kill changes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import MessagesRefused
from engine.monitoring.status import snapshot
from engine.monitoring.store_stats import stats
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tests.harness.appender import TOPICS
from tests.harness.conditions import await_that
from tools import cli
from tools.common.local_broker import LocalBroker

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 4000, "ringSizeInBytes": 1 << 20,
    "haReconnectInterval": 100, "syncFlushTimeout": 120_000, "haHousekeepingInterval": 120_000,
}  # fmt: skip
PRODUCERS, EACH = 5, 400
DEADLINE_SECONDS = 300.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    with (
        LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH", **SMALL) as master,
        LocalBroker(
            tmp_path / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **SMALL
        ) as slave,
    ):
        yield master, slave


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def await_offset(counters: BrokerCounters, label: str, goal: int) -> None:
    cursor, end = counters.region.cursor(label), time.monotonic() + DEADLINE_SECONDS
    while (seen := cursor.read()) < goal:
        assert time.monotonic() < end, f"{label} stays at {seen}, wanted {goal}: {list(counters.region)}"
        waiting.await_change(cursor, seen, 100)


def kill(counters: BrokerCounters, role: str) -> None:
    """kill -9, and until there is another one."""
    restarts = counters.restarts[role]
    pid = await_that(counters.pids[role].read, f"{role} runs")  # 0 would be all of us
    seen, end = restarts.read(), time.monotonic() + DEADLINE_SECONDS
    os.kill(pid, signal.SIGKILL)
    while restarts.read() == seen:
        assert time.monotonic() < end, f"{role} is not started again"
        waiting.await_change(restarts, seen, 50)


def test_counts_are_what_was_sent_on_master_and_slave(pair: tuple[LocalBroker, LocalBroker], tmp_path: Path) -> None:
    master, _slave = pair
    command = [sys.executable, "-m", "tests.harness.appender", str(master.store)]
    producers = [subprocess.Popen([*command, f"p{k}", str(EACH), str(tmp_path / f"out{k}")]) for k in range(PRODUCERS)]
    both = [counters_of(broker) for broker in pair]
    for goal in (200, 600, 1200):
        await_offset(both[0], "put_messages", goal)
        kill(both[0], "dispatcher")
        kill(both[1], "dispatcher")
    kill(both[0], "writer")
    for producer in producers:
        assert producer.wait(DEADLINE_SECONDS) == 0
    answered = [json.loads(line) for k in range(PRODUCERS) for line in (tmp_path / f"out{k}").read_text().splitlines()]
    assert [told for told in answered if told.get("status") != "PUT_OK"] == []
    end = both[0].max_physical_offset.read()
    found = []
    for broker, counters in zip(pair, both, strict=True):
        await_offset(counters, "reput_from_offset", end)
        found.append(stats(broker.store))
    sent = {topic: PRODUCERS * EACH // len(TOPICS) for topic in TOPICS}
    for one in found:
        assert {topic.topic: topic.messages for topic in one.topics} == sent
        assert (one.put_messages, one.put_refused) == (PRODUCERS * EACH, 0)
        assert one.put_bytes == found[0].put_bytes == sum(topic.bytes for topic in one.topics)
    assert found[0].latency.puts == sum(found[0].latency.distribution.values()) == PRODUCERS * EACH
    assert 0 < found[0].latency.percentiles_us["50"] <= found[0].latency.percentiles_us["99"] <= found[0].latency.max_us
    assert found[1].latency.puts == 0
    assert found[0].runtime_info["putMessageTimesTotal"] == str(PRODUCERS * EACH)


def test_every_kind_of_put_counts_and_refused_ones_do_not(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", **SMALL) as broker, Producer(broker.store, timeout=60.0) as producer:
        for number in range(10):
            producer.send("one", b"x", queue_id=number % 3)
        futures = [producer.send_async("async", b"y") for _ in range(7)]
        assert all(future.result().queue_offset >= 0 for future in futures)
        producer.send_batch("batch", [b"z"] * 50)
        producer.send("quick", b"q", wait=False)
        producer.flush()
        counters = counters_of(broker)
        waiting.publish(counters.flush_errno, 5)  # as the flusher says it of a disk that failed
        with pytest.raises(MessagesRefused):
            producer.send("refused", b"x")
        await_offset(counters, "reput_from_offset", counters.max_physical_offset.read())
        found = stats(broker.store)
        assert {topic.topic: topic.messages for topic in found.topics} == {
            "one": 10, "async": 7, "batch": 50, "quick": 1
        }  # fmt: skip
        assert (found.put_messages, found.put_refused, found.latency.puts) == (68, 1, 18)
        problems = snapshot(broker.store, cpu_sample_seconds=0.0).problems
        (told,) = [one for one in problems if not one.startswith("the disk is")]  # how full it is says the machine
        assert "Input/output error" in told and "restart" in told


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalBroker(tmp_path / "m", **SMALL) as broker:
        assert cli.run_command(["stats", str(broker.store)]) == 0
        assert "no put waited for an answer" in capsys.readouterr().out
        with Producer(broker.store, timeout=60.0) as producer:
            producer.send("the-topic", b"x" * 1000)
        counters = counters_of(broker)
        await_offset(counters, "reput_from_offset", counters.max_physical_offset.read())
        assert cli.run_command(["stats", "--json", str(broker.store)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["topics"]["the-topic"]["messages"] == found["put_messages"] == found["latency"]["puts"] == 1
        assert set(found["rates"]) == {"1s", "10s", "60s"}
        assert found["runtime_info"]["putMessageTimesTotal"] == "1"
        assert cli.run_command(["stats", str(broker.store)]) == 0
        assert "the-topic" in capsys.readouterr().out
    assert cli.run_command(["stats", str(broker.store)]) == 3
    assert "NO_BROKER" in capsys.readouterr().err
