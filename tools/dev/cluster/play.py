"""What the demonstration does, one thing after the other, and what must be true of each."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ipc.module_names import named
from store.names import COMMIT_LOG
from tools.demo.demo import Checks
from tools.dev.cluster import rate
from tools.dev.cluster.driver import IN_PLACE, add, digest_of
from tools.dev.cluster.nodes import POLL_SECONDS, SECONDS, Node, NodeFailed, make_nodes
from tools.dev.cluster.orders import TOPIC, bodies
from tools.dev.cluster.replicas import AS_HERE, HELD, Replica, store_at
from tools.dev.cluster.spark import Driver, SparkCluster, build_wheel

COPIES, WRITTEN = "copies", 20_000
SPLITS_PER_EXECUTOR = 2  # so large that none of them is in buffers as a whole


@dataclass(frozen=True)
class Size:
    """The size of the cluster and its log; `body_bytes` in the mean.

    node0 has Spark's master and the driver, the next ones a worker each, node1 the log's master, `slave` its slave.
    """

    workers: int = 3
    slave: int = 2
    messages: int = 200_000
    body_bytes: int = 1280
    has_all: bool = True


@dataclass
class Outcome:
    """Figures of one run: for each part the rows of its tasks and its seconds."""

    size: Size
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    rates: dict[str, rate.Rate] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)


class Play:
    """One run; each step is a method, in the order of `all`."""

    def __init__(self, console: Console, place: Path, size: Size) -> None:
        self._console, self._place, self._size = console, place, size
        self.checks, self.outcome = Checks(console), Outcome(size)
        self._begun = time.monotonic()

    def all(self) -> None:
        """The whole of it. Raises NodeFailed."""
        self._start()
        self._send()
        self._batch("batch")
        if self._size.has_all:
            self._batch("placed", placed=True)
            self._measure()
            self._driver.ask("stream")
            self._answered("stream")
            self._write()
        self._lose_a_replica()
        self._expire()
        self._stop()

    def _say(self, text: str) -> None:
        self._console.print(f"     {time.monotonic() - self._begun:4.0f} s  {text}", highlight=False)

    def _start(self) -> None:
        """Namespaces, replicas in the first nodes with workers, Spark."""
        self._nodes = make_nodes(self._place, 1 + max(self._size.workers, self._size.slave))
        self._workers, slave = self._nodes[1 : 1 + self._size.workers], self._nodes[self._size.slave]
        self._say(f"{len(self._nodes)} nodes: {', '.join(f'{node.name} {node.address}' for node in self._nodes)}")
        token = secrets.token_hex(16)
        for node in self._nodes:
            (node.files / "token").write_text(token)
        self._master = Replica(self._nodes[1], token)
        self._slave = Replica(slave, token, self._nodes[1])
        self._say(f"{self._nodes[1].name}: master and Flight server; {slave.name}: slave and Flight server")
        build_wheel(self._nodes[0].files)
        cluster = SparkCluster(self._nodes[0], self._workers)
        splits = SPLITS_PER_EXECUTOR * self._size.workers
        options = {
            "flightTokenFile": str(self._place / "token"),
            "replicaPath": str(store_at(self._place)),
            "maxBytesPerPartition": str(self._log_bytes() // splits),
            "leaseSeconds": "60",
        }
        self._driver: Driver = cluster.driver(
            {
                "flights": f"{self._master.location},{self._slave.location}",
                "topic": TOPIC,
                "options": options,
                "here": str(self._place),
                "cores": self._size.workers,
            }
        )
        names = ", ".join(node.name for node in self._workers)
        self._say(f"{self._nodes[0].name}: Spark's master and the driver; workers in {names}")

    def _log_bytes(self) -> int:
        return self._size.messages * (self._size.body_bytes + 128)

    def _send(self) -> None:
        """Send the messages, and note what each read is to find from now on."""
        count, size = self._size.messages, self._size.body_bytes
        command = [sys.executable, "-m", named("tools.dev.cluster.orders"), store_at(self._place), count, size]
        taken = json.loads(self._nodes[1].run("orders", command, environment=AS_HERE))["acknowledged"]
        self.checks.add(taken == count, f"{taken:,} of {count:,} messages acknowledged by master and slave")
        sent = list(bodies(count, size))
        self._expected = count, sum(map(len, sent)), reduce(add, map(digest_of, sent))

    def _batch(self, name: str, **more: object) -> list[dict[str, Any]]:
        self._driver.ask("batch", **more)
        return self._answered(name)

    def _answered(self, name: str) -> list[dict[str, Any]]:
        """The tasks of a part, when they are what was sent."""
        answer = self._driver.answer()
        parts: list[dict[str, Any]] = answer["parts"]
        self.outcome.parts[name], self.outcome.seconds[name] = parts, answer["seconds"]
        self._console.print(table_of(name, parts))
        had = total(parts)
        text = f"{name}: {had[0]:,} rows, {had[1]:,} bytes, digest {had[2]:015x}, {answer['seconds']:.1f} s"
        self.checks.add(had == self._expected, f"{text}: what was sent")
        return parts

    def _measure(self) -> None:
        """The same messages by one reader alone, beside its replica and without one."""
        for name, node, path in (
            ("in place", self._slave.node, str(store_at(self._place))),
            ("grpc", self._workers[-1], self._slave.location),
        ):
            command = [sys.executable, "-m", named("tools.dev.cluster.rate"), path, TOPIC, self._place / "token"]
            before = self._slave.flight.cpu_seconds()
            said = node.run("rate", command, environment=AS_HERE)
            self.outcome.rates[name] = rate.rate_of(said, self._slave.flight.cpu_seconds() - before)
        rates = ", ".join(
            f"{name} {one.bytes_a_second / 1e6:,.0f} MB/s, {one.cpu_a_gigabyte:.1f} CPU seconds/GB"
            for name, one in self.outcome.rates.items()
        )
        self._say(f"one reader alone, bodies: {rates}")

    def _write(self) -> None:
        """Rows of all executors, through the Flight server beside the master."""
        self._driver.ask("sink", rows=WRITTEN, topic=COPIES)
        answer = self._driver.answer()
        self.outcome.seconds["sink"], self.outcome.written = answer["seconds"], answer["written"]
        ended = f"sink: {answer['rows']:,} rows, {answer['different']:,} different, {answer['seconds']:.1f} s"
        by = ", ".join(f"{host} {rows:,}" for host, rows in answer["written"].items())
        self.checks.add(answer["rows"] == answer["different"] == WRITTEN, f"{ended}; written by {by}")

    def _hold(self, name: str, at: Replica) -> None:
        """Begin a read, until each executor stands in the midst of one of its splits."""
        self._driver.ask("batch", hold=name, hold_at=at.location)
        deadline = time.monotonic() + SECONDS
        while not all((node.files / f"holding-{name}").exists() for node in self._workers):
            if time.monotonic() > deadline or self._driver.program.process.poll() is not None:
                raise self._driver.program.failed(f"{name}: not every executor began to read")
            time.sleep(POLL_SECONDS)

    def _go(self, name: str) -> list[dict[str, Any]]:
        for node in self._workers:
            (node.files / f"go-{name}").touch()
        return self._answered(name)

    def _lose_a_replica(self) -> None:
        """kill -9 of the slave and its server, while an executor in another node reads from there."""
        self._hold("killed", self._slave)
        self._slave.kill()
        self._say(f"kill -9: broker and server of {self._slave.node.name}, each executor in the midst of a split")
        parts = self._go("killed")
        sources: dict[int, set[str]] = {}
        for part in parts:
            sources.setdefault(part["part"], set()).add(part["replica"])
        moved = sum(1 for names in sources.values() if len(names) > 1)
        self.checks.add(moved > 0, f"{moved} split went on at another replica in its midst, without a row twice")
        alive = {part["replica"] for part in parts if part["replica"] == self._master.location}
        self.checks.add(bool(alive), f"the rest came from {self._master.location}, or in place")

    def _expire(self) -> None:
        """Retention wants all that is read; leases of readers in place and through Flight keep it."""
        self._hold("expired", self._master)
        self._master.let_all_expire()
        self._master.broker.await_line(HELD)
        kept = first_offset(self._master.node)
        self.checks.add(kept == 0, "retention wanted the log's beginning, and left it to those who read")
        self._go("expired")
        node = self._master.node
        begins = int(self._master.broker.await_that(lambda: str(first_offset(node) or ""), "expired segments are gone"))
        self.checks.add(begins > 0, f"once nobody read any more it deleted it: the log begins at {begins:,}")

    def _stop(self) -> None:
        ended = self._driver.end()
        self.checks.add(ended == 0, f"the driver ended with {ended}")
        flight, broker = self._master.stop()
        name = self._master.node.name
        self.checks.add((flight, broker) == (0, 0), f"{name}: Flight server and master stopped in order")


def first_offset(node: Node) -> int:
    """Return where a node's log begins: the name of its first segment. Raises NodeFailed."""
    names = sorted(path.name for path in (store_at(node.files) / COMMIT_LOG).iterdir())
    if not names:
        raise NodeFailed(f"{node.name}: its log has no segment")
    return int(names[0])


