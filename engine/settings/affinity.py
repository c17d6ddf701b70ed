"""Which CPUs a role may use: the setting `affinity`.

Waking a sleeper on another CPU costs several times what its work does, so the synchronous path (writer, senders,
receiver, group transfer) is fastest on one CPU, together with its producers; what runs beside it takes the others.
"""

from __future__ import annotations

import os
from collections.abc import Set

SYNC = "sync"
SYNC_PATH = ("writer", "receiver", "group_transfer", "ha_listener")  # senders are the listener's children


def cpus_of(affinity: str, role: str, available: Set[int]) -> Set[int] | None:
    """The CPUs for `role`; None leaves it to the kernel. `affinity` is "", "sync", or CPU numbers as in "0,2-3"."""
    if not affinity or (affinity == SYNC and role not in SYNC_PATH):
        return None
    if affinity == SYNC:
        return {min(available)}
    return parse_cpus(affinity) & available or None


def sync_cpu(affinity: str) -> int:
    """Return the one CPU of the synchronous path, in a process that may use the broker's CPUs; -1 without one."""
    cpus = cpus_of(affinity, SYNC_PATH[0], os.sched_getaffinity(0)) or set()
    return next(iter(cpus)) if len(cpus) == 1 else -1


def parse_cpus(text: str) -> set[int]:
    """CPU numbers of a list as in "0,2-3". Raises ValueError."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def apply(affinity: str, role: str) -> None:
    """Hold this process to the CPUs of its role."""
    cpus = cpus_of(affinity, role, os.sched_getaffinity(0))
    if cpus:
        os.sched_setaffinity(0, cpus)
