"""kill -9 of any process at seeded random moments under load: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.protocol.ha.put_status import PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import checkpoint as checkpoint_file
from store.index.service import IndexService
from store.reading import extent
from tests.harness.audit import assert_queue_offsets_dense, assert_queues_hold_exactly, messages_of
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.crash

QUEUE_FILE_BYTES = 4000
SMALL = {
    "mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536, "haReconnectInterval": 100, "maxHashSlotNum": 1000, "maxIndexNum": 2000,
}  # fmt: skip
MESSAGES, PRODUCERS = 1500, 2
DEADLINE_SECONDS = 300.0
MASTER_ROLES = (
    "writer", "allocator", "flusher", "dispatcher", "group_transfer", "ha_listener", "sender.0", "housekeeper",
)  # fmt: skip
SLAVE_ROLES = ("receiver", "allocator", "flusher", "dispatcher", "ha_listener", "housekeeper")


def appender(store: Path, name: str, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.harness.appender", str(store), name, str(MESSAGES), str(out)]
    return subprocess.Popen(command)


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def await_progress(counters: BrokerCounters, messages: int, producers: list[subprocess.Popen[bytes]]) -> bool:
    """Wait until that many more messages are in the log; False once the producers have ended."""
    end = time.monotonic() + DEADLINE_SECONDS
    goal, seen = counters.put_messages.read() + messages, counters.max_physical_offset.read()
    while counters.put_messages.read() < goal:
        if all(producer.poll() is not None for producer in producers):
            return False
        assert time.monotonic() < end, f"no progress: {list(counters.region)}"
        seen = waiting.await_change(counters.max_physical_offset, seen, 100)
    return True


def kill(counters: BrokerCounters, role: str) -> int:
    pid = counters.pids[role].read()
    if pid > 0:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return 0
    return pid


def await_offset(counters: BrokerCounters, label: str, goal: int) -> None:
    cursor, end = counters.region.cursor(label), time.monotonic() + DEADLINE_SECONDS
    while (seen := cursor.read()) < goal:
        assert time.monotonic() < end, f"{label} stays at {seen}, wanted {goal}: {list(counters.region)}"
        waiting.await_change(cursor, seen, 100)


def is_gone(pid: int) -> bool:
    try:
        return "zombie" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def answers(paths: list[Path]) -> list[dict[str, object]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("seed, flush", [(1, "ASYNC_FLUSH"), (2, "ASYNC_FLUSH"), (3, "SYNC_FLUSH")])
def test_processes_killed_at_random_lose_nothing_and_repeat_nothing(
    tmp_path: Path, region_dir: Path, seed: int, flush: str
) -> None:
    dice = random.Random(seed)
    keys = {**SMALL, "flushDiskType": flush}
    # What a kill leaves does not depend on the disk; how long 3000 flushes take does, and on what else it has to do.
    home = region_dir if flush == "SYNC_FLUSH" else tmp_path
    with (
        LocalBroker(home / "m", brokerRole="SYNC_MASTER", **keys) as master,
        LocalBroker(home / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **keys) as slave,
    ):
        both = {"master": counters_of(master.store), "slave": counters_of(slave.store)}
        outs = [tmp_path / f"p{k}.jsonl" for k in range(PRODUCERS)]
        producers = [appender(master.store, f"p{k}", out) for k, out in enumerate(outs)]
        kills = 0
        while await_progress(both["master"], dice.randrange(40, 200), producers):
            side = dice.choice(["master", "slave"])
            kills += kill(both[side], dice.choice(MASTER_ROLES if side == "master" else SLAVE_ROLES)) > 0
        assert [producer.wait(DEADLINE_SECONDS) for producer in producers] == [0] * PRODUCERS
        assert kills >= 5
        end = both["master"].max_physical_offset.read()
        for counters in both.values():
            await_offset(counters, "max_physical_offset", end)
            await_offset(counters, "reput_from_offset", end)
    told = answers(outs)
    check(master.store, end, told)
    check(slave.store, end, told)
    assert any(answer.get("status") == "PUT_OK" for answer in told)
    assert all(PutMessageStatus(answer["status"]).is_stored for answer in told if "status" in answer)


def check(store: Path, end: int, told: list[dict[str, object]]) -> None:
    """The whole log against what the producers were told."""
    messages = messages_of(store, end)
    bodies = [bytes(message.body).decode() for message in messages]
    assert len(set(bodies)) == len(bodies), "a message is there twice"
    assert_queue_offsets_dense(messages)
    assert_queues_hold_exactly(store, messages, QUEUE_FILE_BYTES)
    index = IndexService(store / "index", int(str(SMALL["maxHashSlotNum"])), int(str(SMALL["maxIndexNum"])))
    assert len(index.files()) > len(messages) // int(str(SMALL["maxIndexNum"]))
    for message in messages:
        found_by_key = index.query_offset(message.topic, str(message.keys), 64, 0, 1 << 62)
        assert found_by_key.count(message.physical_offset) == 1, (message.keys, found_by_key)
    by_place = {message.physical_offset: message for message in messages}
    for answer in told:
        if "status" in answer:
            message = by_place[int(str(answer["physical_offset"]))]
            found = (bytes(message.body).decode(), message.topic, message.queue_id, message.queue_offset)
            assert found == tuple(answer[name] for name in ("body", "topic", "queue_id", "queue_offset"))


def test_the_supervisor_killed_takes_its_children_along_and_the_next_start_goes_on(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH", **SMALL) as master:
        counters = counters_of(master.store)
        outs = [tmp_path / "p0.jsonl"]
        producers = [appender(master.store, "p0", outs[0])]
        assert await_progress(counters, 300, producers)
        region_directory = extent.require_running(master.store).region_directory
        pids = [cursor.read() for cursor in counters.pids.values() if cursor.read() > 0]
        master.process.kill()
        master.process.wait()
        for pid in pids:
            await_that(lambda pid=pid: is_gone(pid), f"process {pid} ends with its supervisor")
        assert region_directory.exists(), "the next start removes what was left"
        assert producers[0].wait(DEADLINE_SECONDS) == 0, "its producer is told at once"
    with LocalBroker(tmp_path / "m", brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH", **SMALL) as again:
        counters = counters_of(again.store)
        recovered = counters.max_physical_offset.read()
        more = [tmp_path / "p1.jsonl"]
        assert appender(again.store, "p1", more[0]).wait(DEADLINE_SECONDS) == 0
        end_offset = counters.max_physical_offset.read()
        assert end_offset > recovered
    check(again.store, end_offset, answers(outs + more))
    assert not (again.store / "abort").exists()
    assert not region_directory.exists()


def test_a_slave_that_is_killed_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    often = {**SMALL, "flushConsumeQueueThoroughInterval": 1000}
    with LocalBroker(tmp_path / "m", brokerRole="SYNC_MASTER", **often) as master:
        counters, outs = counters_of(master.store), [tmp_path / "p0.jsonl", tmp_path / "p1.jsonl"]
        slave_keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **often}
        with LocalBroker(tmp_path / "s", **slave_keys) as slave:
            assert appender(master.store, "p0", outs[0]).wait(DEADLINE_SECONDS) == 0
            slave_counters, end = counters_of(slave.store), time.monotonic() + DEADLINE_SECONDS
            while not (noted := checkpoint_file.read(slave.store / "checkpoint").flushed_offset):
                assert time.monotonic() < end, "a slave's checkpoint"
                waiting.await_change(
                    slave_counters.heartbeats["flusher"], slave_counters.heartbeats["flusher"].read(), 100
                )
            producers = [appender(master.store, "p1", outs[1])]
            assert await_progress(counters, 100, producers)
            kill_broker(slave)
        kept = checkpoint_file.read(slave.store / "checkpoint")
        assert kept.flushed_offset is not None and kept.flushed_offset >= noted and kept.entries > 0
        with LocalBroker(tmp_path / "s", **slave_keys) as slave:
            assert producers[0].wait(DEADLINE_SECONDS) == 0
            goal = counters.max_physical_offset.read()
            for label in ("max_physical_offset", "reput_from_offset"):
                await_offset(counters_of(slave.store), label, goal)
            await_offset(counters, "reput_from_offset", goal)
    told = answers(outs)
    check(slave.store, goal, told)
    check(master.store, goal, told)
    assert checkpoint_file.read(slave.store / "checkpoint").flushed_offset == goal
