"""A small log with its queues and index, as a dispatcher leaves them, and what its store looks like in bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

from store.index.service import IndexService
from store.recovery.dispatch import Dispatcher
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

SLOTS, ENTRIES_MAX = 16, 64


def dispatch_all(log: SmallLog) -> SmallLog:
    """Build queues and index of the whole log."""
    index = IndexService(log.directory.index, SLOTS, ENTRIES_MAX)
    dispatcher = Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index)
    try:
        dispatcher.dispatch(0, log.end)
    finally:
        dispatcher.close()
        index.close()
    return log


def small_store(root: Path, messages: int = 60) -> SmallLog:
    """Segments, queues and index files of some messages with tags and keys."""
    log = SmallLog(root)
    for number in range(messages):
        texts = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} all", "UNIQ_KEY": f"U{number:04d}"}
        log.append(f"topic{number % 2}", b"body %d" % number, queue_id=number % 3, properties=texts)
    return dispatch_all(log)


def copy_of(log: SmallLog, root: Path) -> Path:
    """Another store with the same files."""
    shutil.copytree(log.root, root)
    return root


def content(root: Path, *below: str) -> dict[str, bytes]:
    """Every file of a store, or of some of its folders, by its name below the root."""
    paths = [path for name in below or (".",) for path in sorted((root / name).rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.name != "lock"}
