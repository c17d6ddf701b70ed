"""Shared memory that killed brokers left: whose it is, how much, and whether somebody will come for it.

The next broker of a store removes what the one before left there (`regions.remove_leftovers`). Leftovers of a store
that is gone are only reported: its broker may run in a container whose files cannot be seen from here, and then its
heartbeat still moves. Only directories of this user that have a broker's name are looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engine.shared_memory.cursors import BrokerCounters
from ipc.clock import monotonic_ms, wall_ms
from ipc.errors import IpcError
from store.errors import StoreError
from store.files import pointer
from store.files.place import Place, is_there

NAME = re.compile(r"slipstream-[0-9a-f]{12}-[0-9a-f]{32}")
SILENT_MS = 60_000  # a broker whose processes all are silent for so long is not there
START_MS = 3_600_000  # ... or that has begun none
BLOCK_BYTES = 512  # of st_blocks


class Leftover(NamedTuple):
    """A region directory of a broker that runs no more."""

    directory: Path
    root: Path
    is_gone: bool  # its store: no broker comes for it
    bytes: int


def leftovers(region_path: Path) -> list[Leftover]:
    """Return all leftovers below `region_path`, ordered by name."""
    dead = []
    for directory in _named(region_path):
        with suppress(OSError, StoreError):
            owner = pointer.read_owner(directory)
            if owner is not None and directory.name.endswith(f"-{owner[0]}") and _is_dead(directory, *owner):
                root = Path(owner[1].path)
                dead.append(Leftover(directory, root, not is_there(owner[1], root), _bytes_of(directory)))
    return dead


def _named(region_path: Path) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(region_path) if NAME.fullmatch(entry.name))
    except OSError:
        return
    for path in (region_path / name for name in names):
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
                yield path


def _is_dead(directory: Path, token: str, place: Place) -> bool:
    """Whether no broker has it: the store's own pointer says so, else all its processes are silent."""
    root = Path(place.path)
    broker = pointer.read(root) if is_there(place, root) else None
    if broker is not None and broker.token == token:
        return not broker.is_alive
    try:
        counters = BrokerCounters.attach(directory)
    except (IpcError, OSError):
        return False  # of another version, or being made: nothing is known of it
    try:
        last_ms = max(beat.read() for beat in counters.heartbeats.values())
    finally:
        counters.region.close()
    if last_ms:
        return last_ms + SILENT_MS < monotonic_ms()
    made_ms = directory.stat().st_mtime_ns // 1_000_000
    return made_ms + START_MS < wall_ms()  # none has begun: a start, or one that failed


def _bytes_of(directory: Path) -> int:
    """Return the bytes that removing the directory frees."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * BLOCK_BYTES
    return total
