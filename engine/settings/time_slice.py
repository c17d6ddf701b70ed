"""How soon a role comes to its turn on a CPU where others run, too: those that a client waits for ask for short slices.

Since Linux 6.12 a thread that wakes with a shorter slice goes before one that runs with a longer one. What share of the
CPUs each has stays as it is, so nobody pays for it but by switches. Older kernels know no such wish.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from engine.settings.affinity import SYNC_PATH
from ipc.machine import of_this

PROMPT_NS = 100_000  # the shortest that the kernel grants; without a wish it is some milliseconds
PROMPT = (*SYNC_PATH, "front.")  # how their names begin
SYS_SETATTR, SYS_GETATTR = of_this({"x86_64": (314, 315), "aarch64": (274, 275)})
SHARED_TIME = (0, 3)  # SCHED_OTHER and SCHED_BATCH: those that have slices


class SchedAttr(ctypes.Structure):
    """The system's struct sched_attr, as its first version has it. `sched_runtime`: the slice, in ns."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("sched_policy", ctypes.c_uint32), ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32), ("sched_priority", ctypes.c_uint32), ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64), ("sched_period", ctypes.c_uint64),
    )  # fmt: skip


class Scheduling(NamedTuple):
    """The scheduling of a thread. `slice_ns` 0: by a kernel without such wishes, or under another policy."""

    policy: int
    slice_ns: int


def scheduling(thread: int = 0) -> Scheduling:
    """Return the scheduling of a thread on this machine, 0: the caller. Raises OSError."""
    attributes = _attributes(thread)
    return Scheduling(attributes.sched_policy, attributes.sched_runtime)


def apply(role: str) -> None:
    """Ask for a role's short slices, for this thread and all that it starts; does nothing where the kernel refuses."""
    if not role.startswith(PROMPT):
        return
    try:
        attributes = _attributes(0)
        if attributes.sched_policy in SHARED_TIME and attributes.sched_runtime:
            attributes.sched_runtime = PROMPT_NS
            _call(SYS_SETATTR, 0, ctypes.byref(attributes), 0)
    except OSError:  # by a filter of system calls
        return


def _attributes(thread: int) -> SchedAttr:
    attributes = SchedAttr()
    _call(SYS_GETATTR, thread, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return attributes


def _call(number: int, *arguments: object) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments) < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
