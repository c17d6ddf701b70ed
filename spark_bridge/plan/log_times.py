"""When the records of a log were stored, asked by very many queues: what is known of segments is kept.

Times rise with the offsets, unless the broker's clock was put back. So a bisection over the segments' first records
tells of every queue at once which of its entries can lie near a time: those in one segment. Only these are asked.
Where a segment's time cannot be read the segments tell nothing, and nothing is left out by them.
"""

from __future__ import annotations

import bisect
import os
from collections import OrderedDict
from typing import Self

from spark_bridge.options.ranges import Range
from spark_bridge.split.splits import LogExtent
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.queues.seen_queue import EVERYTHING
from store.reading.history import stored_ms, stored_ms_at

FILES_OPEN_MAX = 16


class TimeUnknown(Exception):
    """A record whose time has to be known cannot be read; who reads it tells."""


class LogTimes:
    """The store times of one log. A context manager: it keeps some files open."""

    def __init__(self, log: LogExtent) -> None:
        self.log = log
        self._files = SegmentFiles(log.commitlog, log.segment_bytes)
        self._begins: dict[int, int] = {}
        self._around: dict[int, tuple[int, int]] = {}
        self._open: OrderedDict[int, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of all segments."""
        while self._open:
            os.close(self._open.popitem()[1])

    def stored_ms(self, offset: int) -> int | None:
        """Return when the record at an offset was stored; None without one. Raises as `history.stored_ms`."""
        base = self._files.base_of(offset)
        fd = self._open.get(base)
        if fd is None:
            while len(self._open) >= FILES_OPEN_MAX:
                os.close(self._open.popitem(last=False)[1])
            fd = self._open[base] = self._files.descriptor(base)
        return stored_ms_at(fd, offset - base)

    def around(self, moment_ms: int) -> tuple[int, int]:
        """Two offsets of the log: what lies below the first was stored before, what lies from the second on was not."""
        known = self._around.get(moment_ms)
        if known is None:
            low, bases = self.log.min_physical_offset, self._bases
            try:
                at = bisect.bisect_left(bases, moment_ms, key=self._begins_ms)
                below = max(low, bases[at - 1]) if at else low
                known = below, bases[at] if at < len(bases) else EVERYTHING
            except TimeUnknown:
                known = low, EVERYTHING
            self._around[moment_ms] = known
        return known

    def part_between(self, asked: Range) -> tuple[int, int]:
        """[start, end) of the log, in whose segments the records of these times are; all of it where nobody knows."""
        low, high, bases = self.log.min_physical_offset, self.log.max_physical_offset, self._bases
        if not bases:
            return low, high
        try:
            before = 0 if asked.first is None else bisect.bisect_left(bases, asked.first, key=self._begins_ms)
            behind = len(bases) if asked.end is None else bisect.bisect_left(bases, asked.end, key=self._begins_ms)
        except TimeUnknown:
            return low, high
        start = max(low, bases[max(0, before - 1)])
        return start, max(start, min(high, bases[behind] if behind < len(bases) else high))

    @property
    def _bases(self) -> range:
        return range(
            self._files.base_of(self.log.min_physical_offset), self.log.max_physical_offset, self.log.segment_bytes
        )

    def _begins_ms(self, base: int) -> int:
        known = self._begins.get(base)
        if known is None:
            offset = max(base, self.log.min_physical_offset)
            try:
                known = stored_ms(self._files, offset)
            except (OSError, StoreError) as error:
                raise TimeUnknown from error
            if known is None:
                raise TimeUnknown
            self._begins[base] = known
        return known
