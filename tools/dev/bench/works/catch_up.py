"""Catching up: an empty slave takes a full segment from its master: how fast, and what it costs both of them."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.counters import Cursor
from store.reading import extent
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory
from tools.dev.bench.bed.peers import Peers
from tools.dev.bench.bed.rocketmq import CaughtUp
from tools.dev.bench.bed.rocketmq import catch_up as rocketmq_catch_up

MIB, GIB = 1 << 20, 1 << 30
SEGMENT_BYTES = 1500 * MIB  # one segment: a new slave is sent the last one only
MESSAGES, SIZE = 1_200_000, 1024
FRAMES = (32 * 1024, 256 * 1024)
DEADLINE_SECONDS = 120.0


class Run(NamedTuple):
    """One catching up: MiB/s between the first mebibyte and the last; CPU seconds a GiB, until all is dispatched."""

    mib_per_s: float
    master_cpu_s: float
    slave_cpu_s: float


def _await(cursor: Cursor, offset: int) -> int:
    """Wait until the cursor reaches `offset`; the monotonic nanosecond at which it did."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := cursor.read()) < offset:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave stays at {seen} of {offset}")
        waiting.await_change(cursor, seen, 100)
    return time.monotonic_ns()


def _once(directory: Path, frame_bytes: int) -> Run:
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "haTransferBatchSize": frame_bytes}
    with LocalBroker(directory / "m", brokerRole="ASYNC_MASTER", **keys) as master:
        run_load(master.store, "batch", SIZE, MESSAGES)
        master_counters = BrokerCounters.attach(extent.require_running(master.store).region_directory, writable=True)
        end = master_counters.max_physical_offset.read()
        for cursor in (master_counters.flushed_offset, master_counters.reput_from_offset):  # RocketMQ's is at rest, too
            _await(cursor, end)
        listener = master_counters.pids["ha_listener"].read()
        os.kill(listener, signal.SIGSTOP)
        with LocalBroker(
            directory / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **keys
        ) as slave:
            warm_memory()  # now: a host that takes back what is free does so within seconds
            os.kill(listener, signal.SIGCONT)
            spent = [cpu_seconds(broker.process.pid) for broker in (master, slave)]
            counters = BrokerCounters.attach(extent.require_running(slave.store).region_directory, writable=True)
            began_ns = _await(counters.max_physical_offset, MIB)
            begun_at = counters.max_physical_offset.read()
            seconds = (_await(counters.max_physical_offset, end) - began_ns) / 1e9
            _await(counters.reput_from_offset, end)
            both = zip((master, slave), spent, strict=True)
            costs = [(cpu_seconds(broker.process.pid) - before) / (end / GIB) for broker, before in both]
    shutil.rmtree(directory)
    return Run((end - begun_at) / MIB / seconds, *costs)


def _beside_rocketmq(theirs: CaughtUp, ours: Run) -> tuple[list[Figure], list[Ratio]]:
    work, peer = "catch-up, frames of 32 KiB", "rocketmq 4.9"
    figures = [Figure(work, peer, theirs.mib_per_s, "MiB/s")]
    ratios = [Ratio(work, ours.mib_per_s, theirs.mib_per_s, peer, 6.0)]
    for end, own, spent in (
        ("master", ours.master_cpu_s, theirs.master_cpu_s),
        ("slave", ours.slave_cpu_s, theirs.slave_cpu_s),
    ):
        per_gib, of_end = spent / (theirs.mib * MIB / GIB), f"CPU seconds a GiB caught up, {end}"
        figures.append(Figure(of_end, peer, per_gib, "s/GiB"))
        ratios.append(Ratio(of_end, own, per_gib, peer, 0.5, more_is_better=False))
    return figures, ratios


def measure(directory: Path, peers: Peers, rocketmq: Path | None, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Ours, the machine's own `sendfile -> recv_into(mmap)` of the same chunk, RocketMQ's."""
    runs: dict[int, list[Run]] = {frame: [] for frame in FRAMES}
    for number in range(repeat):
        for frame in FRAMES:
            runs[frame].append(_once(directory / f"catch-up-{number}-{frame}", frame))
        warm_memory()
        peers.run("limits", "sendfile", directory=directory)
    figures, ratios = [], []
    for frame, repeats in runs.items():
        work = f"catch-up, frames of {frame // 1024} KiB"
        middle = Run(*map(statistics.median, zip(*repeats, strict=True)))
        figures.append(Figure(work, "slipstream", middle.mib_per_s, "MiB/s"))
        if frame == FRAMES[0]:
            ours = middle
            figures.append(Figure("CPU seconds a GiB caught up, master", "slipstream", ours.master_cpu_s, "s/GiB"))
            figures.append(Figure("CPU seconds a GiB caught up, slave", "slipstream", ours.slave_cpu_s, "s/GiB"))
        limit = peers.figure("mb_per_s", work="sendfile", chunk=f"{frame // 1024} KiB")
        if limit is not None:
            limit = limit * 1e6 / MIB
            figures.append(Figure(work, "sendfile -> recv_into(mmap)", limit, "MiB/s"))
            ratios.append(Ratio(work, middle.mib_per_s, limit, "sendfile limit", 0.8))
    if rocketmq is not None:
        theirs = _beside_rocketmq(rocketmq_catch_up(rocketmq), ours)
        figures, ratios = figures + theirs[0], ratios + theirs[1]
    return figures, ratios
