"""Roles as they work: process, CPU since the last look, memory, heartbeat, deaths."""

from __future__ import annotations

from typing import NamedTuple

import psutil

from engine.monitoring.finding import stalled
from engine.shared_memory.cursors import ROLES, SENDERS, BrokerCounters
from engine.shared_memory.failures import LOOPING_DEATHS
from ipc.clock import monotonic_ms

SUPERVISOR = "supervisor"


class RoleFigures(NamedTuple):
    """One role; CPU in percent of one core; pid 0: it does not run, and should."""

    role: str
    pid: int
    state: str
    cpu_percent: float
    rss_bytes: int
    restarts: int
    heartbeat_age_seconds: float | None


class LiveRoles:
    """Figures of one broker's roles, read from the kernel: no process is asked."""

    def __init__(self, supervisor_pid: int) -> None:
        self._supervisor = supervisor_pid
        self._handles: dict[int, psutil.Process] = {}

    def take(self, counters: BrokerCounters) -> list[RoleFigures]:
        """Return the figures of each role now; at the first look, CPU is not known."""
        now_ms, silent, rows = monotonic_ms(), stalled(counters), []
        handles: dict[int, psutil.Process] = {}
        for role in (SUPERVISOR, *ROLES, *SENDERS):
            pid = self._supervisor if role == SUPERVISOR else counters.pids[role].read()
            restarts = counters.restarts[role].read() if role in counters.restarts else 0
            if pid <= 0:
                if role in counters.given_up and counters.given_up[role].read():
                    rows.append(RoleFigures(role, 0, "GIVEN_UP", 0.0, 0, restarts, None))
                continue
            beat_ms = counters.heartbeats[role].read() if role in counters.heartbeats else 0
            age = max(0.0, (now_ms - beat_ms) / 1000) if beat_ms else None
            deaths = counters.deaths[role].read() if role in counters.deaths else 0
            state = "STALLED" if role in silent else "DYING" if deaths >= LOOPING_DEATHS else "RUNNING"
            try:
                handle = self._handles.get(pid) or psutil.Process(pid)
                rows.append(
                    RoleFigures(role, pid, state, handle.cpu_percent(), handle.memory_info().rss, restarts, age)
                )
                handles[pid] = handle
            except psutil.Error:  # gone since, or not ours to look at: the counters know it nevertheless
                rows.append(RoleFigures(role, pid, state, 0.0, 0, restarts, age))
        self._handles = handles
        return rows
