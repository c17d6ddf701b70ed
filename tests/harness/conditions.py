"""Waiting for what another process brings about: looked at again and again, with a deadline."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ipc.compiled.atomics import FUTEX_WAIT, SYS_FUTEX
from ipc.descriptors import await_readable

SECONDS = 120.0
PAUSE_SECONDS = 0.01  # long enough to leave the core to whom we wait for

Seen = TypeVar("Seen")


def await_that(
    condition: Callable[[], Seen], what: str, seconds: float = SECONDS, pause: float = PAUSE_SECONDS
) -> Seen:
    """What `condition` said first that is not false. Fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        await_readable(timeout_ms=pause * 1000)
    return seen


def is_in_futex_wait(thread: threading.Thread) -> bool:
    """Whether it sleeps on a word of ours; the interpreter's own waits have a clock in their operation."""
    number, operation = "", -1
    with contextlib.suppress(OSError, ValueError):  # it has ended, or is running
        number, _, word, *_ = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
        operation = int(word, 16)
    return number == str(SYS_FUTEX) and operation == FUTEX_WAIT
