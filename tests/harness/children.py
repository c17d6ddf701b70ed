"""Waits for forked children, never for ever: one that is stuck is ended, and its test fails."""

from __future__ import annotations

import os
import signal

from ipc.descriptors import await_readable
from tests.harness.conditions import SECONDS


def exit_code_of(pid: int, seconds: float = SECONDS) -> int:
    """How a child of this process ended: its exit code; negative: by that signal.

    Raises AssertionError at the deadline.
    """
    pidfd = os.pidfd_open(pid)
    try:
        is_over = await_readable(pidfd, timeout_ms=seconds * 1000)
    finally:
        os.close(pidfd)
    if not is_over:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert is_over, f"process {pid} did not end within {seconds} s"
    return code
