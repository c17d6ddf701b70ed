"""Roles as they work: process, CPU since the last look, memory, heartbeat, deaths."""

from __future__ import annotations

from typing import NamedTuple

import psutil

from engine.board.cursors import ROLES, SENDERS, Board
from engine.board.failures import LOOPING_DEATHS
from engine.figures.finding import stalled
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

    def take(self, board: Board) -> list[RoleFigures]:
        """Return the figures of each role now; at the first look, CPU is not known."""
        now_ms, silent, rows = monotonic_ms(), stalled(board), []
        handles: dict[int, psutil.Process] = {}
        for role in (SUPERVISOR, *ROLES, *SENDERS):
            pid = self._supervisor if role == SUPERVISOR else board.pids[role].read()
            restarts = board.restarts[role].read() if role in board.restarts else 0
            if pid <= 0:
                if role in board.given_up and board.given_up[role].read():
                    rows.append(RoleFigures(role, 0, "GIVEN_UP", 0.0, 0, restarts, None))
                continue
            beat_ms = board.heartbeats[role].read() if role in board.heartbeats else 0
            age = max(0.0, (now_ms - beat_ms) / 1000) if beat_ms else None
            deaths = board.deaths[role].read() if role in board.deaths else 0
            state = "STALLED" if role in silent else "DYING" if deaths >= LOOPING_DEATHS else "RUNNING"
            try:
                handle = self._handles.get(pid) or psutil.Process(pid)
                rows.append(
                    RoleFigures(role, pid, state, handle.cpu_percent(), handle.memory_info().rss, restarts, age)
                )
                handles[pid] = handle
            except psutil.Error:  # gone since, or not ours to look at: the board knows it nevertheless
                rows.append(RoleFigures(role, pid, state, 0.0, 0, restarts, age))
        self._handles = handles
        return rows
