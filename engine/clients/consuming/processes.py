"""Processes in which a consumer runs its handler: each is a member of the group, forked before the parent has a thread.

A process that ends by itself is reported and started again, later each time; one that ends ten times, each time soon
after its start, ends all.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from engine.clients.cluster import log
from engine.clients.consuming.shelf import REST_SECONDS
from engine.clients.names import ClientError
from engine.errors import EngineError
from engine.role import PR_SET_PDEATHSIG

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 10.0
LIVED_SECONDS = 60.0  # a process that ran so long begins to count its ends anew
ENDS_MAX = 10


class _Worker:
    """One process after another. `serve` runs in each."""

    def __init__(self, serve: Callable[[], object], group: str) -> None:
        self._serve, self._group = serve, group
        self._ends, self._at = 0, 0.0  # when the process began, or is to begin
        self.process: BaseProcess | None = None

    def look(self) -> None:
        """Start a process if it is time to; bury one that ended. Raises ClientError after too many ends."""
        now = time.monotonic()
        if self.process is None and now >= self._at:
            self.process, self._at = _forked(self._serve), now
        elif self.process is not None and not self.process.is_alive():
            self._bury(self.process, now)

    def _bury(self, process: BaseProcess, now: float) -> None:
        self._ends = 1 if now - self._at >= LIVED_SECONDS else self._ends + 1
        what = f"process {process.pid} of group {self._group} ended with exit code {process.exitcode}"
        process.close()
        self.process = None
        if self._ends >= ENDS_MAX:
            raise ClientError(f"{what}, the last of {ENDS_MAX} that ended soon after their start; the log says why")
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._ends - 1), PAUSE_SECONDS_MAX)
        self._at = now + pause
        log.warning("%s; starting another one in %.1f s", what, pause)


def run_in_processes(serve: Callable[[], object], group: str, count: int, is_ended: Callable[[], bool]) -> None:
    """Run `serve` in `count` processes until `is_ended`, then end them by SIGTERM, and wait until all have ended.

    Raises ClientError if a process ends again and again.
    """
    workers = [_Worker(serve, group) for _ in range(count)]
    try:
        while not is_ended():
            for worker in workers:
                worker.look()
            wait([worker.process.sentinel for worker in workers if worker.process], REST_SECONDS)
    finally:
        processes = [worker.process for worker in workers if worker.process is not None]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _forked(serve: Callable[[], object]) -> BaseProcess:
    """Start a process. Until `serve` has its own handlers, signals wait: the parent's would end nothing here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(serve, os.getpid()))
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _serve(serve: Callable[[], object], parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return  # it died before the line above, which asks for a signal at its death
    try:
        serve()
    except EngineError as error:
        log.error("process %d: %s: %s", os.getpid(), error.code, error)
        raise SystemExit(1) from None
