"""One queue of a store as RocketMQ's brokers speak of it: its ends, and when its messages were stored.

Implements: DefaultMessageStore.getMinOffsetInQueue, getMaxOffsetInQueue, getMessageStoreTimeStamp,
    getEarliestMessageTime, getOffsetInQueueByTime; ConsumeQueue.correctMinOffset, getIndexBuffer
Read from the files, as far as the dispatcher has published that it came. Nothing is kept open or remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from store.compat import QueueRules
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.message.record import Kind, inspect, store_timestamp_of
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import PREFILL_SIZE, QUEUE_ID_MAX, ConsumeQueue
from store.queues.time_search import (
    NOT_THERE,
    Boundary,
    Log,
    QueueFile,
    files_of,
    first_in_log,
    offset_by_entries,
    offset_by_file_times,
)

NAME_BYTES_MAX = 255  # of a directory


class LogLimits(NamedTuple):
    """The offset where the log begins, and those up to which queues and index were built from it."""

    min_physical_offset: int
    dispatched_to: int


class QueueEntry(NamedTuple):
    """An entry of a queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class Queues:
    """All queues of one store. `limits` are asked each time that a queue is looked at."""

    def __init__(self, root: Path, log: SegmentFiles, limits: Callable[[], LogLimits], rules: QueueRules) -> None:
        self._root, self._log, self._limits, self._rules = root, log, limits, rules

    def view(self, topic: str, queue_id: int) -> QueueView:
        """A queue as it is now; one that is not there is empty. Its name may be anybody's."""
        directory, batch = self._place(topic, queue_id)
        return QueueView(directory, self._log, self._limits(), self._rules, is_batch=batch)

    def _place(self, topic: str, queue_id: int) -> tuple[Path | None, bool]:
        is_name = topic not in ("", ".", "..") and not {"/", "\0"} & set(topic)
        if not is_name or len(topic.encode("utf-8", "replace")) > NAME_BYTES_MAX or not 0 <= queue_id <= QUEUE_ID_MAX:
            return None, False
        for below, is_batch in ((CONSUME_QUEUES, False), (BATCH_QUEUES, True)):
            directory = self._root / below / topic / str(queue_id)
            if directory.is_dir():
                return directory, is_batch
        return None, False


class QueueView:
    """One queue, once. What cannot be read is as if it were not there."""

    def __init__(
        self, directory: Path | None, log: SegmentFiles, limits: LogLimits, rules: QueueRules, *, is_batch: bool = False
    ) -> None:
        self._directory, self._log, self._limits, self._rules = directory, log, limits, rules
        self._is_batch = is_batch

    @property
    def is_there(self) -> bool:
        """Whether the store has such a queue."""
        return self._directory is not None

    @cached_property
    def _queue(self) -> ConsumeQueue | None:
        if self._directory is None:
            return None
        kind = BatchConsumeQueue if self._is_batch else ConsumeQueue
        try:
            return kind.open(self._directory)
        except (StoreError, OSError):
            return None

    @cached_property
    def _units_end(self) -> int:
        return 0 if self._queue is None else self._queue.end_below(self._limits.dispatched_to)

    @cached_property
    def _files(self) -> list[QueueFile]:
        if self._queue is None or not self._units_end:
            return []
        try:
            return files_of(self._queue, self._units_end)
        except OSError:
            return []

    @cached_property
    def max_offset(self) -> int:
        """The queue offset that the next message gets; 0 of an empty queue."""
        return 0 if self._queue is None else self._queue.messages_end(self._units_end)

    @cached_property
    def min_offset(self) -> int:
        """The first queue offset whose message the log still has; `max_offset` without one."""
        first = first_in_log(self._files, self._limits.min_physical_offset)
        if not self._is_batch:
            return first
        entry = self._unit(first)
        return self.max_offset if entry is None else entry.queue_offset

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The entry of a message, None where the queue has none, or one that points nowhere."""
        if not self._is_batch:
            return self._unit(queue_offset)
        low, high = 0, self._units_end  # units rise with their messages
        while low < high:
            middle = (low + high) // 2
            unit = self._unit(middle)
            if unit is None or unit.queue_offset <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return self._unit(low - 1) if queue_offset < self.max_offset else None

    def entries(self, start: int, count: int) -> list[QueueEntry]:
        """The entries from a queue offset on, that many at most, within one file as RocketMQ reads them."""
        file = next((file for file in self._files if file.first <= start < file.first + len(file.entries)), None)
        if file is None:
            return []
        end = min(file.first + len(file.entries), start + max(0, count))
        every = (self._unit(number) for number in range(start, end))
        return [entry for entry in every if entry is not None]

    def _unit(self, number: int) -> QueueEntry | None:
        for file in self._files:
            if file.first <= number < file.first + len(file.entries):
                entry = file.entries[number - file.first]
                if not 0 < int(entry["size"]) < PREFILL_SIZE:
                    return None
                offset = int(entry["base_offset"]) if self._is_batch else number
                return QueueEntry(offset, int(entry["physical_offset"]), int(entry["size"]), int(entry["tags_code"]))
        return None

    # times

    def stored_ms(self, queue_offset: int) -> int:
        """Return when a message was stored, in ms; -1 where the queue has no such message."""
        entry = self.entry(queue_offset)
        return NOT_THERE if entry is None else self._stored_ms(entry.physical_offset, entry.size)

    @property
    def earliest_ms(self) -> int:
        """Return when the first message there was stored, in ms; -1 without any."""
        return self.stored_ms(self.min_offset)

    def _stored_ms(self, physical_offset: int, size: int) -> int:
        if not self._limits.min_physical_offset <= physical_offset <= self._limits.dispatched_to - size:
            return NOT_THERE
        base = self._log.base_of(physical_offset)
        try:
            with self._log.open(base) as segment:
                position = physical_offset - base
                if inspect(segment.view, position, physical_offset, check_body_crc=False).kind is not Kind.MESSAGE:
                    return NOT_THERE
                return store_timestamp_of(segment.view, position) or NOT_THERE
        except (StoreError, OSError):
            return NOT_THERE

    def offset_at(self, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """The queue offset of the message of a time, as the line's brokers look for it."""
        log = Log(self._limits.min_physical_offset, self._stored_ms)
        if self._rules.finds_by_entries:
            return offset_by_entries(self._files, self.min_offset, timestamp_ms, log, boundary)
        return offset_by_file_times(self._files, self.min_offset, timestamp_ms, log)
