"""From limits and a selection to splits: pure, the driver's part of a read.

A split is a physical range inside one segment (a record belongs to the split in which it starts), or a handful of
ranges of consume-queue entries. Together the splits hold every record below `max_physical_offset` exactly once:

    topics selected     [min ........... reput) through their consume queues   [reput .... max) by range, filtered
    anything else       [min ................................................ max) by range, filtered if need be

The dispatcher is allowed to be behind: what it has not put into the queues lies above `reput_from_offset`, and
entries at or above that offset are left to the ranges, although the dispatcher may have added them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

SPLIT_BYTES_DEFAULT_MIN = 64 << 20
QUEUE_COST_MIN = 32 << 20  # bytes of records below which a task is not worth its 40 ms
ROW_COST_BYTES = 200  # what a row costs beside its bytes
SIZE_SAMPLE_ENTRIES = 1000
GUIDE_QUEUES_MAX = 8

QueueBounds = tuple[tuple[str, int, int, int | None], ...]  # topic, queueId, first offset, end offset (None: all)


class QueueEntries(Protocol):
    """What a plan needs of `store.consume_queue.ConsumeQueue`."""

    @property
    def min_offset(self) -> int: ...
    def end_below(self, physical_offset: int) -> int: ...
    def last_entry(self, end: int) -> Any: ...
    def entries(self, start: int, end: int) -> Any: ...


@dataclass(frozen=True)
class LogExtent:
    """Where the log is and what of it may be read: found once, on the driver."""

    commitlog: str
    segment_bytes: int
    min_physical_offset: int
    reput_from_offset: int
    max_physical_offset: int
    root: str = ""
    broker_name: str = ""


@dataclass(frozen=True)
class Selection:
    """Which records are wanted: None is all. `bounds` names the queues of which only a part is wanted.

    Without `topics`, those that RocketMQ's brokers make for themselves are wanted only with `system_topics`.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    bounds: QueueBounds = ()
    system_topics: bool = True

    @property
    def is_everything(self) -> bool:
        """True when no record has to be looked at to know that it is wanted."""
        return self.topics is None and self.queue_ids is None and not self.bounds and self.system_topics

    def bounds_of(self, topic: str, queue_id: int) -> tuple[int, int | None]:
        """First and end queue offset wanted of one queue."""
        for bounded_topic, bounded_queue, first, end in self.bounds:
            if (bounded_topic, bounded_queue) == (topic, queue_id):
                return first, end
        return 0, None


@dataclass(frozen=True)
class RangeSplit:
    """The records that start in [start, end) of one segment; `chain_from` is a record start at or before `start`."""

    log: LogExtent
    base_offset: int
    chain_from: int
    start: int
    end: int
    selection: Selection


class QueuePiece(NamedTuple):
    """Entries [start, end) of one consume queue, all of them below the reput limit."""

    directory: str
    topic: str
    queue_id: int
    start: int
    end: int


@dataclass(frozen=True)
class QueueSplit:
    """Some pieces of queues, read one after the other."""

    log: LogExtent
    pieces: tuple[QueuePiece, ...]


Split = RangeSplit | QueueSplit


@dataclass(frozen=True)
class Queue:
    """One consume queue, and where its entries below the reput limit end."""

    directory: str
    topic: str
    queue_id: int
    entries: QueueEntries = field(compare=False)
    first: int
    end: int

    @classmethod
    def below(cls, directory: str, topic: str, queue_id: int, entries: QueueEntries, log: LogExtent) -> Queue:
        """The queue cut to the entries whose records start inside [min_physical_offset, reput_from_offset)."""
        first = max(entries.min_offset, entries.end_below(log.min_physical_offset))
        return cls(directory, topic, queue_id, entries, first, max(first, entries.end_below(log.reput_from_offset)))

    def record_start_before(self, offset: int) -> int | None:
        """The physical offset of this queue's last record that starts at or before `offset`."""
        end = min(self.end, self.entries.end_below(offset + 1))
        entry = self.entries.last_entry(end) if end > self.first else None
        return None if entry is None else int(entry["physical_offset"])

    def entry_cost(self) -> int:
        """About what one entry costs to read, in bytes: from the sizes of its last entries."""
        sample = self.entries.entries(max(self.first, self.end - SIZE_SAMPLE_ENTRIES), self.end)
        return int(sample["size"].mean()) + ROW_COST_BYTES if len(sample) else ROW_COST_BYTES


def plan(
    log: LogExtent,
    queues: Sequence[Queue],
    scanned_topics: frozenset[str],
    selection: Selection,
    split_bytes: int | None,
    partitions: int,
) -> list[Split]:
    """The splits of one read.

    `queues` are the selected topics' queues, or, when no topic is selected, any queues: as guides to record starts.
    `scanned_topics` are selected but have no queues to trust; they are looked for in the whole log.
    """
    first, reput, end = log.min_physical_offset, log.reput_from_offset, log.max_physical_offset
    split_bytes = split_bytes or max(SPLIT_BYTES_DEFAULT_MIN, -(-(end - first) // partitions))
    if selection.topics is None:
        return list(_range_splits(log, first, end, selection, queues, split_bytes))
    splits: list[Split] = list(_queue_splits(log, queues, selection, partitions))
    if scanned_topics:
        scanned = Selection(scanned_topics, selection.queue_ids, selection.bounds)
        splits += _range_splits(log, first, reput, scanned, queues, split_bytes)
    splits += _range_splits(log, reput, end, selection, (), split_bytes)
    return splits


def _range_splits(
    log: LogExtent, start: int, end: int, selection: Selection, guides: Sequence[Queue], split_bytes: int
) -> Iterator[RangeSplit]:
    """Cut [start, end), where `start` is a record start, at segments and at every `split_bytes`."""
    position = start
    while position < end:
        base = position - position % log.segment_bytes
        segment_end = min(end, base + log.segment_bytes)
        known = position  # a segment's first byte starts a record, and so do min and reput_from_offset
        while position < segment_end:
            cut = segment_end if segment_end - position < 2 * split_bytes else position + split_bytes
            if position > known:
                known = max([known, *_starts_before(log, guides, position)])
            yield RangeSplit(log, base, known, position, cut, selection)
            position = cut


def _starts_before(log: LogExtent, guides: Sequence[Queue], offset: int) -> Iterator[int]:
    if log.reput_from_offset <= offset:
        yield log.reput_from_offset
    for queue in guides:
        found = queue.record_start_before(offset)
        if found is not None:
            yield found


def _queue_splits(
    log: LogExtent, queues: Sequence[Queue], selection: Selection, partitions: int
) -> Iterator[QueueSplit]:
    """Pack pieces of queues so that the splits cost about the same."""
    wanted = []
    for queue in queues:
        first, end = selection.bounds_of(queue.topic, queue.queue_id)
        first, end = max(first, queue.first), queue.end if end is None else min(end, queue.end)
        if first < end:
            wanted.append((queue, first, end, queue.entry_cost()))
    total = sum((end - first) * cost for _, first, end, cost in wanted)
    target = max(QUEUE_COST_MIN, -(-total // partitions))
    pieces: list[QueuePiece] = []
    room = target
    for queue, first, end, cost in wanted:
        while first < end:
            until = min(end, first + max(1, room // cost))
            pieces.append(QueuePiece(queue.directory, queue.topic, queue.queue_id, first, until))
            room -= (until - first) * cost
            first = until
            if room < cost:
                yield QueueSplit(log, tuple(pieces))
                pieces, room = [], target
    if pieces:
        yield QueueSplit(log, tuple(pieces))
