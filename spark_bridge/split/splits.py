"""From limits and a selection to splits: pure, the driver's part of a read.

A split is a physical range inside one segment (a record belongs to the split in which it starts), a handful of ranges
of consume-queue entries, or some records by their places. Together the splits hold every record below
`max_physical_offset` exactly once:

    topics selected     [min ........... reput) through their consume queues   [reput .... max) by range, filtered
    anything else       [min ................................................ max) by range, filtered if need be

The dispatcher is allowed to be behind: what it has not put into the queues lies above `reput_from_offset`, and
entries at or above that offset are left to the ranges, although the dispatcher may have added them meanwhile.
Topics that make up nearly all of a long log are read by range, too: once through is less than queue after queue.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from spark_bridge.options.ranges import UNLIMITED, Ranges
from spark_bridge.options.values import PARTITIONS_MAX, InvalidOption
from spark_bridge.split.stored import StoredBounds, StoredByQueue
from store.message.topics import is_lmq, is_system_topic

SPLIT_BYTES_DEFAULT_MIN = 64 << 20
QUEUE_COST_MIN = 32 << 20  # bytes of records below which a task is not worth its 40 ms
ROW_COST_BYTES = 200  # what a row costs beside its bytes
SIZE_SAMPLE_ENTRIES = 1000
SIZE_STEP_ENTRIES = 1 << 16
SCAN_SHARE = 0.8  # of the log: topics that hold more than this of it are read by range
GUIDE_QUEUES_MAX = 8

Part = TypeVar("Part")
Extent = tuple[int, int]  # of the log: from an offset on, below another
QueueBounds = tuple[tuple[str, int, int, int | None], ...]  # topic, queueId, first offset, end offset (None: all)


class QueueEntries(Protocol):
    """The part of `store.queues.seen_queue.SeenQueue` that a plan needs."""

    @property
    def min_offset(self) -> int: ...
    def end_below(self, physical_offset: int) -> int: ...
    def last_entry(self, end: int) -> Any: ...
    def entries(self, start: int, end: int) -> Any: ...
    def physical_offset(self, queue_offset: int) -> int: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *exc: object) -> None: ...


class LeaseTerms(NamedTuple):
    """The lease that readers of a plan hold: the store's log from an offset on, for a while at a time."""

    root: str
    low_offset: int
    ttl_ms: int


class PlannedPlace(NamedTuple):
    """The directory of the planned log, as the kernel knows it: who finds the very same one reads what was planned.

    `modified_ns` is when the newest file of a log at rest was written; 0 for a log that may be written to.
    """

    boot_id: str
    device: int
    inode: int
    modified_ns: int


@dataclass(frozen=True)
class LogExtent:
    """Place of a log and the limits of what may be read: found once, on the driver."""

    commitlog: str
    segment_bytes: int
    min_physical_offset: int
    reput_from_offset: int
    max_physical_offset: int
    root: str = ""
    broker_name: str = ""
    lease: LeaseTerms | None = None
    planned: PlannedPlace | None = None


