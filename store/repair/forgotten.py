"""Gives up the files of a commit log that are missing, on purpose: what remembers them goes, so that a broker starts.

What tells most goes last: killed anywhere, the store is refused as before, and the command may be repeated.
The caller holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from store.files import file_io
from store.files.directory import StoreDirectory
from store.names import BEGIN, DIGESTS
from store.notes import epochs
from store.recovery import lost_log


def forget_missing(directory: StoreDirectory, bases: Sequence[int]) -> list[str]:
    """Remove the files that remember missing segments; queues only where the log has no segment. Return their names.

    Consumers' offsets stay. Raises OSError, OwnFileDamaged.
    """
    gone = [directory.root / BEGIN]
    if bases and not lost_log.missing_end(directory, bases):
        return _removed(directory, gone)
    gone.append(directory.root / DIGESTS)
    for path in (directory.index, *(() if bases else directory.queue_directories())):
        gone += sorted(path.iterdir()) if path.is_dir() else []
    if not bases:
        known = epochs.read(directory.root)
        if (shorter := known.cut(0)) != known:
            epochs.write(directory.root, shorter)
    return _removed(directory, [*gone, directory.mark, directory.checkpoint])


def _removed(directory: StoreDirectory, gone: Sequence[Path]) -> list[str]:
    names = []
    for path in gone:
        if not path.exists():
            continue
        if path.is_dir():
            file_io.remove_tree(path)
        else:
            file_io.unlink(path)
        file_io.sync_directory(path.parent)
        names.append(str(path.relative_to(directory.root)))
    return names
