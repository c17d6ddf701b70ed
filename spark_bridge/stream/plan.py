"""From the offsets of a micro-batch to tasks: pure. A small batch is one task, whatever number of queues and stores.

A task costs about 40 ms whatever it reads; a batch at 1,000 messages/s costs less than that in all. Only from
`QUEUE_COST_MIN` on is there a second one, and never more than asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spark_bridge.split.splits import QUEUE_COST_MIN, ROW_COST_BYTES, LogExtent, QueuePiece, QueueSplit, Selection

Task = tuple[QueueSplit, ...]


class Part(NamedTuple):
    """Entries [start, end) of one queue, about `entry_bytes` of records each."""

    log: LogExtent
    directory: str
    topic: str
    queue_id: int
    start: int
    end: int
    entry_bytes: int
    wanted: Selection = Selection()


def pack(parts: Sequence[Part], tasks: int, least: int = QUEUE_COST_MIN) -> list[Task]:
    """About so many tasks that cost the same, `least` at least; every entry is in one, those of a queue in order."""
    total = sum((part.end - part.start) * (part.entry_bytes + ROW_COST_BYTES) for part in parts)
    if not total:
        return []
    room = max(least, -(-total // tasks))
    packed: list[list[Part]] = [[]]
    left = room
    for part in parts:
        for piece, cost in _cut(part, room, left):
            if left < cost and packed[-1]:
                packed.append([])
                left = room
            packed[-1].append(piece)
            left -= cost
    return [tuple(_splits(task)) for task in packed if task]


def _cut(part: Part, room: int, left: int) -> Iterator[tuple[Part, int]]:
    """The part in pieces: the first fits into what is left, the others into a task of their own."""
    cost = part.entry_bytes + ROW_COST_BYTES
    start, fitting = part.start, max(0, left) // cost
    while start < part.end:
        end = min(part.end, start + fitting)
        if end > start:
            yield part._replace(start=start, end=end), (end - start) * cost
        start, fitting = end, max(1, room // cost)


def _splits(task: Sequence[Part]) -> Iterator[QueueSplit]:
    """Yield one split for each log, in the order of the parts."""
    by_log: dict[tuple[LogExtent, Selection], list[QueuePiece]] = {}
    for part in task:
        piece = QueuePiece(part.directory, part.topic, part.queue_id, part.start, part.end)
        by_log.setdefault((part.log, part.wanted), []).append(piece)
    for (log, wanted), pieces in by_log.items():
        yield QueueSplit(log, tuple(pieces), wanted)
