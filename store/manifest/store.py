"""A store as a RocketMQ broker sees it after loading: which part of the log, which queues; nothing is written.

Implements: DefaultMessageStore.load, CommitLog.recoverNormally, recoverAbnormally (4.9.7 and 5.3.3)
Loading is recovery: the log ends at the first record that fails its check, from where a version begins to look; after
an abnormal end (and in 5.x always) records that the queues lack are dispatched. Which version would load the store
is seen from what only 5.x leaves in one. On a live store the broker's published limit ends the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from store.compat import Line
from store.errors import QueueFileMismatch
from store.files.checkpoint import read as read_checkpoint
from store.files.directory import StoreDirectory, store_directory
from store.files.segment import Segment, file_name
from store.files.segment_files import named_files, segment_bytes_of
from store.manifest.index import LoadedIndex
from store.manifest.queue import LoadedQueue
from store.message import properties as property_string
from store.message.delay import queue_tags_code
from store.message.multi_dispatch import targets
from store.message.properties import utf16_sort_key
from store.message.record import (
    MAGIC_V2,
    Inspection,
    Kind,
    Message,
    decode,
    goes_to_queue,
    inspect,
    shape_at,
    store_timestamp_of,
)
from store.names import BATCH_QUEUES, CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues import extension
from store.queues.batch_consume_queue import BATCH_DTYPE
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading.origin import DEFAULT_QUEUE_FILE_BYTES, batch_topics_of, line_of_store

QUEUE_FILES_CHECKED = 3
QueueKey = tuple[str, int]


@dataclass
class LoadedStore:
    """The store as a broker would serve it. Without a log `min_offset` is -1 and there are no queues."""

    root: Path
    line: Line
    segment_bytes: int
    min_offset: int
    max_offset: int
    segments: dict[int, Path]
    queues: dict[QueueKey, LoadedQueue]
    batch_topics: frozenset[str]
    index: LoadedIndex | None = None
    checked_from: int = 0  # records from here to the end have passed their check

    def keys(self) -> list[QueueKey]:
        """The queues as Java sorts the names of their directories."""
        return sorted(self.queues, key=lambda key: (utf16_sort_key(key[0]), str(key[1])))


def load(root: Path | str, *, line: Line | None = None, limit: int | None = None) -> LoadedStore:
    """Load the store as brokers of `line` do, by default as who made it; `limit` ends the log of one that is in use.

    Raises NotAStore, SegmentSizeMismatch, QueueFileMismatch.
    """
    directory = store_directory(root)
    root = directory.root
    line = line_of_store(root) if line is None else line
    batch_topics = batch_topics_of(root)
    segments = {base: directory.commitlog / file_name(base) for base, size in named_files(directory.commitlog) if size}
    if not segments:
        return LoadedStore(root, line, 0, -1, 0, {}, {}, batch_topics)
    segment_bytes = segment_bytes_of(directory.commitlog)
    store = LoadedStore(root, line, segment_bytes, min(segments), 0, segments, _recovered_queues(root), batch_topics)
    _Recovery(store, directory, limit).run()
    for queue in store.queues.values():
        queue.correct_min_offset(store.min_offset, line.queues)
    return store


def _recovered_queues(root: Path) -> dict[QueueKey, LoadedQueue]:
    places = list(queue_directories(root / CONSUME_QUEUES))
    file_bytes = _queue_file_bytes([path for _, _, path in places])
    return {
        (topic, queue_id): LoadedQueue.recovered(ConsumeQueue(path, file_bytes), topic, queue_id)
        for topic, queue_id, path in places
    }


def _queue_file_bytes(directories: list[Path]) -> int:
    """Return the one length of all queue files; RocketMQ's default without any. Raises QueueFileMismatch."""
    known = 0
    for directory in directories:
        for base, size in named_files(directory):
            if size and size != (known or size):
                raise QueueFileMismatch(str(directory / file_name(base)), size, known)
            known = size or known
    return known or DEFAULT_QUEUE_FILE_BYTES


