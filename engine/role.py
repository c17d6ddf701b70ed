"""What every process shares: turns of work, idling with a deadline, the heartbeat, the way to stop.

A role beats its heartbeat from the loop that works, never from a thread beside it: a stuck role must stop beating.
A role that fails raises; its process dies, and the supervisor starts another from the role's own cursor.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol, runtime_checkable

from ipc import process, waiting
from ipc.clock import monotonic_ms
from ipc.counters import Cursor
from ipc.stop_signals import STOP_SIGNALS

# A role with timers ends its sleep earlier. A heartbeat counts as old after `finding.SILENT_SECONDS`.
IDLE_MS_MAX = 5000
FINISH_NS = 10_000_000_000  # for what arrived before the stop: producers may go on for as long as we take it
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


class Role(Protocol):
    """A stage of the pipeline, run by one process."""

    name: str

    def do_work(self, now_ms: int) -> int:
        """Do one small turn; return how much it moved, 0 when there was nothing to do. `now_ms` is monotonic."""

    def idle(self, timeout_ms: int) -> None:
        """Wait until there may be work, `timeout_ms` at most."""

    def close(self) -> None:
        """Finish what was begun and give everything back."""


@runtime_checkable
class LoopRole(Role, Protocol):
    """A role with an event loop, which calls the turns itself."""

    def serve(self, turn: Callable[[], int], stopping: Callable[[], bool]) -> None:
        """Have turns whenever one is due, IDLE_MS_MAX apart at most, until `stopping()`. Raises what a turn raises."""


class StopFlag:
    """Turns true once a signal to stop has come; the handler does nothing else, the loop acts.

    `alarm`, an eventfd, wakes a role that sleeps on it.
    """

    def __init__(self, alarm: int = -1) -> None:
        self._stopping, self._alarm = False, alarm

    def __call__(self) -> bool:
        return self._stopping

    def set(self) -> None:
        """Set the flag, and wake a sleeper through the alarm."""
        self._stopping = True
        if self._alarm >= 0:
            os.eventfd_write(self._alarm, 1)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handler for what ends a command."""
        self.set()


_alarm = -1  # of this process


def stop_alarm() -> int:
    """Return a descriptor that becomes readable once this process is asked to stop.

    Python's select, poll and epoll sleep on after a signal: a role that idles in one of them watches this, too.
    """
    global _alarm
    if _alarm < 0:
        _alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return _alarm


def _own_alarm() -> int:
    """The alarm of a forked child, which must not be its parent's."""
    global _alarm
    if _alarm >= 0:
        os.close(_alarm)
    _alarm = -1
    return stop_alarm()


def run_role(
    role: Role, heartbeat: Cursor, stopping: Callable[[], bool], clock_ms: Callable[[], int] = monotonic_ms
) -> None:
    """Turn until `stopping()`, then for what arrived before the stop, FINISH_NS at most; close in any case."""

    def turn() -> int:
        now_ms = clock_ms()
        waiting.note(heartbeat, now_ms)
        return role.do_work(now_ms)

    try:
        if isinstance(role, LoopRole):
            role.serve(turn, stopping)
        while not stopping():
            if turn() == 0:
                role.idle(IDLE_MS_MAX)
        until_ns = time.monotonic_ns() + FINISH_NS
        while role.do_work(clock_ms()) != 0 and time.monotonic_ns() < until_ns:
            waiting.note(heartbeat, clock_ms())
    finally:
        role.close()


def enter_child(name: str, parent_pid: int) -> StopFlag:
    """First thing in a forked child: its name, its stop flag, and death together with its parent.

    SIGINT and SIGHUP (both reach the whole terminal) are left to the supervisor, which stops its children in order.
    Its parent may have blocked them, so that none comes before there are handlers.
    """
    process.take_role(name)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)  # the parent died before the line above
    libc.prctl(PR_SET_NAME, f"slip:{name}".encode()[:15], 0, 0, 0)
    stop = StopFlag(_own_alarm())
    signal.signal(signal.SIGTERM, stop.on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return stop