@dataclass(frozen=True)
class Selection:
    """Selection of records: None is all. `bounds` names the queues of which only a part is wanted.

    Without `topics`, those that RocketMQ's brokers make for themselves are wanted only with `system_topics`.
    Records that no consumer ever gets (prepared and rolled back ones) are never wanted.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    bounds: QueueBounds = ()
    system_topics: bool = True
    topic_pattern: str | None = None
    queues: frozenset[tuple[str, int]] | None = None
    stored: tuple[StoredBounds, ...] = ()
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    ranges: Ranges = UNLIMITED

    @property
    def looks_at_topics(self) -> bool:
        """Whether a record's topic has a say."""
        return self.topics is not None or self.topic_pattern is not None or self.hides_system

    @property
    def hides_system(self) -> bool:
        """Whether topics that brokers make for themselves are not wanted."""
        return self.topics is None and not self.system_topics

    @property
    def of_messages(self) -> Selection:
        """Return what is left to ask of a message that an entry inside of the bounds names."""
        return Selection(stored=self.stored, tags=self.tags, keys=self.keys, ranges=self.ranges)

    @property
    def looks_at_messages(self) -> bool:
        """Whether messages are asked for more than their topic and queue."""
        looked_at = self.bounds or self.stored or self.ranges != UNLIMITED
        return bool(looked_at) or self.tags is not None or self.keys is not None

    def admits(self, topic: str) -> bool:
        """Whether messages of that topic are wanted."""
        if self.topics is not None and topic not in self.topics:
            return False
        if self.topic_pattern is not None and re.fullmatch(self.topic_pattern, topic) is None:
            return False
        return not (self.hides_system and is_system_topic(topic))

    def may_be_queue(self, name: str) -> bool:
        """Whether it holds messages of its own; a multi-dispatch queue holds those of others, and has to be named."""
        return not is_lmq(name) or (self.topics is not None and name in self.topics)

    def bounds_by_queue(self) -> dict[tuple[str, int], tuple[int, int | None]]:
        """First and end queue offset wanted of each queue that is bounded."""
        return {(topic, queue_id): (first, end) for topic, queue_id, first, end in self.bounds}


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
    """Pieces of queues, read one after the other; `selection` is what the records themselves must meet."""

    log: LogExtent
    pieces: tuple[QueuePiece, ...]
    selection: Selection = Selection()


@dataclass(frozen=True)
class RecordSplit:
    """The records that begin at some offsets, as far as there are any, and meet the selection."""

    log: LogExtent
    offsets: tuple[int, ...]
    selection: Selection


Split = RangeSplit | QueueSplit | RecordSplit


@dataclass(frozen=True, slots=True)
class Queue:
    """One consume queue, where its entries below the reput limit end, and the mean length of its last records."""

    directory: str
    topic: str
    queue_id: int
    entries: QueueEntries = field(compare=False)
    first: int
    end: int
    entry_bytes: int = 0

    @classmethod
    def below(cls, directory: str, topic: str, queue_id: int, entries: QueueEntries, log: LogExtent) -> Queue:
        """The queue cut to the entries whose records start inside [min_physical_offset, reput_from_offset)."""
        first = entries.min_offset
        if log.min_physical_offset:
            first = max(first, entries.end_below(log.min_physical_offset))
        end = max(first, entries.end_below(log.reput_from_offset))
        sizes: list[int] = []
        if first < end:
            sizes = entries.entries(max(first, end - SIZE_SAMPLE_ENTRIES), end)["size"].tolist()
        entry_bytes = sum(sizes) // len(sizes) if sizes else 0
        return cls(directory, topic, queue_id, entries, first, end, entry_bytes)

    def record_start_before(self, offset: int) -> int | None:
        """The physical offset of this queue's last record that starts at or before `offset`."""
        end = min(self.end, self.entries.end_below(offset + 1))
        entry = self.entries.last_entry(end) if end > self.first else None
        return None if entry is None else int(entry["physical_offset"])


@dataclass(frozen=True)
class Cuts:
    """Limits of a split: so many entries of queues, so many bytes; `offsets` are record starts where ranges are cut.

    Without `has_least` a split may be as small as its share is, however little that is for a task.
    """

    has_least: bool = True
    records_max: int | None = None
    bytes_max: int | None = None
    offsets: tuple[int, ...] = ()


class Beside(NamedTuple):
    """What is read besides the records that queues have entries of."""

    tail: Selection | None = None  # what is wanted of the part that is not dispatched, if that differs
    inside: Sequence[Extent] = ()  # extents of the dispatched part that are looked through
    outside: Sequence[Extent] = ()  # the extents that are left of it


ALL_DISPATCHED = Beside()


