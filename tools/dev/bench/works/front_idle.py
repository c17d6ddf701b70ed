"""Clients that wait: what a thousand of them cost a broker, beside a real RocketMQ broker, and its own producers."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from statistics import median

from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.cpu_time import cpu_seconds, pids_of
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.front_load import Sending, compiled, send
from tools.dev.bench.bed.idle_clients import idle_clients
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory
from tools.dev.bench.bed.rocketmq import RealBroker
from tools.dev.bench.works.front_sends import LINES

CLIENTS, WATCH_SECONDS, SETTLE_SECONDS = 1000, 45.0, 5.0  # three lives of a held pull
CPU_GOAL_PERCENT, BYTES_GOAL, LOCAL_GOAL = 1.0, 20_000.0, 0.95
KIB, TOPIC = 1 << 10, "idle"
LOCAL_SIZE, LOCAL_MESSAGES = 1024, 800_000


def measure(of: Asked, to: Results) -> None:
    """Ours of each line, and RocketMQ's where it is at hand; local producers beside clients and alone, in pairs."""
    program = compiled(of.scratch)
    for compat, name in LINES.items():
        home = of.scratch / f"front-idle-{compat}"
        work = f"{CLIENTS} waiting clients, {compat}"
        with LocalBroker(home / "ours", compat=compat) as ours:
            percent, bytes_each = _watch(program, ours.port, ours.process.pid)
            _report(work, "slipstream", percent, bytes_each, to)
            to.at_most(f"{work}: CPU", percent, CPU_GOAL_PERCENT, "1 % of a core")
            to.at_most(f"{work}: memory", bytes_each, BYTES_GOAL, "20 KB each")
            if compat == "5":
                _measure_local(ours, of.repeat, to)
        if of.rocketmq is not None:
            with RealBroker(of.rocketmq, compat, home / "theirs", free_port()) as theirs:
                _report(work, name, *_watch(program, theirs.port, theirs.pid), to)
        shutil.rmtree(home)


def _report(work: str, side: str, percent: float, bytes_each: float, to: Results) -> None:
    print(f"{work}: {side}: {percent:.2f} % of a core, {bytes_each:,.0f} B each", file=sys.stderr)
    to.figure(work, side, percent, "% of a core")
    to.figure(work, side, bytes_each, "bytes a client")


def _own_bytes(pid: int) -> int:
    """Memory of all processes that no file stands for: mapped segments and queues come and go with the page cache."""
    rollups = [Path(f"/proc/{one}/smaps_rollup") for one in pids_of(pid)]
    lines = [line.split() for rollup in rollups for line in rollup.read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line[0] in ("Pss_Anon:", "Pss_Shmem:")) * KIB


def _watch(program: Path, port: int, pid: int) -> tuple[float, float]:
    """CPU in percent of a core and memory of each client; what the broker takes with none of them is taken off."""
    send(program, port, Sending(1, 1, 128), TOPIC, 0, 1000)
    time.sleep(SETTLE_SECONDS)
    before = _own_bytes(pid)
    alone = _percent(pid)
    with idle_clients(port, TOPIC, CLIENTS):
        time.sleep(SETTLE_SECONDS)
        percent, after = _percent(pid), _own_bytes(pid)
    return percent - alone, (after - before) / CLIENTS


def _percent(pid: int) -> float:
    began, spent = time.monotonic(), cpu_seconds(pid)
    time.sleep(WATCH_SECONDS)
    return (cpu_seconds(pid) - spent) / (time.monotonic() - began) * 100


def _measure_local(broker: LocalBroker, repeat: int, to: Results) -> None:
    """Producers in shared memory while the door is open and clients wait behind it, and while nobody does."""
    rates: dict[bool, list[float]] = {False: [], True: []}

    def append() -> float:
        warm_memory()
        return run_load(broker.store, "batch", LOCAL_SIZE, LOCAL_MESSAGES).messages_per_second

    append()
    for _ in range(max(repeat, 2)):
        rates[False].append(append())
        with idle_clients(broker.port, TOPIC, CLIENTS):
            rates[True].append(append())
    alone, beside = map(median, rates.values())
    print(f"local producers: {alone:,.0f} messages/s alone, {beside:,.0f} beside clients", file=sys.stderr)
    to.at_least("local producers beside waiting clients", beside, alone, "without clients", LOCAL_GOAL)
