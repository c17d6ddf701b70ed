"""What a read would touch, found before it runs: stores, the log's end, queues, splits and bytes.

Spark's own EXPLAIN shows a Python source's name and columns, and has no place for more. The plan is made as for a read
and thrown away: it reads cursors, queues and as much of the log as planning does, and holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spark_bridge.options.read import ReadOptions
from spark_bridge.plan.planner import StorePart, planned_parts
from spark_bridge.records.reader import open_window
from spark_bridge.records.walk import collected
from spark_bridge.split.splits import QueuePiece, QueueSplit, RangeSplit, RecordSplit, Split
from store.queues.consume_queue import ConsumeQueue
from store.reading import extent

SIZES_READ_MAX = 4096  # entries of one piece of a queue whose sizes are added up; of a longer one a sample is
QUEUES_TOLD_MAX = 8


@dataclass(frozen=True)
class StorePlan:
    """One store's part of a read.

    `end_offset` is where the log ends for this read, `dispatched_offset` up to where queues are trusted. Bytes are
    those of the records that are looked at: exact for ranges of the log, for long queues reckoned from a sample.
    """

    broker_name: str
    path: str
    is_running: bool
    begin_offset: int
    dispatched_offset: int
    end_offset: int
    splits: int
    bytes: int
    queues: dict[str, int]
    """Topic/queue id to how many entries of it are read."""
    ranges: list[tuple[int, int]]
    """[start, end) of the parts of the log that are looked through, ascending; those that touch are one."""
    records: int
    """Records that are read by their places, which the index told."""

    def __str__(self) -> str:
        state = "its broker runs" if self.is_running else "no broker runs"
        log = f"log {self.begin_offset:,} to {self.end_offset:,}, dispatched to {self.dispatched_offset:,}"
        lines = [f"{self.broker_name or '?'}  {self.path} ({state}), {log}: {_counted(self.splits, self.bytes)}"]
        if self.queues:
            names = [f"{name} ({entries:,})" for name, entries in self.queues.items()][:QUEUES_TOLD_MAX]
            more = len(self.queues) - len(names)
            lines.append(f"  queues (messages): {', '.join(names)}" + (f" and {more:,} more" if more else ""))
        if self.ranges:
            names = [f"{start:,} to {end:,}" for start, end in self.ranges[:QUEUES_TOLD_MAX]]
            more = len(self.ranges) - len(names)
            lines.append(f"  the log itself: {', '.join(names)}" + (f" and {more:,} more" if more else ""))
        if self.records:
            lines.append(f"  by the index: {self.records:,} records")
        return "\n".join(lines)


@dataclass(frozen=True)
class ReadPlan:
    """The plan of a read as of now, store by store; `str()` of it is for people."""

    stores: list[StorePlan]

    @property
    def splits(self) -> int:
        """Return the number of Spark's tasks."""
        return sum(store.splits for store in self.stores)

    @property
    def bytes(self) -> int:
        """Return the bytes of the records that a read looks at."""
        return sum(store.bytes for store in self.stores)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON fields."""
        return {"splits": self.splits, "bytes": self.bytes, "stores": [asdict(store) for store in self.stores]}

    def __str__(self) -> str:
        return "\n".join([_counted(self.splits, self.bytes), *map(str, self.stores)])


def explained(options: ReadOptions) -> ReadPlan:
    """The plan that a read of stores in place with these options would have now.

    Raises what the read would raise when Spark plans it. Metadata tables read no messages: their plan has no splits.
    """
    if options.table is not None:
        return ReadPlan([])
    return ReadPlan([store_plan(part, splits) for part, splits in planned_parts(options)])


def store_plan(part: StorePart, splits: list[Split]) -> StorePlan:
    """Return one store's part of the plan."""
    log = part.log
    return StorePlan(
        broker_name=part.store.broker_name,
        path=part.store.root,
        is_running=extent.running(part.store.root) is not None,
        begin_offset=log.min_physical_offset,
        dispatched_offset=log.reput_from_offset,
        end_offset=log.max_physical_offset,
        splits=len(splits),
        bytes=sum(map(bytes_of, splits)),
        queues=_queues(splits),
        ranges=joined((split.start, split.end) for split in splits if isinstance(split, RangeSplit)),
        records=sum(len(split.offsets) for split in splits if isinstance(split, RecordSplit)),
    )


def bytes_of(split: Split) -> int:
    """About how long the records are that a split looks at."""
    if isinstance(split, RangeSplit):
        return split.end - split.start
    if isinstance(split, QueueSplit):
        return sum(map(_piece_bytes, split.pieces))
    return _record_bytes(split)


def _piece_bytes(piece: QueuePiece) -> int:
    queue, count = ConsumeQueue.open(piece.directory), piece.end - piece.start
    if count <= SIZES_READ_MAX:
        return int(queue.entries(piece.start, piece.end)["size"].sum(dtype=np.int64))
    half = SIZES_READ_MAX // 2
    ends = [queue.entries(piece.start, piece.start + half), queue.entries(piece.end - half, piece.end)]
    sizes = np.concatenate([part["size"] for part in ends])
    return round(float(sizes.mean()) * count) if len(sizes) else 0


def _record_bytes(split: RecordSplit) -> int:
    offsets, segment_bytes = np.array(split.offsets, np.int64), split.log.segment_bytes
    total = 0
    for base in np.unique(offsets - offsets % segment_bytes).tolist():
        window = open_window(split.log, base)
        inside = offsets[(offsets >= base) & (offsets < base + segment_bytes)] - base
        total += int(collected(window, inside).sizes.sum(dtype=np.int64))
    return total


def _queues(splits: Iterable[Split]) -> dict[str, int]:
    entries: dict[str, int] = {}
    for split in splits:
        for piece in split.pieces if isinstance(split, QueueSplit) else ():
            name = f"{piece.topic}/{piece.queue_id}"
            entries[name] = entries.get(name, 0) + piece.end - piece.start
    return entries


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending; those that touch are one."""
    parts: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if parts and start <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(end, parts[-1][1])
        else:
            parts.append((start, end))
    return parts


def _counted(splits: int, size: int) -> str:
    return f"{splits:,} {'split' if splits == 1 else 'splits'}, {size:,} bytes of records"