class _Extensions:
    """ConsumeQueueExt during recovery: every record that is dispatched takes a unit, also one that its queue knows."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self._root, self._file_bytes = root, file_bytes
        self._ends: dict[QueueKey, int] = {}

    @classmethod
    def of(cls, root: Path) -> _Extensions | None:
        """Return the extensions; None without any: the broker that wrote the store had them switched off."""
        for _, _, path in queue_directories(root / QUEUE_EXTENSIONS):
            for _, size in named_files(path):
                return cls(root, size) if size else None
        return None

    def put(self, key: QueueKey) -> int:
        """The address of the next unit of that queue: one without a bitmap."""
        end = self._ends[key] if key in self._ends else self._recovered(key)
        if end % self._file_bytes + extension.UNIT_BYTES + extension.END_BYTES > self._file_bytes:
            end += self._file_bytes - end % self._file_bytes
        self._ends[key] = end + extension.UNIT_BYTES
        return end + extension.ADDRESS_ZERO

    def _recovered(self, key: QueueKey) -> int:
        """Return where the units end: behind that of the last entry that has one, else behind all."""
        topic, queue_id = key
        directory = self._root / QUEUE_EXTENSIONS / topic / str(queue_id)
        files = named_files(directory)
        if any(size != self._file_bytes for _, size in files):
            return files[-1][0]  # one was being made when the broker was killed: RocketMQ itself refuses this store
        units = extension.QueueExt(directory, self._file_bytes)
        path = self._root / CONSUME_QUEUES / topic / str(queue_id)
        queue = ConsumeQueue.open(path)
        units.seek(queue, queue.max_offset)
        first = named_files(units.directory)[:1]
        if units.position == (first[0][0] if first else 0):
            for unit in units.units(units.position):
                units.position = unit.position + unit.size
        return units.position


class _Recovery:
    """Recovery like CommitLog.recoverNormally and recoverAbnormally."""

    def __init__(self, store: LoadedStore, directory: StoreDirectory, limit: int | None) -> None:
        self._store, self._limit, self._rules = store, limit, store.line.queues
        self._bases = sorted(store.segments)
        self._aborted = directory.was_aborted()
        self._extensions = _Extensions.of(store.root)
        self._checkpoint = read_checkpoint(directory.checkpoint)
        self._index = store.index = LoadedIndex.loaded(
            directory.index, aborted=self._aborted, index_msg_timestamp_ms=self._checkpoint.index_msg_timestamp_ms
        )
        ends = [queue.max_physical_offset for queue in store.queues.values()]
        self._queues_end = max([*ends, _batch_queues_end(store.root)], default=-1)
        self._queue_file_bytes = next((q.file_bytes for q in store.queues.values()), DEFAULT_QUEUE_FILE_BYTES)

    def run(self) -> None:
        """Find the log's end, dispatch what this version dispatches, cut the queues."""
        first = self._first_index()
        while first and self._limit is not None and self._bases[first] >= self._limit:
            first -= 1
        self._store.checked_from = self._bases[first]
        end = self._walk(first)
        if self._queues_end >= end:
            for queue in self._store.queues.values():
                queue.truncate(end)
        self._store.max_offset = end

    def _first_index(self) -> int:
        count = len(self._bases)
        if self._aborted:
            matching = (index for index in reversed(range(count)) if self._stored_before_checkpoint(index))
            return next(matching, 0)
        if self._rules.log_files_checked is not None:
            return max(0, count - self._rules.log_files_checked)
        return next((index for index in reversed(range(count)) if self._bases[index] <= self._queues_end), 0)

    def _stored_before_checkpoint(self, index: int) -> bool:
        """Return whether a segment's first record is as old as the checkpoint, like isMappedFileMatchedRecover."""
        with Segment.open(self._store.segments[self._bases[index]]) as segment:
            stored_ms = store_timestamp_of(segment.view, 0)
        return stored_ms is not None and 0 != stored_ms <= self._checkpoint.min_timestamp_ms

    def _walk(self, index: int) -> int:
        """The end of the log, from the segment of that index on."""
        end = self._bases[index]
        for base in self._bases[index:]:
            if self._limit is not None and base >= self._limit:
                return end
            with Segment.open(self._store.segments[base]) as segment:
                position, inspection = self._walk_segment(segment)
            end = base + position
            if inspection.kind is not Kind.BLANK:
                return end
        return end

    def _walk_segment(self, segment: Segment) -> tuple[int, Inspection]:
        view, base, position = segment.view, segment.base_offset, 0
        limit = None if self._limit is None else self._limit - base
        while True:
            if limit is not None and position >= limit:
                return position, Inspection(Kind.END_OF_LOG, 0)
            inspection = inspect(view, position, None, check_body_crc=True, limit=limit)
            is_unread = shape_at(view, position)[1] == MAGIC_V2 and not self._rules.reads_version_2
            if inspection.kind is not Kind.MESSAGE or is_unread:
                kind = Kind.BLANK if inspection.kind is Kind.BLANK else Kind.END_OF_LOG
                return position, inspection._replace(kind=kind)
            is_lacking = self._rules.dispatches_after_stop and base + position > self._queues_end
            if (self._aborted or is_lacking) and not self._dispatch(decode(view, position, check_body_crc=False)):
                return position, Inspection(Kind.END_OF_LOG, 0, "its delay level is not a number")
            position += inspection.size

    def _dispatch(self, message: Message) -> bool:
        """Add the message's entry to its queue; False when RocketMQ fails to read it."""
        try:
            tags_code = self._tags_code(message)
        except ValueError:
            return False
        if goes_to_queue(message.sys_flag) and message.topic not in self._store.batch_topics:
            key, place = (message.topic, message.queue_id), (message.physical_offset, message.size)
            own_code = tags_code if self._extensions is None else self._extensions.put(key)
            self._queue(key).put(*place, own_code, message.queue_offset)
            # the offsets are among its properties only where the broker had multi-dispatch switched on
            further = targets(*key, message.properties, lmq=True, rules=self._rules)
            for name, queue_id, queue_offset in further or []:
                self._queue((name, queue_id)).put(*place, tags_code, queue_offset)
        self._index.dispatch(message)
        return True

    def _queue(self, key: QueueKey) -> LoadedQueue:
        queue = self._store.queues.get(key)
        if queue is None:
            queue = self._store.queues[key] = LoadedQueue(*key, self._queue_file_bytes)
        return queue

    def _tags_code(self, message: Message) -> int:
        delay = message.properties.get(property_string.DELAY)
        due = queue_tags_code(message.topic, delay, message.store_timestamp_ms, message.tags_code)
        return due if self._rules.knows_delays_early else message.tags_code


def _batch_queues_end(root: Path) -> int:
    """The last record that batch consume queues know, where it begins: that is what they call their maximum."""
    end = -1
    for _, _, path in queue_directories(root / BATCH_QUEUES):
        for base, _ in named_files(path)[-QUEUE_FILES_CHECKED:]:
            content = (path / file_name(base)).read_bytes()
            units = np.frombuffer(content, BATCH_DTYPE, len(content) // BATCH_DTYPE.itemsize)
            good = (units["size"] > 0) & (units["physical_offset"] >= 0)
            good &= (units["count"] > 0) & (units["base_offset"] >= 0)
            used = len(good) if good.all() else int(good.argmin())
            if used:
                end = max(end, int(units[used - 1]["physical_offset"]))
    return end
