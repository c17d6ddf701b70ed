"""A new replica of gigabytes of log, killed again and again while it fetches them, in every direction; equal at last.

    python -m tests.crash.whole_history [--gib 4] [--kills 20] [--ledger docs/whole-history.md]

Between ours a second slave is in step meanwhile, and synchronous puts are timed before the new one comes and while it
catches up within maxHaCatchUpByteInSecond: what it costs those who wait. RocketMQ's masters have no such bound.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading.extent import require_running
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import NameServer, RocketMQBroker
from tools.common.local_broker import LocalBroker

SEGMENT_BYTES = 64 << 20
BODY_BYTES = 200_000
SIZES = {"mappedFileSizeCommitLog": SEGMENT_BYTES}
OURS = {**SIZES, "brokerName": "broker-a", "maxMessageSize": 1 << 20, "haReconnectInterval": 200}
CATCH_UP_BYTES = 64 << 20  # a second
PUTS = 1500
DEADLINE_SECONDS = 1800.0


class Figures(NamedTuple):
    """What one direction came to; the latencies, in microseconds, of ours only."""

    direction: str
    bytes_fetched: int
    kills: int
    seconds: float
    is_equal: bool
    latency_before: float | None = None
    latency_meanwhile: float | None = None


class NewReplica:
    """The replica that is killed; `begin` starts it on what it has, and gives its end and its death."""

    def __init__(self, begin: Callable[[ExitStack], tuple[Callable[[], int], Callable[[], None]]]) -> None:
        self._begin = begin

    def fetch(self, end: int, kills: int) -> None:
        """Follow until all is there, killed so often on the way."""
        marks = [end * (number + 1) // (kills + 1) for number in range(kills)]
        for mark in [*marks, end]:
            with ExitStack() as stack:
                reached, kill = self._begin(stack)
                await_that(lambda reached=reached, mark=mark: reached() >= mark, f"{mark} bytes", DEADLINE_SECONDS)
                if mark != end:
                    kill()


def counters_of(broker: LocalBroker) -> BrokerCounters:
    """Its counters."""
    return BrokerCounters.attach(require_running(broker.store).region_directory)


def killed(broker: LocalBroker) -> None:
    """SIGKILL; its children die with it."""
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.wait()


def ours_behind(directory: Path, ha_address: str, broker_id: int) -> NewReplica:
    """A slave of ours at that master."""

    def begin(stack: ExitStack) -> tuple[Callable[[], int], Callable[[], None]]:
        role = {"brokerRole": "SLAVE", "brokerId": broker_id, "haMasterAddress": ha_address}
        broker = stack.enter_context(LocalBroker(directory, **OURS, **role))
        end = counters_of(broker).max_physical_offset
        return end.read, lambda: killed(broker)

    return NewReplica(begin)


def rocketmq_behind(directory: Path, version: str, names: NameServer) -> NewReplica:
    """A slave of RocketMQ that its name server leads to its master."""

    def begin(stack: ExitStack) -> tuple[Callable[[], int], Callable[[], None]]:
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address, **SIZES}
        broker = stack.enter_context(RocketMQBroker(directory, version, **settings))

        def reached() -> int:
            with Client(broker.port) as client:
                header, body = client.exchange(28)
            return int(json.loads(body)["table"]["commitLogMaxOffset"]) if header["code"] == 0 else -1

        return reached, broker.kill

    return NewReplica(begin)


def digest(directory: Path, end: int) -> str:
    """Of the log's first bytes."""
    total, left = hashlib.sha256(), end
    for path in sorted(directory.glob("0*")):
        with path.open("rb") as file:
            while left and (piece := file.read(min(left, 1 << 24))):
                total.update(piece)
                left -= len(piece)
    return total.hexdigest() if not left else f"{left} bytes are missing"


def fill_ours(master: LocalBroker, size: int) -> int:
    """Put until the log is as long; its end."""
    body, end = random.Random(1).randbytes(BODY_BYTES), counters_of(master).max_physical_offset
    with Producer(str(master.store)) as producer:
        number = 0
        while end.read() < size:
            producer.send("history", body[number % 1000 :], queue_id=number % 4, wait=False)
            number += 1
    return end.read()


def fill_rocketmq(master: RocketMQBroker, size: int) -> int:
    """The same, by requests."""
    body, last, number = random.Random(1).randbytes(BODY_BYTES), 0, 0
    with Client(master.port) as client:
        while last < size:
            last = client.send("history", number % 4, body[number % 1000 :])
            number += 1
    with (master.home / "store" / "commitlog" / f"{last - last % SEGMENT_BYTES:020d}").open("rb") as file:
        file.seek(last % SEGMENT_BYTES)
        return last + int.from_bytes(file.read(4), "big")


def median_put(store: Path, puts: int) -> float:
    """The median time of a synchronous put of 1 KB, in microseconds; putting goes on every few milliseconds."""
    seconds, pause = [], threading.Event()
    with Producer(str(store)) as producer:
        for number in range(puts):
            began = time.perf_counter()
            producer.send("live", b"x" * 1000, queue_id=number % 4)
            seconds.append(time.perf_counter() - began)
            pause.wait(0.002)
    return statistics.median(seconds) * 1e6


