"""The log as a repeated task finds it: everything that earlier attempts sent is appended and indexed before it looks.

A producer that died may have left records in its ring, and the dispatcher may be behind the log: both are waited for,
up to a limit that is fixed when the task begins.
"""

from __future__ import annotations

import time
from pathlib import Path

from ipc import ring, waiting
from ipc.counters import Counters, Cursor
from spark_bridge.sink.index import WrittenKeys
from spark_bridge.split.splits import LogExtent
from store.files.directory import StoreDirectory
from store.files.pointer import COMMIT_LOG_KEY, COUNTERS_FILE
from store.index.index_file import Geometry
from store.reading.extent import Running

STEP_MS = 20.0


class NotIndexed(Exception):
    """Raised when the index cannot show which rows the log already has.

    Next: set `messageIndexEnable=true` and let the index catch up; or write with `idempotent=false`, at least
    once.
    """

    code = "NOT_INDEXED"

    def __init__(self, store: str, why: str) -> None:
        super().__init__(
            f"{store}: {why}, so it is unknown which rows are already in the log; nothing was sent. Or write with "
            '.option("idempotent", "false"): then a task that Spark repeats appends its rows again'
        )


def written_keys(path: str, broker: Running, since_ms: int, timeout_s: float) -> WrittenKeys:
    """The keys of all records that the log holds now. Raises NotIndexed."""
    if not broker.settings.get("messageIndexEnable", True):
        raise NotIndexed(path, "its broker builds no index (messageIndexEnable=false)")
    deadline = time.monotonic() + timeout_s
    counters = Counters.attach(broker.region_directory / COUNTERS_FILE, writable=True)
    try:
        _await_rings(path, broker.region_directory, deadline)
        end = counters.cursor("max_physical_offset").read()
        _await_index(path, counters.cursor("reput_from_offset"), end, deadline)
        first = counters.cursor("min_physical_offset").read()
    finally:
        counters.close()
    settings = broker.settings
    directory = StoreDirectory(path, settings.get(COMMIT_LOG_KEY))
    segment_bytes = int(settings["mappedFileSizeCommitLog"])
    log = LogExtent(str(directory.commitlog), segment_bytes, first, end, end)
    geometry = Geometry(int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"]))
    return WrittenKeys(directory.index, geometry, log, since_ms)


def _await_rings(path: str, regions: Path, deadline: float) -> None:
    """Wait until the writer has taken what is in the rings now."""
    region = ring.attach_rings(regions)
    try:
        words = region.words.reshape(-1, ring.WORDS_PER_RING)
        tails = words[:, ring.ControlWord.TAIL].copy()
        while (words[:, ring.ControlWord.HEAD] < tails).any():
            if time.monotonic() > deadline:
                raise NotIndexed(path, "the writer does not take the messages in the rings")
            time.sleep(STEP_MS / 1000)
        del words
    finally:
        region.close()


def _await_index(path: str, reput: Cursor, end: int, deadline: float) -> None:
    """Wait until the dispatcher has reached `end`."""
    while (seen := reput.read()) < end:
        if time.monotonic() > deadline:
            raise NotIndexed(path, f"the dispatcher is at offset {seen} of {end}")
        waiting.await_change(reput, seen, STEP_MS)
