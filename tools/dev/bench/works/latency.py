"""The synchronous path: one `send` at a time to a SYNC_MASTER with one slave, left free and on one CPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import pair
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.rocketmq import sync_send

MESSAGES, SIZE = 10_000, 1024
FREE, ONE_CPU = "", "0"


def _ours(directory: Path, cpus: str) -> tuple[float, float]:
    with pair(directory, cpus=cpus) as (master, _slave):
        report = run_load(master.store, "sync", SIZE, MESSAGES, cpus=cpus).producers[0]
    shutil.rmtree(directory)
    return report["p50_us"], report["p99_us"]


def measure(of: Asked, to: Results) -> None:
    """Ours, Redis with a replica and WAIT 1, RocketMQ 4.9, and the machine's own round trip."""
    peers = of.peers
    for cpus, named in ((FREE, "left free"), (ONE_CPU, "on one CPU")):
        ours = []
        for number in range(of.repeat):
            ours.append(_ours(of.scratch / f"latency-{number}", cpus))
            peers.run("redis", "xadd-wait", cpus=cpus, directory=of.scratch)
            peers.run("limits", "latency", cpus=cpus, directory=of.scratch)
        p50, p99 = medians(ours)
        work = f"sync-replicated send, 1 KB, {named}"
        to.figure(work, "slipstream", p50, "us", p99)
        redis: dict[str, Any] = {"work": "one-at-a-time", "message_bytes": SIZE, "appendfsync": "memory", "cpus": cpus}
        theirs = peers.figure("p50_us", **redis)
        if theirs is not None:
            to.figure(work, "redis XADD + WAIT 1", theirs, "us", peers.figure("p99_us", **redis))
            to.at_most(work, p50, theirs, "redis", 0.9)
        floor = peers.figure("p50_us", work="tcp-round-trip", cpus=cpus)
        if floor is not None:
            to.figure(work, "TCP round trip", floor, "us", peers.figure("p99_us", work="tcp-round-trip"))
        if not cpus and of.rocketmq is not None:
            their_p50, their_tail = sync_send(of.rocketmq)
            to.figure(work, "rocketmq 4.9", their_p50, "us", their_tail)
            to.at_most(work, p50, their_p50, "rocketmq 4.9", 1 / 3)
            to.at_most(f"{work}: our p99", p99, their_p50, "rocketmq 4.9's p50")