def plan(
    log: LogExtent,
    queues: Sequence[Queue],
    scanned_topics: frozenset[str],
    selection: Selection,
    split_bytes: int | None,
    partitions: int,
    cuts: Cuts = Cuts(),
    beside: Beside = ALL_DISPATCHED,
) -> list[Split]:
    """The splits of one read.

    `queues` are the selected topics' queues, or, when no topic is selected, any queues: as guides to record starts.
    `scanned_topics` are selected but have no queues to trust; they are looked for in the whole log.
    """
    first, reput, end = log.min_physical_offset, log.reput_from_offset, log.max_physical_offset
    least = SPLIT_BYTES_DEFAULT_MIN if cuts.has_least else 1
    split_bytes = split_bytes or split_bytes_of(log, selection, partitions, least)
    tail, inside, outside = beside
    if selection.topics is None or (not inside and _is_nearly_all(log, queues, selection)):
        if tail is None or tail == selection:
            return bounded_list(range_splits(log, first, end, selection, queues, split_bytes, cuts))
        dispatched = range_splits(log, first, reput, selection, queues, split_bytes, cuts)
        return bounded_list(dispatched, range_splits(log, reput, end, tail, (), split_bytes, cuts))
    parts: list[Iterable[Split]] = [_queue_splits(log, queues, selection, partitions, cuts)]
    parts += [range_splits(log, start, behind, selection, queues, split_bytes, cuts) for start, behind in inside]
    if scanned_topics:
        scanned = replace(selection, topics=scanned_topics)
        left = outside if inside else [(first, reput)]
        parts += [range_splits(log, start, behind, scanned, queues, split_bytes, cuts) for start, behind in left]
    parts.append(range_splits(log, reput, end, tail or selection, (), split_bytes, cuts))
    return bounded_list(*parts)


