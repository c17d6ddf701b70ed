"""Catching up: an empty slave takes a full segment from its master: how fast, and what it costs both of them."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import await_reached, slave_of
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory
from tools.dev.bench.bed.rocketmq import CaughtUp
from tools.dev.bench.bed.rocketmq import catch_up as rocketmq_catch_up

MIB, GIB = 1 << 20, 1 << 30
SEGMENT_BYTES = 1500 * MIB  # one segment: a new slave is sent the last one only
MESSAGES, SIZE = 1_200_000, 1024
FRAMES = (32 * 1024, 256 * 1024)


class Run(NamedTuple):
    """One catching up: MiB/s between the first mebibyte and the last; CPU seconds a GiB, until all is dispatched."""

    mib_per_s: float
    master_cpu_s: float
    slave_cpu_s: float


def _once(directory: Path, frame_bytes: int) -> Run:
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "haTransferBatchSize": frame_bytes}
    with LocalBroker(directory / "m", brokerRole="ASYNC_MASTER", **keys) as master:
        run_load(master.store, "batch", SIZE, MESSAGES)
        of_master = master.counters()
        end = of_master.max_physical_offset.read()
        for cursor in (of_master.flushed_offset, of_master.reput_from_offset):  # RocketMQ's is at rest, too
            await_reached(cursor, end)
        listener = of_master.pids["ha_listener"].read()
        os.kill(listener, signal.SIGSTOP)
        with slave_of(master, directory / "s", **keys) as slave:
            warm_memory()  # now: a host that takes back what is free does so within seconds
            os.kill(listener, signal.SIGCONT)
            spent = [cpu_seconds(broker.process.pid) for broker in (master, slave)]
            counters = slave.counters()
            began = await_reached(counters.max_physical_offset, MIB)
            begun_at = counters.max_physical_offset.read()
            seconds = await_reached(counters.max_physical_offset, end) - began
            await_reached(counters.reput_from_offset, end)
            both = zip((master, slave), spent, strict=True)
            costs = [(cpu_seconds(broker.process.pid) - before) / (end / GIB) for broker, before in both]
    shutil.rmtree(directory)
    return Run((end - begun_at) / MIB / seconds, *costs)


def _beside_rocketmq(theirs: CaughtUp, ours: Run, to: Results) -> None:
    work, peer = "catch-up, frames of 32 KiB", "rocketmq 4.9"
    to.figure(work, peer, theirs.mib_per_s, "MiB/s")
    to.at_least(work, ours.mib_per_s, theirs.mib_per_s, peer, 6.0)
    for end, own, spent in (
        ("master", ours.master_cpu_s, theirs.master_cpu_s),
        ("slave", ours.slave_cpu_s, theirs.slave_cpu_s),
    ):
        per_gib, of_end = spent / (theirs.mib * MIB / GIB), f"CPU seconds a GiB caught up, {end}"
        to.figure(of_end, peer, per_gib, "s/GiB")
        to.at_most(of_end, own, per_gib, peer, 0.5)


def measure(of: Asked, to: Results) -> None:
    """Ours, the machine's own `sendfile -> recv_into(mmap)` of the same chunk, RocketMQ's."""
    runs: dict[int, list[Run]] = {frame: [] for frame in FRAMES}
    for number in range(of.repeat):
        for frame in FRAMES:
            runs[frame].append(_once(of.scratch / f"catch-up-{number}-{frame}", frame))
        warm_memory()
        of.peers.run("limits", "sendfile", directory=of.scratch)
    for frame, repeats in runs.items():
        work = f"catch-up, frames of {frame // 1024} KiB"
        middle = Run(*medians(repeats))
        to.figure(work, "slipstream", middle.mib_per_s, "MiB/s")
        if frame == FRAMES[0]:
            ours = middle
            to.figure("CPU seconds a GiB caught up, master", "slipstream", ours.master_cpu_s, "s/GiB")
            to.figure("CPU seconds a GiB caught up, slave", "slipstream", ours.slave_cpu_s, "s/GiB")
        limit = of.peers.figure("mb_per_s", work="sendfile", chunk=f"{frame // 1024} KiB")
        if limit is not None:
            limit = limit * 1e6 / MIB
            to.figure(work, "sendfile -> recv_into(mmap)", limit, "MiB/s")
            to.at_least(work, middle.mib_per_s, limit, "sendfile limit", 0.8)
    if of.rocketmq is not None:
        _beside_rocketmq(rocketmq_catch_up(of.rocketmq), ours, to)
