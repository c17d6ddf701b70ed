"""CPU seconds of a broker with all its processes, by the scheduler's clock: short wake-ups fall between the ticks."""

from __future__ import annotations

from pathlib import Path

import psutil

NS_PER_S = 1_000_000_000


def pids_of(pid: int) -> list[int]:
    """The supervisor `pid` and its children that live now."""
    supervisor = psutil.Process(pid)
    return [process.pid for process in (supervisor, *supervisor.children(recursive=True))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all processes of the broker whose supervisor is `pid`."""
    tasks = [task for pid in pids_of(pid) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(task.read_text().split()[0]) for task in tasks) / NS_PER_S
