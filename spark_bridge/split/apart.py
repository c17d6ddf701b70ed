"""Extents of a log that are looked through although consume queues name what is wanted: where that is quicker."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from spark_bridge.split.splits import Extent, LogExtent, Queue, Selection
from store.message.topics import is_lmq

LITTLE_SHARE = 0.05  # of the log: topics that hold less than this are read queue by queue, whatever lies beside it


class Apart(NamedTuple):
    """Queues without the entries that name records in some extents of the dispatched log, those and the others."""

    queues: Sequence[Queue]
    inside: tuple[Extent, ...]
    outside: tuple[Extent, ...]


def apart(log: LogExtent, queues: Sequence[Queue], selection: Selection, extents: Iterable[Extent]) -> Apart:
    """The extents (ascending, each from a record's start on) are left out of the queues, unless little is wanted."""
    first, reput = log.min_physical_offset, log.reput_from_offset
    clipped = ((max(first, start), min(reput, behind)) for start, behind in extents)
    inside = tuple((start, behind) for start, behind in clipped if start < behind)
    wanted = sum((queue.end - queue.first) * queue.entry_bytes for queue in queues)
    is_little = bool(selection.bounds) or wanted < LITTLE_SHARE * (reput - first)
    if not inside or is_little or any(map(is_lmq, selection.topics or ())):
        return Apart(queues, (), ())
    borders = [first, *itertools.chain.from_iterable(inside), reput]
    outside = tuple(
        (start, behind) for start, behind in zip(borders[::2], borders[1::2], strict=True) if start < behind
    )
    return Apart([part for queue in queues for part in _parts_of(queue, outside)], inside, outside)


def _parts_of(queue: Queue, extents: Iterable[Extent]) -> Iterator[Queue]:
    """The queue cut to the entries whose records start inside of the extents."""
    for start, behind in extents:
        first = max(queue.first, queue.entries.end_below(start))
        end = min(queue.end, queue.entries.end_below(behind))
        if first < end:
            yield replace(queue, first=first, end=end)
