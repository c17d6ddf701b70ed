"""kill -9 of the dispatcher, and of the whole broker, while it fills index files: the index is whole, to the byte."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files.segment_files import SegmentFiles
from store.index.service import IndexService
from store.reading import extent
from store.recovery.dispatch import Dispatcher
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.crash

SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 20, 200_000
SLOTS, ENTRIES_MAX = 50_000, 200_000
SETTINGS = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES, "maxHashSlotNum": SLOTS, "maxIndexNum": ENTRIES_MAX,
    "ringSizeInBytes": 1 << 22, "maxMessageSize": 65536,
}  # fmt: skip
MESSAGES, KILLS, KILLS_MIN = 40_000, 8, 3
KEYS = " ".join(f"part{number}" for number in range(20))  # so that most kills find a record half done
DEADLINE_SECONDS = 300.0


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def await_more(counters: BrokerCounters, label: str, seen: int) -> int:
    """Wait until that counter is another than `seen`."""
    cursor, end = counters.region.cursor(label), time.monotonic() + DEADLINE_SECONDS
    while (now := cursor.read()) == seen:
        assert time.monotonic() < end, f"{label} stays at {seen}: {list(counters.region)}"
        waiting.await_change(cursor, seen, 100)
    return now


def fill(broker: LocalBroker, counters: BrokerCounters, first: int) -> None:
    """A backlog: the dispatcher stands still meanwhile."""
    pid = await_that(counters.pids["dispatcher"].read, "it runs")  # 0 would be all of us
    os.kill(pid, signal.SIGSTOP)
    try:
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            for start in range(first, first + MESSAGES, 10_000):
                numbers = range(start, start + 10_000)
                keys = [f"k{number} größe" if number % 500 == 0 else f"{KEYS} k{number}" for number in numbers]
                producer.send_batch(f"t{start % 3}", [b"body"] * 10_000, keys=keys)
    finally:
        os.kill(pid, signal.SIGCONT)


def kill_in_the_middle(counters: BrokerCounters, dice: random.Random) -> bool:
    """Kill the dispatcher some time after it has published progress; False when nothing is left to dispatch."""
    seen = counters.reput_from_offset.read()
    if seen == counters.max_physical_offset.read():
        return False
    await_more(counters, "reput_from_offset", seen)
    for _ in range(dice.randrange(60_000)):  # some of the milliseconds that a batch takes
        pass
    pid = counters.pids["dispatcher"].read()
    if pid > 0:
        os.kill(pid, signal.SIGKILL)
        await_more(counters, "pid.dispatcher", pid)
        await_more(counters, "pid.dispatcher", 0)
    return True


def test_every_entry_is_there_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    with LocalBroker(tmp_path / "m", **SETTINGS) as broker:
        counters = counters_of(broker)
        filled = kills = 0
        while kills < KILLS_MIN:  # on a busy machine a backlog may be through before somebody looks
            fill(broker, counters, filled)
            filled += MESSAGES
            while kills < KILLS and kill_in_the_middle(counters, dice):
                kills += 1
        kill_broker(broker)
    with LocalBroker(tmp_path / "m", **SETTINGS) as broker:
        counters = counters_of(broker)
        fill(broker, counters, filled)
        while kill_in_the_middle(counters, dice) and kills < 2 * KILLS:
            kills += 1
        end = counters.max_physical_offset.read()
        while (reached := counters.reput_from_offset.read()) < end:
            await_more(counters, "reput_from_offset", reached)
    fresh = IndexService(tmp_path / "fresh", SLOTS, ENTRIES_MAX)
    files = SegmentFiles(broker.store / "commitlog", SEGMENT_BYTES)
    Dispatcher(files, tmp_path / "queues", QUEUE_FILE_BYTES, index=fresh).dispatch(0, end)
    found = [path.read_bytes() for path in sorted((broker.store / "index").iterdir())]
    assert len(found) > 2 * MESSAGES // ENTRIES_MAX
    assert found == [path.read_bytes() for path in fresh.files()]
    assert not (broker.store / "abort").exists()
