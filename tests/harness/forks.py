"""Forks children that run: Python 3.11 may leave the child of a process with threads stuck in os.fork() for ever.

The child waits there for the lock of the thread states (`_PyEval_ReInitThreads`), which a thread of gRPC or Arrow held
at the fork: it takes that lock without Python's own (GIL) where it calls Python. Seen twice in 2,234 forks beside a
Flight server; a suite that waits for such a child hangs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from ipc.descriptors import await_readable

STUCK_SECONDS = 20.0  # of a child that does nothing but come out of os.fork()


def running(fork: Callable[[], int]) -> Callable[[], int]:
    """Return a function that forks as `fork` does; a child that is stuck in it is ended, and another one forked."""

    def again() -> int:
        while True:
            seen, says = os.pipe()
            if not (pid := fork()):
                os.close(seen)
                os.close(says)
                return 0
            os.close(says)
            is_out = await_readable(seen, timeout_ms=STUCK_SECONDS * 1000)
            os.close(seen)
            if is_out:
                return pid
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    return again
