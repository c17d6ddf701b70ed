"""What a broker costs: memory, CPU, open files and mappings of each of its processes, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from engine.monitoring.status import snapshot

NS_PER_S = 1_000_000_000


class RoleCost(NamedTuple):
    """One process of a broker."""

    role: str
    rss_bytes: int
    pss_bytes: int
    cpu_seconds: float  # since it began
    files: int
    mappings: int


def costs(store: Path) -> dict[str, RoleCost]:
    """The processes of the broker that runs on `store`, by role."""
    found = {}
    for process in snapshot(store, cpu_sample_seconds=0.0).processes:
        proc = Path(f"/proc/{process.pid}")
        found[process.role] = RoleCost(
            process.role,
            process.rss_bytes,
            process.pss_bytes,
            _cpu_seconds(proc),
            len(os.listdir(proc / "fd")),
            (proc / "maps").read_bytes().count(b"\n"),
        )
    return found


def _cpu_seconds(proc: Path) -> float:
    """By the scheduler's clock: short wake-ups fall between the ticks."""
    return sum(int(task.read_text().split()[0]) for task in proc.glob("task/*/schedstat")) / NS_PER_S