def total(parts: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Rows, bytes and digest of all tasks."""
    digest = reduce(add, (part["digest"] for part in parts), 0)
    return sum(part["rows"] for part in parts), sum(part["bytes"] for part in parts), digest


def by_source(parts: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Splits, rows and bytes by executor's host and where it read them."""
    sums: dict[tuple[str, str], tuple[int, int, int]] = {}
    for part in parts:
        key = part["host"], part["replica"]
        splits, rows, size = sums.get(key, (0, 0, 0))
        sums[key] = splits + 1, rows + part["rows"], size + part["bytes"]
    return dict(sorted(sums.items()))


def share_in_place(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of bytes that were read in place, from 0 to 1."""
    size = sum(part["bytes"] for part in parts)
    return sum(part["bytes"] for part in parts if part["replica"] == IN_PLACE) / size if size else 0.0


def table_of(title: str, parts: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of which executor read what from where."""
    table = Table(title=title, title_justify="left")
    for heading in ("executor", "read from"):
        table.add_column(heading)
    for heading in ("splits", "rows", "bytes"):
        table.add_column(heading, justify="right")
    for (host, replica), (splits, rows, size) in by_source(parts).items():
        table.add_row(host, replica, f"{splits}", f"{rows:,}", f"{size:,}")
    return table
