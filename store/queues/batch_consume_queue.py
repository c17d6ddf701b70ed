"""A batch consume queue: where the batches of one (topic, queue id) lie in the log, in files of 46-byte units.

Implements: BatchConsumeQueue (5.x; spec: store-formats, section 12)
The queue of a topic with the attribute queue.type=BatchCQ. A unit names a record and the queue offsets of the messages
in it: `base_offset`, `count`. Units lie behind each other in the order of the log, whatever their queue offsets; the
first file's name is 0. Everything here is a function of the log and can be rebuilt from it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from store.errors import MalformedConfig
from store.names import BATCH_QUEUES, CONFIG, TOPICS
from store.queues.consume_queue import ConsumeQueue, Entries
from store.tables.tables import read_batch_topics

BATCH_DTYPE = np.dtype(
    [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_timestamp_ms", ">i8"),
     ("base_offset", ">i8"), ("count", ">i2"), ("compact_offset", ">i4"), ("reserved", "V4")]
)  # fmt: skip
UNIT_BYTES = BATCH_DTYPE.itemsize
NOT_COMPACTED = -1


def batch_file_bytes_of(configured_bytes: int) -> int:
    """A file's length: mapperFileSizeBatchConsumeQueue, in whole units (RocketMQ cannot go on behind a part of one)."""
    return -(-configured_bytes // UNIT_BYTES) * UNIT_BYTES


def has_batch_queues(root: Path | str, topic: str) -> bool:
    """Whether the topic's records may be inner batches, of whose messages neither queue nor index tells."""
    return Path(root, BATCH_QUEUES, topic).is_dir()


class BatchConsumeQueue(ConsumeQueue):
    """One queue's files. Offsets of `entries`, `append`, `truncate`, `end_below` are in units, not in messages."""

    dtype = BATCH_DTYPE

    def messages_end(self, units: int) -> int:
        """The queue offset behind the last message of the first `units` units."""
        last = self.entries(units - 1, units)
        return int(last[0]["base_offset"]) + int(last[0]["count"]) if len(last) else 0

    def point_nowhere(self, start: int, end: int) -> None:
        """Do nothing: a unit without a message count would be invalid, so units stay as they are."""

    @staticmethod
    def _sound_count(entries: Entries, max_physical_offset: int) -> int:
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        good = (sizes > 0) & (offsets >= 0) & (offsets <= max_physical_offset - sizes)  # sums could overflow
        good &= (entries["base_offset"].astype(np.int64) >= 0) & (entries["count"].astype(np.int64) > 0)
        good[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        return int(good.argmin()) if not good.all() else len(good)


class BatchTopics:
    """Topics with batch queues: `config/topics.json` says so, or a directory of such queues is there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: frozenset[str] = frozenset()
        self._seen: tuple[int, ...] | None = None
        self.problem = ""

    def __contains__(self, topic: str) -> bool:
        if has_batch_queues(self._root, topic):
            return True
        path = self._root / CONFIG / TOPICS
        try:
            status = path.stat()
            seen: tuple[int, ...] = status.st_mtime_ns, status.st_ino  # replaced twice in a tick, it is another file
        except OSError:
            seen = ()
        if seen != self._seen:
            self._seen = seen
            self._known, self.problem = frozenset(), ""
            try:
                self._known = read_batch_topics(path.parent)
            except MalformedConfig as error:
                self.problem = str(error)
        return topic in self._known
