"""Where a store's log began when a broker of ours last started, or deleted a file of it: on disk before that is gone.

File `slipstream.begin`: offset, device and inode of the store's root, as JSON with a sum (`store.notes.summed_json`).
A log that begins later has lost files to somebody else, unless a RocketMQ broker ran there since, or it is a copy.
"""

from __future__ import annotations

from pathlib import Path

from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.place import Place
from store.names import BEGIN
from store.notes import flushed_mark, summed_json
from store.notes.summed_json import Damaged


def note(root: Path, offset: int) -> None:
    """The log begins there from now on. Durable when this returns; on a full disk nobody knows any more.

    Raises OSError.
    """
    place = Place.of(root)
    try:
        summed_json.write(root / BEGIN, {"offset": offset, "device": place.device, "inode": place.inode})
    except OSError as error:
        forget(root)
        if error.errno not in file_io.NO_ROOM:
            raise


def forget(root: Path) -> None:
    """Nobody knows from now on, durably. Raises OSError."""
    if (root / BEGIN).exists():
        summed_json.remove(root / BEGIN)


def read(directory: StoreDirectory) -> int | None:
    """Where the log began at the latest; None where nobody knows."""
    mark = flushed_mark.read(directory)
    if mark is None or not flushed_mark.counts(mark, directory) or mark.is_copied_to(directory.root):
        return None
    try:
        fields = summed_json.read(directory.root / BEGIN) or {}
    except (Damaged, OSError):
        return None
    offset, inode = fields.get("offset"), fields.get("inode")
    return offset if isinstance(offset, int) and inode == Place.of(directory.root).inode else None
