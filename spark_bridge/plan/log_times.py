"""When the records of a log were stored, asked by very many queues: what is known of segments is kept.

Times rise with the offsets, unless the broker's clock was put back. So a bisection over the segments' first records
tells of every queue at once which of its entries can lie near a time: those in one segment. Only these are asked.
"""

from __future__ import annotations

import bisect
import os
from collections import OrderedDict
from typing import Self

from spark_bridge.split.splits import LogExtent
from store.files.segment_files import SegmentFiles
from store.queues.seen_queue import EVERYTHING
from store.reading.history import stored_ms, stored_ms_at

FILES_OPEN_MAX = 16


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
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def stored_ms(self, offset: int) -> int:
        """When the record at that offset was stored; 0 where none begins. Raises as `history.stored_ms`."""
        base = self._files.base_of(offset)
        fd = self._open.get(base)
        if fd is None:
            while len(self._open) >= FILES_OPEN_MAX:
                os.close(self._open.popitem(last=False)[1])
            fd = self._open[base] = self._files.descriptor(base)
        return stored_ms_at(fd, offset - base) or 0

    def around(self, moment_ms: int) -> tuple[int, int]:
        """Two offsets of the log: what lies below the first was stored before, what lies from the second on was not."""
        known = self._around.get(moment_ms)
        if known is None:
            low = self.log.min_physical_offset
            bases = range(self._files.base_of(low), self.log.max_physical_offset, self.log.segment_bytes)
            at = bisect.bisect_left(bases, moment_ms, key=self._begins_ms)
            below = max(low, bases[at - 1]) if at else low
            known = self._around[moment_ms] = below, bases[at] if at < len(bases) else EVERYTHING
        return known

    def _begins_ms(self, base: int) -> int:
        known = self._begins.get(base)
        if known is None:
            offset = max(base, self.log.min_physical_offset)
            known = self._begins[base] = stored_ms(self._files, offset) or 0
        return known
