"""One run with very many queues: filled, replicated, left idle, stopped, started, killed, started, verified, counted.

Every step puts one line into `Run.rows`: what, and what it took. A step that loses something raises.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine.clients.admin import AdminClient
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.ha_node import wait_for
from tests.interop.sides import OurNameServer
from tests.queues.measured import RoleCost, costs
from tools.common.local_broker import LocalBroker

MIB = 1 << 20
QUEUE_FILE_BYTES = 400
CLI = [sys.executable, "-m", "tools.cli"]
STOP_SECONDS, DISPATCH_WAITS, REGISTER_SECONDS, SETTLE_SECONDS, IDLE_SECONDS = 1200, 120, 300, 30, 30
POLL_SECONDS = 0.5
COUNT = """
import sys, time
import spark_bridge
from spark_bridge import java_home
java_home.ensure()
store, topic = sys.argv[1], sys.argv[2]
spark = spark_bridge.session("queues")
begun = time.monotonic()
count = spark_bridge.read(spark, store, columns=["queueId"]).count()
all_seconds = time.monotonic() - begun
begun = time.monotonic()
one_topic = spark_bridge.read(spark, store, columns=["queueId"], topics=[topic]).count()
topic_seconds = time.monotonic() - begun
begun = time.monotonic()
where = f"topic = '{topic}' AND queueId = 0"
one_queue = spark_bridge.read(spark, store, columns=["queueId"], where=where).count()
queue_seconds = time.monotonic() - begun
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print("COUNTED", count, one_topic, one_queue, all_seconds, topic_seconds, queue_seconds, peak)
"""


class Row(NamedTuple):
    """One line of the ledger."""

    what: str
    value: str


class Shape(NamedTuple):
    """How many topics, how many queues each, and which RocketMQ."""

    topics: int
    queues: int
    compat: str = "4.9"

    @property
    def all_queues(self) -> int:
        """Of all topics."""
        return self.topics * self.queues


class Run:
    """A master, a slave and a name server in one directory."""

    def __init__(self, directory: Path, shape: Shape, told: Callable[[Row], None]) -> None:
        self._directory, self._shape, self._told = directory, shape, told
        self._keys: dict[str, object] = {
            "mappedFileSizeCommitLog": 64 * MIB, "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES, "maxHashSlotNum": 1000,
            "maxIndexNum": 4000, "compat": shape.compat,
        }  # fmt: skip
        self._messages = 0

    def everything(self) -> None:
        """All steps, one after the other."""
        version = "5.3.3" if self._shape.compat == "5" else "4.9.7"
        with OurNameServer(self._directory / "namesrv", version) as names:
            self._keys["namesrvAddr"] = names.address
            self._first_run(names.address)
            self._run_again()
        self._verify()
        self._count()

    # the runs

    def _first_run(self, names: str) -> None:
        with self._master() as master, self._slave(master) as slave:
            self._fill(master, slave, "filled", range(2))
            with self._timed("registered at the name server"):
                self._await_topics(names)
            self._idle(master, slave)
            self._look(master)
            self._stop(slave, "slave")
            self._stop(master, "master")

    def _run_again(self) -> None:
        with self._timed("master started"):
            master = self._master()
            master.__enter__()
        with master:
            with self._timed("slave started"):
                slave = self._slave(master)
                slave.__enter__()
            with slave:
                self._fill(master, slave, "filled again", range(1))
                for broker in (master, slave):
                    broker.process.send_signal(signal.SIGKILL)
                    broker.process.wait()
        with self._timed("master started after kill -9"):
            master = self._master()
            master.__enter__()
        with master, self._slave(master) as slave:
            self._fill(master, slave, "filled once more", range(1))
            self._stop(slave, "slave")
            self._stop(master, "master")

    def _master(self) -> LocalBroker:
        return LocalBroker(self._directory / "m", **self._keys)

    def _slave(self, master: LocalBroker) -> LocalBroker:
        role = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, "brokerName": "m"}
        return LocalBroker(self._directory / "s", **{**self._keys, **role})

    # the steps

    def _fill(self, master: LocalBroker, slave: LocalBroker, what: str, rounds: range) -> None:
        with self._timed(f"{what}: {len(rounds)} messages into each queue"), Producer(master.store, timeout=120) as to:
            for number in range(self._shape.topics):
                topic = f"topic-{number}"
                for queue_id in range(self._shape.queues):
                    for _ in rounds:
                        to.send(topic, b"one", queue_id=queue_id, wait=False)
            to.flush(120)
        self._messages += self._shape.all_queues * len(rounds)
        end = extent.readable_range(master.store).max_physical_offset
        for name, broker in (("master", master), ("slave", slave)):
            with self._timed(f"{what}: then dispatched on the {name}"):
                _await_dispatched(broker, end)

    def _await_topics(self, names: str) -> None:
        deadline = time.monotonic() + REGISTER_SECONDS
        with AdminClient(names, timeout=60) as admin:
            while len(found := admin.topics()) < self._shape.topics:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the name server knows {len(found)} topics")
                pause(POLL_SECONDS)

    def _idle(self, *brokers: LocalBroker) -> None:
        pause(SETTLE_SECONDS)
        before = [costs(broker.store) for broker in brokers]
        pause(IDLE_SECONDS)
        for broker, earlier in zip(brokers, before, strict=True):
            name = "master" if broker is brokers[0] else "slave"
            now = costs(broker.store)
            self._told_costs(name, earlier, now)

    def _told_costs(self, name: str, earlier: dict[str, RoleCost], now: dict[str, RoleCost]) -> None:
        used = {role: cost.cpu_seconds - earlier[role].cpu_seconds for role, cost in now.items() if role in earlier}
        self._row(f"{name} idle", f"{sum(used.values()) / IDLE_SECONDS * 100:.1f} % of a core")
        for role, cost in now.items():
            percent = used.get(role, 0.0) / IDLE_SECONDS * 100
            self._row(
                f"{name} {role}",
                f"RSS {cost.rss_bytes / MIB:.0f} MiB, PSS {cost.pss_bytes / MIB:.0f} MiB, {cost.files} files,"
                f" {cost.mappings} mappings, idle {percent:.1f} %, CPU so far {cost.cpu_seconds:.1f} s",
            )

    def _look(self, broker: LocalBroker) -> None:
        store = str(broker.store)
        for command in (["status", store], ["stats", store], ["counters", store]):
            with self._timed(f"slipstream {command[0]}"):
                subprocess.run([*CLI, *command], check=False, capture_output=True, timeout=600)

    def _stop(self, broker: LocalBroker, name: str) -> None:
        with self._timed(f"{name} stopped"):
            broker.process.terminate()
            code = broker.process.wait(STOP_SECONDS)
        said = broker.log.read_text()
        if code or "killed" in said or (broker.store / "abort").exists():
            raise AssertionError(f"the {name} ended with {code}:\n{said[-2000:]}")

    def _verify(self) -> None:
        for name in ("m", "s"):
            with self._timed(f"log verify of {name}"):
                command = [*CLI, "log", "verify", str(self._directory / name / "store")]
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)
            if done.returncode:
                raise AssertionError(f"log verify: {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")

    def _count(self) -> None:
        command = [sys.executable, "-c", COUNT, str(self._directory / "m" / "store"), "topic-7"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)
        line = next((line for line in done.stdout.splitlines() if line.startswith("COUNTED")), None)
        if line is None:
            raise AssertionError(f"Spark: {done.stderr[-3000:]}")
        _, count, one_topic, one_queue, *seconds, peak = line.split()
        rounds = self._messages // self._shape.all_queues
        assert int(count) == self._messages and int(one_topic) == rounds * self._shape.queues, line
        assert int(one_queue) == rounds, line
        for what, took in zip(("count()", "one topic", "one queue"), seconds, strict=True):
            self._row(f"Spark {what}", f"{float(took):.1f} s")
        self._row("Spark's Python driver at most", f"{peak} MiB")

    # telling

    def _row(self, what: str, value: str) -> None:
        self._told(Row(what, value))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun, used = time.monotonic(), os.times()
        yield
        seconds, now = time.monotonic() - begun, os.times()
        own = now.user + now.system - used.user - used.system
        self._row(what, f"{seconds:.1f} s" + (f" ({own:.1f} s CPU here)" if own > 1 else ""))


def pause(seconds: float) -> None:
    """A measurement's time passes; nothing is waited for."""
    threading.Event().wait(seconds)


def _await_dispatched(broker: LocalBroker, end: int) -> None:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
    for _ in range(DISPATCH_WAITS):  # half a minute each
        try:
            wait_for(counters.reput_from_offset, end)
            return
        except AssertionError:
            continue
    raise AssertionError(f"dispatched to {counters.reput_from_offset.read()} of {end}")