def split_bytes_of(log: LogExtent, selection: Selection, partitions: int, least: int = SPLIT_BYTES_DEFAULT_MIN) -> int:
    """Return how much of the log each of so many splits has."""
    first, end = selection.ranges.physical_offsets.within(log.min_physical_offset, log.max_physical_offset)
    return max(least, (end - first) // partitions)


def bounded_list(*parts: Iterable[Part]) -> list[Part]:
    """Return all of them in one list. Raises InvalidOption as soon as they are more than a plan may hold."""
    held = list(itertools.islice(itertools.chain(*parts), PARTITIONS_MAX + 1))
    if len(held) > PARTITIONS_MAX:
        smaller = "make minPartitions smaller, or splitBytes, maxBytesPerPartition, maxRecordsPerPartition larger"
        raise InvalidOption(f"the plan has more than {PARTITIONS_MAX} partitions, each a task of Spark's; {smaller}")
    return held


def _is_nearly_all(log: LogExtent, queues: Sequence[Queue], selection: Selection) -> bool:
    """Whether the queues selected hold so much of a long log that reading all of it is less work."""
    dispatched = log.reput_from_offset - log.min_physical_offset
    parts = selection.bounds or selection.queues or selection.queue_ids or selection.tags or selection.stored
    if parts or selection.ranges != UNLIMITED or dispatched < SPLIT_BYTES_DEFAULT_MIN:
        return False
    return sum((queue.end - queue.first) * queue.entry_bytes for queue in queues) > SCAN_SHARE * dispatched


def range_splits(
    log: LogExtent,
    start: int,
    end: int,
    selection: Selection,
    guides: Sequence[Queue],
    split_bytes: int,
    cuts: Cuts = Cuts(),
) -> Iterator[RangeSplit]:
    """Cut [start, end), where `start` is a record start, at segments, at every `split_bytes` and where it must be.

    What lies outside of the range of physical offsets that is wanted is left out.
    """
    position, end = selection.ranges.physical_offsets.within(start, end)
    while position < end:
        base = position - position % log.segment_bytes
        segment_end = min(end, base + log.segment_bytes)
        known = max(start, base)  # a segment's first byte starts a record, and so do min and reput_from_offset
        while position < segment_end:
            last_bytes = 2 * split_bytes if cuts.has_least else split_bytes + 1
            cut = segment_end if segment_end - position < last_bytes else position + split_bytes
            if cuts.bytes_max is not None:
                cut = min(cut, position + cuts.bytes_max)
            at = bisect.bisect_right(cuts.offsets, position)
            must = cuts.offsets[at] if at < len(cuts.offsets) else end
            cut = min(cut, must)
            if position > known:
                known = max([known, *_starts_before(log, guides, position)])
            yield RangeSplit(log, base, known, position, cut, selection)
            position = cut
            known = must if cut == must else known


def _starts_before(log: LogExtent, guides: Sequence[Queue], offset: int) -> Iterator[int]:
    if log.reput_from_offset <= offset:
        yield log.reput_from_offset
    for queue in guides:
        start = queue.record_start_before(offset)
        if start is not None:
            yield start


def _queue_splits(
    log: LogExtent, queues: Sequence[Queue], selection: Selection, partitions: int, cuts: Cuts
) -> Iterator[QueueSplit]:
    """Pack pieces of queues so that the splits cost about the same, and none is above its limits."""
    wanted, bounds = [], selection.bounds_by_queue()
    for queue in queues:
        first, end = bounds.get((queue.topic, queue.queue_id), (0, None))
        first, end = max(first, queue.first), queue.end if end is None else min(end, queue.end)
        if first < end:
            wanted.append((queue, first, end, queue.entry_bytes + ROW_COST_BYTES))
    least = QUEUE_COST_MIN if cuts.has_least else 1
    target = max(least, sum((end - first) * cost for _, first, end, cost in wanted) // partitions)
    pieces: list[QueuePiece] = []
    rooms = target, cuts.records_max, cuts.bytes_max
    asked = selection.of_messages, StoredByQueue(selection.stored)
    for queue, first, end, cost in wanted:
        while first < end:
            until, rooms = _fill(queue, first, end, cost, rooms, not pieces)
            if until > first:
                pieces.append(QueuePiece(queue.directory, queue.topic, queue.queue_id, first, until))
            first = until
            if first < end or rooms[0] < cost or rooms[1] == 0:
                yield _as_split(log, pieces, *asked)
                pieces, rooms = [], (target, cuts.records_max, cuts.bytes_max)
    if pieces:
        yield _as_split(log, pieces, *asked)


def _as_split(log: LogExtent, pieces: Sequence[QueuePiece], wanted: Selection, stored: StoredByQueue) -> QueueSplit:
    """Return a split with the time bounds of its queues; of all queues for a multi-dispatch one."""
    if len(wanted.stored) > 1 and not any(is_lmq(piece.topic) for piece in pieces):
        wanted = replace(wanted, stored=stored.of_queues((piece.topic, piece.queue_id) for piece in pieces))
    return QueueSplit(log, tuple(pieces), wanted)


_Rooms = tuple[int, int | None, int | None]  # in cost, in records, in bytes


def _fill(queue: Queue, first: int, end: int, cost: int, rooms: _Rooms, is_empty: bool) -> tuple[int, _Rooms]:
    """Return how far a split with that room takes entries from `first` on (an empty one: one or more), and the rest."""
    room, records, size = rooms
    until = min(end, first + max(1, room // cost), first + (end - first if records is None else records))
    if size is not None:
        until, size = _within_bytes(queue, first, until, size, is_empty)
    return until, (room - (until - first) * cost, None if records is None else records - (until - first), size)


def _within_bytes(queue: Queue, first: int, until: int, room: int, is_empty: bool) -> tuple[int, int]:
    """The end of the entries from `first` on whose records fit the room, and the room behind them."""
    at = first
    while at < until:
        sizes = queue.entries.entries(at, min(until, at + SIZE_STEP_ENTRIES))["size"].astype(np.int64)
        fitting = int(np.searchsorted(np.cumsum(sizes), room, "right"))
        if not fitting and at == first and is_empty:
            return at + 1, 0
        room -= int(sizes[:fitting].sum())
        at += fitting
        if fitting < len(sizes) or not len(sizes):
            return at, room
    return at, room
