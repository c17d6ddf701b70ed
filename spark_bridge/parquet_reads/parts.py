"""Which of a plan's splits Spark can read from side files: whole files by group, and what their rows have to meet.

A part takes exactly the splits that it stands for out of the plan, so that each row is read once, by one way or the
other. A file is believed here, on the driver, once its columns' bytes are what was written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from spark_bridge.columnar.conditions import FIELD_OF, Wanted
from spark_bridge.columnar.names import POSITION
from spark_bridge.columnar.opened import NAMES, OpenSide, SideDamaged
from spark_bridge.options.ranges import Range
from spark_bridge.plan.explanation import joined
from spark_bridge.split.splits import Extent, LogExtent, RangeSplit, Selection, Split

FEW = 4  # files that are looked at one after the other
_Place = tuple[str, int]  # a commit log, and a segment's base


@dataclass(frozen=True)
class SideRead:
    """Side files of one log whose rows meet the same conditions; offsets in `ranges`, without any: all rows.

    `topics` are those of the files' that are wanted, None is all of them; `asks_pending`: some rows no consumer gets.
    """

    log: LogExtent
    selection: Selection
    paths: tuple[str, ...]
    ranges: tuple[Extent, ...] = ()
    topics: frozenset[str] | None = None
    asks_pending: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns that the conditions look at."""
        selection, names = self.selection, set[str]()
        if self.asks_pending:
            names.add("sysFlag")
        if self.ranges:
            names.add(POSITION)
        if self.topics is not None:
            names.add("topic")
        if selection.queue_ids is not None:
            names.add("queueId")
        names |= {name for name, field in FIELD_OF.items() if getattr(selection.ranges, field) != Range()}
        if selection.queues is not None or selection.bounds:
            names |= {"topic", "queueId"} | ({"queueOffset"} if selection.bounds else set())
        if selection.stored:
            names |= {"storeTimestamp", "topic", "queueId"}
        if selection.tags is not None:
            names.add("tags")
        return frozenset(names)


class _Segment(NamedTuple):
    """The rows of a valid side file, as its manifest says."""

    path: str
    is_pending: bool
    first: int
    last: int
    topics: frozenset[str] | None


class SideFiles:
    """The valid side files of a plan's segments, each looked at once; `names` are the columns that it reads."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._known: dict[tuple[_Place, frozenset[str]], _Segment | None] = {}

    def extents(self, log: LogExtent) -> list[Extent]:
        """Return where the log has valid ones: each segment's part of it, ascending."""
        low = log.min_physical_offset
        bases = range(low - low % log.segment_bytes, log.max_physical_offset, log.segment_bytes)
        segments = self._segments([(log, base, self._names) for base in bases])
        ends = zip(bases, segments, strict=True)
        return joined((max(base, low), base + log.segment_bytes) for base, segment in ends if segment is not None)

    def parted(self, splits: Sequence[Split]) -> tuple[list[SideRead], list[Split]]:
        """Return what side files are read, and the splits that are left."""
        rest: list[Split] = []
        ranges: list[RangeSplit] = []
        looks: list[tuple[LogExtent, int, frozenset[str]]] = []
        for split in splits:
            wanted = Wanted.of(split, None, NAMES) if isinstance(split, RangeSplit) else None
            if wanted is None or not isinstance(split, RangeSplit):
                rest.append(split)
                continue
            ranges.append(split)
            asked = frozenset(name for question in wanted.questions({}) for name in question.columns)
            looks.append((split.log, split.base_offset, self._names | asked))
        by_file: dict[tuple[LogExtent, Selection], dict[_Segment, list[RangeSplit]]] = {}
        for split, segment in zip(ranges, self._segments(looks), strict=True):
            if segment is None or (segment.topics is None and split.selection.looks_at_topics):
                rest.append(split)
            else:
                by_file.setdefault((split.log, split.selection), {}).setdefault(segment, []).append(split)
        reads = [read for (log, selection), files in by_file.items() for read in _reads(log, selection, files)]
        return reads, rest

    def _segments(self, looks: Sequence[tuple[LogExtent, int, frozenset[str]]]) -> list[_Segment | None]:
        """Look at each segment once: many at as many a time as there are CPUs, few before a thread has started."""
        keys = [((log.commitlog, base), names) for log, base, names in looks]
        new = {key: log for key, (log, _, _) in zip(keys, looks, strict=True) if key not in self._known}
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            each = map if len(new) <= FEW else pool.map
            valid: Iterable[_Segment | None] = each(lambda key: _valid(new[key], key[0][1], key[1]), new)
            self._known.update(zip(new, valid, strict=True))
        return [self._known[key] for key in keys]


def _valid(log: LogExtent, base: int, names: frozenset[str]) -> _Segment | None:
    side = OpenSide.of(log, base)
    if side is None:
        return None
    try:
        side.compare(sorted(names))
    except SideDamaged:
        return None
    finally:
        side.close()
    manifest = side.manifest
    topics = None if manifest.topics is None else frozenset(manifest.topics)
    return _Segment(str(side.path), manifest.not_for_queues > 0, manifest.first_offset, manifest.last_offset, topics)


def _reads(log: LogExtent, selection: Selection, files: Mapping[_Segment, Sequence[RangeSplit]]) -> list[SideRead]:
    """Files of which all rows count, and those whose rows have to be asked for topic, place or transaction."""
    plain, asked = SideRead(log, selection, ()), SideRead(log, selection, ())
    ranges: list[Extent] = []
    for segment, splits in sorted(files.items(), key=lambda file: file[0].first):
        parts = joined((split.start, split.end) for split in splits)
        is_whole = len(parts) == 1 and parts[0][0] <= segment.first and segment.last < parts[0][1]
        admitted = frozenset(filter(selection.admits, segment.topics or ()))
        is_any_topic = not selection.looks_at_topics or admitted == segment.topics
        if is_whole and not segment.is_pending and is_any_topic:
            plain = replace(plain, paths=(*plain.paths, segment.path))
            continue
        topics = admitted | (asked.topics or frozenset()) if selection.looks_at_topics else None
        pending = asked.asks_pending or segment.is_pending
        asked = replace(asked, paths=(*asked.paths, segment.path), topics=topics, asks_pending=pending)
        ranges += parts
    if asked.paths:
        asked = replace(asked, ranges=tuple(joined(ranges)))
    return [read for read in (plain, asked) if read.paths]
