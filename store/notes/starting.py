"""A note in a store's root: a broker is starting there, and what it does at this moment.

It counts as long as the process that wrote it lives; it says nothing once the broker's pointer file is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ipc.process import boot_id, is_alive, is_hidden, namespace, start_time
from store.errors import NoBroker, StoreError
from store.files import file_io
from store.names import STARTING

NOTE_BYTES_MAX, TEXT_MAX = 4096, 300


class BrokerStarts(NoBroker):
    """Raised while a broker is starting on the store and does not serve yet.

    Next: `slipstream wait STORE`.
    """

    code = "STARTING"

    def __init__(self, path: str, pid: int, what: str) -> None:
        says = f"process {pid} is starting a broker: {what}"
        StoreError.__init__(self, f"{path}: {says}; wait with `slipstream wait {path}`")
        self.path, self.reason = path, what


class Starting(NamedTuple):
    """A process that starts a broker, and what it does."""

    pid: int
    what: str


def write(root: Path, what: str) -> None:
    """Say what this process does; a note that cannot be written keeps nobody from a start."""
    pid = os.getpid()
    said = {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id(), "namespace": namespace(), "what": what}
    with suppress(OSError):
        file_io.replace_file(root / STARTING, json.dumps(said).encode())


def telling(root: Path, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that reports progress, and writes it to the note, too, as long as that is there."""

    def progress(what: str) -> None:
        tell(what)
        if (root / STARTING).exists():
            write(root, what)

    return progress


def remove(root: Path) -> None:
    """Remove the note: the start is over."""
    with suppress(OSError):
        file_io.unlink(root / STARTING)


def read(root: Path) -> Starting | None:
    """Return which broker is starting there; None when no broker is, or the note is invalid."""
    try:
        fd = os.open(root / STARTING, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        said = json.loads(os.read(fd, NOTE_BYTES_MAX))
        pid, started, what = int(said["pid"]), int(said["start_time"]), str(said["what"])[:TEXT_MAX]
        is_here = said["boot_id"] == boot_id() and said["namespace"] == namespace()
    except (OSError, ValueError, TypeError, LookupError):
        return None
    finally:
        os.close(fd)
    return Starting(pid, what) if is_here and (is_alive(pid, started) or is_hidden(pid)) else None
