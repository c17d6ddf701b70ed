"""Dispatching: consume queues and index of a log that is there already, against how fast the writer appended it."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import await_reached
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory

SIZE, MESSAGES = 128, 3_000_000
WORKS = {"batch": "queues", "keyed": "queues and index"}
GOAL_PER_SECOND = 1e6


def _once(directory: Path, work: str) -> tuple[float, float]:
    """Messages a second appended, then dispatched: the dispatcher is held still in between, so each has the machine."""
    with LocalBroker(directory, brokerRole="ASYNC_MASTER") as broker:
        counters = broker.counters()
        run_load(broker.store, work, SIZE, 1)  # its warm-up: the queues are there
        await_reached(counters.reput_from_offset, counters.max_physical_offset.read())
        warm_memory()
        dispatcher = counters.pids["dispatcher"].read()
        os.kill(dispatcher, signal.SIGSTOP)
        try:
            begun_at = counters.put_messages.read()
            appended = run_load(broker.store, work, SIZE, MESSAGES).messages_per_second
        finally:
            os.kill(dispatcher, signal.SIGCONT)
        began, messages = time.monotonic(), counters.put_messages.read() - begun_at
        seconds = await_reached(counters.reput_from_offset, counters.max_physical_offset.read()) - began
    shutil.rmtree(directory)
    return appended, messages / seconds


def measure(of: Asked, to: Results) -> None:
    """Messages without keys, which only go to a queue, and with one key each; medians of the runs."""
    rates: dict[str, list[tuple[float, float]]] = {work: [] for work in WORKS}
    for number in range(of.repeat):
        for work, series in rates.items():
            series.append(_once(of.scratch / f"dispatch-{number}-{work}", work))
    appended = statistics.median(rate for rate, _ in rates["batch"])
    to.figure("append 128 B in batches", "writer", appended / 1e6, "M msg/s")
    for work, named in WORKS.items():
        dispatched = statistics.median(rate for _, rate in rates[work])
        to.figure(f"dispatch 128 B: {named}", "dispatcher", dispatched / 1e6, "M msg/s")
        to.at_least(f"dispatch 128 B: {named}", dispatched, appended, "append")
        to.at_least(f"dispatch 128 B: {named}", dispatched, GOAL_PER_SECOND, "1 M msg/s")
