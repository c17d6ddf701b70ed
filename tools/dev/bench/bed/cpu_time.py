"""CPU time and wake-ups of a broker's processes, by the scheduler's counts: short ones fall between the ticks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

NS_PER_S = 1_000_000_000
NAME_PREFIX = "slip:"  # of a role's process


class Spent(NamedTuple):
    """The cost of a process's threads: how often they went to sleep by themselves, seconds of CPU."""

    switches: int
    cpu_seconds: float


def pids_of(pid: int) -> list[int]:
    """The supervisor `pid` and its children that live now."""
    supervisor = psutil.Process(pid)
    return [process.pid for process in (supervisor, *supervisor.children(recursive=True))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all processes of the broker whose supervisor is `pid`."""
    return sum(_cpu_of(task) for one in pids_of(pid) for task in Path(f"/proc/{one}/task").iterdir())


def spent(pid: int) -> dict[str, Spent]:
    """Return wake-ups and CPU by role, of the broker whose supervisor is `pid`; an ended process is left out."""
    by_role = {}
    for one in pids_of(pid):
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            switches = sum(_voluntary((task / "status").read_text()) for task in tasks)
            role = name.removeprefix(NAME_PREFIX) if one != pid else "supervisor"
            by_role[role] = Spent(switches, sum(map(_cpu_of, tasks)))
        except (OSError, psutil.NoSuchProcess):
            continue
    return by_role


def since(before: dict[str, Spent], after: dict[str, Spent]) -> dict[str, Spent]:
    """Return what was spent between two looks, by role."""
    nothing = Spent(0, 0.0)
    return {
        role: Spent(now.switches - then.switches, now.cpu_seconds - then.cpu_seconds)
        for role, now in after.items()
        for then in (before.get(role, nothing),)
    }


def _cpu_of(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / NS_PER_S


def _voluntary(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
    return int(line.split()[1])
