"""Who wakes: voluntary context switches and CPU time of each process of a broker, as the kernel counts them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

from tools.dev.bench.bed.cpu_time import NS_PER_S, pids_of

NAME_PREFIX = "slip:"  # of a role's process


class Spent(NamedTuple):
    """The cost of a process's threads: how often they went to sleep by themselves, seconds of CPU."""

    switches: int
    cpu_seconds: float


def spent(pid: int) -> dict[str, Spent]:
    """Return wake-ups and CPU by role, of the broker whose supervisor is `pid`; an ended process is left out."""
    by_role = {}
    for one in pids_of(pid):
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
            by_role[name.removeprefix(NAME_PREFIX) if one != pid else "supervisor"] = _of_process(one)
        except (OSError, psutil.NoSuchProcess):
            continue
    return by_role


def _of_process(pid: int) -> Spent:
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    switches = sum(_voluntary((task / "status").read_text()) for task in tasks)
    return Spent(switches, sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / NS_PER_S)


def _voluntary(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
    return int(line.split()[1])


def since(before: dict[str, Spent], after: dict[str, Spent]) -> dict[str, Spent]:
    """Return what was spent between two looks, by role."""
    nothing = Spent(0, 0.0)
    return {
        role: Spent(now.switches - then.switches, now.cpu_seconds - then.cpu_seconds)
        for role, now in after.items()
        for then in (before.get(role, nothing),)
    }