def between_ours(directory: Path, size: int, kills: int) -> Figures:
    """A SYNC_MASTER with one slave in step, and a second one that is new."""
    role = {"brokerRole": "SYNC_MASTER", "maxHaCatchUpByteInSecond": CATCH_UP_BYTES}
    with LocalBroker(directory / "m", **OURS, **role) as master:
        live = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        with LocalBroker(directory / "live", **OURS, **live) as slave:
            counters, end = counters_of(master), fill_ours(master, size)
            await_that(lambda: counters_of(slave).max_physical_offset.read() >= end, "the live slave", DEADLINE_SECONDS)
            await_that(lambda: counters.in_sync_slaves.read() == 1, "it is in step")
            before, meanwhile = median_put(master.store, PUTS), []
            is_over = threading.Event()

            def keep_putting() -> None:
                while not is_over.is_set():
                    meanwhile.append(median_put(master.store, 200))

            timing = threading.Thread(target=keep_putting)
            timing.start()
            began = time.monotonic()
            ours_behind(directory / "new", master.ha_address, 2).fetch(end, kills)
            seconds = time.monotonic() - began
            is_over.set()
            timing.join()
        is_equal = digest(directory / "new/store/commitlog", end) == digest(master.store / "commitlog", end)
        return Figures("ours to ours", end, kills, seconds, is_equal, before, statistics.median(meanwhile))


def from_rocketmq(directory: Path, version: str, size: int, kills: int) -> Figures:
    """A master of RocketMQ, and a new slave of ours."""
    with RocketMQBroker(directory / "m", version, brokerRole="ASYNC_MASTER", **SIZES) as master:
        end, began = fill_rocketmq(master, size), time.monotonic()
        ours_behind(directory / "s", f"127.0.0.1:{master.ha_port}", 1).fetch(end, kills)
        seconds, log = time.monotonic() - began, master.home / "store" / "commitlog"
        is_equal = digest(directory / "s/store/commitlog", end) == digest(log, end)
        return Figures(f"RocketMQ {version} to ours", end, kills, seconds, is_equal)


def to_rocketmq(directory: Path, version: str, size: int, kills: int) -> Figures:
    """A master of ours, and a new slave of RocketMQ."""
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with (
        NameServer(directory / "names", version) as names,
        LocalBroker(directory / "m", namesrvAddr=names.address, haStartFromMin=True, compat=compat, **OURS) as master,
    ):
        end, began = fill_ours(master, size), time.monotonic()
        rocketmq_behind(directory / "s", version, names).fetch(end, kills)
        seconds = time.monotonic() - began
        is_equal = digest(directory / "s/store/commitlog", end) == digest(master.store / "commitlog", end)
        return Figures(f"ours to RocketMQ {version}", end, kills, seconds, is_equal)


def ledger(rows: list[Figures]) -> str:
    """The page of docs/."""
    lines = [
        "# The whole history, fetched by a replica that is killed on the way",
        "",
        "Written by `make history`. A new, empty replica fetches a log of that size. SIGKILL ends it at equal steps of"
        " the way, and it",
        "continues from what it has. Both logs are compared by SHA-256. Between Slipstream brokers another slave is in"
        " step all the",
        "time. The last columns are the median of synchronous puts of 1 KB, one every 2 ms, before and while the new"
        " one catches",
        f"up, with maxHaCatchUpByteInSecond={CATCH_UP_BYTES}.",
        "",
        "| direction | bytes | kills | seconds, restarts counted | equal | put before, us | put meanwhile, us |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        before, meanwhile = (f"{at:.0f}" if at else "" for at in (row.latency_before, row.latency_meanwhile))
        equal = "yes" if row.is_equal else "**no**"
        lines.append(
            f"| {row.direction} | {row.bytes_fetched:,} | {row.kills} | {row.seconds:.0f} | {equal} | {before} |"
            f" {meanwhile} |"
        )
    return "\n".join(lines) + "\n"


@contextmanager
def a_directory() -> Iterator[Path]:
    """Gone afterwards: a direction takes twice its log on disk."""
    with tempfile.TemporaryDirectory(prefix="slipstream-history-") as directory:
        yield Path(directory)


def run(size: int, kills: int) -> Iterator[Figures]:
    """Every direction."""
    with a_directory() as directory:
        yield between_ours(directory, size, kills)
    for version in rocketmq.VERSIONS:
        with a_directory() as directory:
            yield from_rocketmq(directory, version, size, kills)
        with a_directory() as directory:
            yield to_rocketmq(directory, version, size, kills)


@click.command()
@click.option("--gib", default=4.0, show_default=True, type=click.FloatRange(min=0.01))
@click.option("--kills", default=20, show_default=True, type=click.IntRange(min=0))
@click.option("--ledger", "page", type=click.Path(path_type=Path))
def main(gib: float, kills: int, page: Path | None) -> None:
    """Fetch, kill, compare, and write the ledger."""
    rows = []
    for row in run(int(gib * (1 << 30)), kills):
        print(row, flush=True)
        rows.append(row)
    text = ledger(rows)
    print(text)
    if page is not None:
        page.write_text(text)
    if not all(row.is_equal for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
