"""Dispatching: consume queues and index of a log that is there already, against how fast the writer appended it."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from pathlib import Path

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory

SIZE, MESSAGES = 128, 3_000_000
WORKS = {"batch": "queues", "keyed": "queues and index"}
GOAL_PER_SECOND = 1e6
DEADLINE_SECONDS = 120.0


def await_dispatched(counters: BrokerCounters, offset: int) -> float:
    """Wait until the dispatcher reaches `offset`; the monotonic second at which it did."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := counters.reput_from_offset.read()) < offset:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the dispatcher stays at {seen} of {offset}")
        waiting.await_change(counters.reput_from_offset, seen, 100)
    return time.monotonic()


def _once(directory: Path, work: str) -> tuple[float, float]:
    """Messages a second appended, then dispatched: the dispatcher is held still in between, so each has the machine."""
    with LocalBroker(directory, brokerRole="ASYNC_MASTER") as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
        run_load(broker.store, work, SIZE, 1)  # its warm-up: the queues are there
        await_dispatched(counters, counters.max_physical_offset.read())
        warm_memory()
        dispatcher = counters.pids["dispatcher"].read()
        os.kill(dispatcher, signal.SIGSTOP)
        try:
            begun_at = counters.put_messages.read()
            appended = run_load(broker.store, work, SIZE, MESSAGES).messages_per_second
        finally:
            os.kill(dispatcher, signal.SIGCONT)
        began, messages = time.monotonic(), counters.put_messages.read() - begun_at
        seconds = await_dispatched(counters, counters.max_physical_offset.read()) - began
    shutil.rmtree(directory)
    return appended, messages / seconds


def measure(directory: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Messages without keys, which only go to a queue, and with one key each; medians of `repeat` runs."""
    rates: dict[str, list[tuple[float, float]]] = {work: [] for work in WORKS}
    for number in range(repeat):
        for work, series in rates.items():
            series.append(_once(directory / f"dispatch-{number}-{work}", work))
    appended = statistics.median(rate for rate, _ in rates["batch"])
    figures = [Figure("append 128 B in batches", "writer", appended / 1e6, "M msg/s")]
    ratios = []
    for work, named in WORKS.items():
        dispatched = statistics.median(rate for _, rate in rates[work])
        figures.append(Figure(f"dispatch 128 B: {named}", "dispatcher", dispatched / 1e6, "M msg/s"))
        ratios.append(Ratio(f"dispatch 128 B: {named}", dispatched, appended, "append", 1.0))
        ratios.append(Ratio(f"dispatch 128 B: {named}", dispatched, GOAL_PER_SECOND, "1 M msg/s", 1.0))
    return figures, ratios
