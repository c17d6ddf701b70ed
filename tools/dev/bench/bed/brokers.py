"""Slipstream brokers of a measurement: a pair, and what is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipc import waiting
from ipc.counters import Cursor
from tools.common.local_broker import LocalBroker

DEADLINE_SECONDS, LOOK_MS = 120.0, 100


def await_reached(cursor: Cursor, value: int) -> float:
    """Wait until the cursor is at least `value`; return the monotonic second. Raises RuntimeError at the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := cursor.read()) < value:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{cursor.label} stays at {seen} of {value}")
        waiting.await_change(cursor, seen, LOOK_MS)
    return time.monotonic()


def slave_of(master: LocalBroker, directory: Path, number: int = 1, **keys: Any) -> LocalBroker:
    """Return a slave of `master`, as a context manager."""
    return LocalBroker(directory, brokerRole="SLAVE", brokerId=number, haMasterAddress=master.ha_address, **keys)


@contextmanager
def pair(home: Path, **keys: Any) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    """Run a SYNC_MASTER and its slave, which is in sync."""
    with (
        LocalBroker(home / "m", brokerRole="SYNC_MASTER", **keys) as master,
        slave_of(master, home / "s", **keys) as slave,
    ):
        await_reached(master.counters().in_sync_slaves, 1)
        yield master, slave
