"""kill -9 of a whole broker, and until nothing of it is left: its processes die with their supervisor, behind it."""

from __future__ import annotations

from contextlib import suppress

import psutil

from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker


def kill_broker(broker: LocalBroker) -> None:
    """Afterwards none of its processes writes a file, holds a lock or answers anybody."""
    if broker.process.poll() is not None:
        return
    children = psutil.Process(broker.process.pid).children(recursive=True)
    broker.process.kill()
    broker.process.wait()
    await_that(lambda: not any(map(_lives, children)), "the broker's processes end with it")


def _lives(process: psutil.Process) -> bool:
    """Whether it still does something: of a zombie nothing is left but its number."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
