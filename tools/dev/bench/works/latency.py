"""The synchronous path: one `send` at a time to a SYNC_MASTER with one slave, left free and on one CPU."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.peers import Peers
from tools.dev.bench.bed.rocketmq import sync_send

MESSAGES, SIZE = 10_000, 1024
IN_SYNC_TURNS, IN_SYNC_TURN_MS = 300, 100
FREE, ONE_CPU = "", "0"


def await_slaves(store: Path, count: int = 1) -> None:
    """Wait until that many slaves are in sync. Raises RuntimeError after half a minute."""
    counters = BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)
    for _ in range(IN_SYNC_TURNS):
        seen = counters.in_sync_slaves.read()
        if seen >= count:
            return
        waiting.await_change(counters.in_sync_slaves, seen, IN_SYNC_TURN_MS)
    raise RuntimeError(f"{store}: no {count} slave(s) came into step")


def _ours(directory: Path, cpus: str) -> tuple[float, float]:
    keys: dict[str, Any] = {"cpus": cpus}
    with (
        LocalBroker(directory / "m", brokerRole="SYNC_MASTER", **keys) as master,
        LocalBroker(directory / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **keys),
    ):
        await_slaves(master.store)
        report = run_load(master.store, "sync", SIZE, MESSAGES, cpus=cpus).producers[0]
    shutil.rmtree(directory)
    return report["p50_us"], report["p99_us"]


def measure(directory: Path, peers: Peers, rocketmq: Path | None, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Ours, Redis with a replica and WAIT 1, RocketMQ 4.9, and the machine's own round trip."""
    figures, ratios = [], []
    for cpus, named in ((FREE, "left free"), (ONE_CPU, "on one CPU")):
        ours = []
        for number in range(repeat):
            ours.append(_ours(directory / f"latency-{number}", cpus))
            peers.run("redis", "xadd-wait", cpus=cpus, directory=directory)
            peers.run("limits", "latency", cpus=cpus, directory=directory)
        p50, p99 = (statistics.median(column) for column in zip(*ours, strict=True))
        work = f"sync-replicated send, 1 KB, {named}"
        figures.append(Figure(work, "slipstream", p50, "us", p99))
        redis: dict[str, Any] = {"work": "one-at-a-time", "message_bytes": SIZE, "appendfsync": "memory", "cpus": cpus}
        theirs, their_p99 = peers.figure("p50_us", **redis), peers.figure("p99_us", **redis)
        if theirs is not None:
            figures.append(Figure(work, "redis XADD + WAIT 1", theirs, "us", their_p99))
            ratios.append(Ratio(work, p50, theirs, "redis", 0.9, more_is_better=False))
        floor = peers.figure("p50_us", work="tcp-round-trip", cpus=cpus)
        if floor is not None:
            figures.append(Figure(work, "TCP round trip", floor, "us", peers.figure("p99_us", work="tcp-round-trip")))
        if not cpus and rocketmq is not None:
            their_p50, their_tail = sync_send(rocketmq)
            figures.append(Figure(work, "rocketmq 4.9", their_p50, "us", their_tail))
            ratios.append(Ratio(work, p50, their_p50, "rocketmq 4.9", 1 / 3, more_is_better=False))
            ratios.append(Ratio(f"{work}: our p99", p99, their_p50, "rocketmq 4.9's p50", 1.0, more_is_better=False))
    return figures, ratios
