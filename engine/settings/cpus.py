"""The CPUs of a role: which of them it may use (the setting `affinity`), and how soon it comes to its turn there.

Waking a sleeper on another CPU costs several times what its work does, so the synchronous path (writer, senders,
receiver, group transfer) is fastest on one CPU, together with its producers; what runs beside it takes the others.

Where others run, too, roles that a client waits for ask for short slices. Since Linux 6.12 a thread that wakes with a
shorter slice goes before one that runs with a longer one. What share of the CPUs each has stays as it is, so nobody
pays for it but by switches. Older kernels know no such wish.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Set

from ipc.machine import of_this

SYNC = "sync"
SYNC_PATH = ("writer", "receiver", "group_transfer", "ha_listener")  # senders are the listener's children
PROMPT_NS = 100_000  # the shortest that the kernel grants; without a wish it is some milliseconds
PROMPT = (*SYNC_PATH, "front.")  # how their names begin
SYS_SETATTR, SYS_GETATTR = of_this({"x86_64": (314, 315), "aarch64": (274, 275)})
SHARED_TIME = (0, 3)  # SCHED_OTHER and SCHED_BATCH: those that have slices


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


def hold_to_cpus(affinity: str, role: str) -> None:
    """Hold this process to the CPUs of its role."""
    cpus = cpus_of(affinity, role, os.sched_getaffinity(0))
    if cpus:
        os.sched_setaffinity(0, cpus)


class SchedAttr(ctypes.Structure):
    """The system's struct sched_attr, as its first version has it. `sched_runtime`: the slice, in ns."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("sched_policy", ctypes.c_uint32), ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32), ("sched_priority", ctypes.c_uint32), ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64), ("sched_period", ctypes.c_uint64),
    )  # fmt: skip


def ask_for_short_slices(role: str) -> None:
    """Ask for a role's short slices, for this thread and all that it starts; does nothing where the kernel refuses."""
    if not role.startswith(PROMPT):
        return
    try:
        attributes = attributes_of(0)
        if attributes.sched_policy in SHARED_TIME and attributes.sched_runtime:
            attributes.sched_runtime = PROMPT_NS
            _call(SYS_SETATTR, 0, ctypes.byref(attributes), 0)
    except OSError:  # by a filter of system calls
        return


def attributes_of(thread: int) -> SchedAttr:
    """Return the scheduling of a thread on this machine, 0: the caller. Raises OSError."""
    attributes = SchedAttr()
    _call(SYS_GETATTR, thread, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return attributes


def _call(number: int, *arguments: object) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments) < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
