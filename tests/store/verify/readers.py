"""What reads a store, each by one call: our broker's recovery, the commands of `log`, and Spark's planner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from spark_bridge.plan.inventory import find_extent, find_queues
from spark_bridge.split.splits import Selection
from store.files.directory import StoreDirectory
from store.index.service import IndexService
from store.recovery.recovery import recover
from tests.store.broken_stores import QUEUE_FILE_BYTES, SEGMENT_BYTES
from tools.cli import report, run_command

HASH_SLOTS, INDEX_ENTRIES = 200, 1000
ADDRESSES_OF_DEFAULT_INDEX_FILES = 4 << 30  # where nothing tells their geometry; addresses, hardly any memory


def open_as_broker(root: Path) -> int:
    """What our broker does with a store before it starts a process: directories, lock, recovery."""
    directory = StoreDirectory(root)
    directory.create()
    directory.read_pointer()
    directory.lock()
    index = IndexService(root / "index", HASH_SLOTS, INDEX_ENTRIES)
    found = recover(directory, SEGMENT_BYTES, QUEUE_FILE_BYTES, index=index)
    directory.mark_running()
    print(*(f"RECOVERY: {finding}" for finding in found.findings), sep="\n")
    directory.unlock()
    return 0


def read_as_spark(root: Path) -> int:
    """What Spark's driver does before it plans."""
    find_queues(str(root), find_extent(str(root)), Selection(None, None, ()))
    return 0


def reported(action: Callable[[Path], int], root: Path) -> int:
    """Return the exit code of that, and print its error as the command line does."""
    try:
        return action(root)
    except Exception as error:
        return report(error)


def command(name: str, root: Path) -> int:
    """Return the exit code of a command of `slipstream log`."""
    return run_command(["log", name, str(root)])


READERS: dict[str, Callable[[Path], int]] = {
    "broker": partial(reported, open_as_broker),
    "verify": partial(command, "verify"),
    "manifest": partial(command, "manifest"),
    "cat": partial(command, "cat"),
    "spark": partial(reported, read_as_spark),
}
READ_ONLY_FIRST = ("verify", "manifest", "cat", "spark", "broker")  # recovery mends what it can
