"""Stored records for a service: the segments that it reads in, mapped as long as it stays in them."""

from __future__ import annotations

from collections import OrderedDict

from engine.shared_memory.cursors import BrokerCounters
from store.errors import CorruptRecord, StoreError
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message.record import Kind, Message, decode, inspect

SEGMENTS_MAX = 4


class Records:
    """The log's records, by their offsets."""

    def __init__(self, files: SegmentFiles, counters: BrokerCounters) -> None:
        self._files, self._counters = files, counters
        self._open: OrderedDict[int, Segment] = OrderedDict()

    def base_of(self, offset: int) -> int:
        """Return the base offset of an offset's segment."""
        return self._files.base_of(offset)

    def segment(self, base: int) -> Segment | None:
        """The segment that begins there; None once it has expired. Raises SegmentSizeMismatch."""
        if base + self._files.segment_bytes <= self._counters.min_physical_offset.read():
            return None
        segment = self._open.get(base)
        if segment is None:
            try:
                segment = self._open[base] = self._files.open(base)
            except FileNotFoundError:
                return None
            except StoreError:
                if base + self._files.segment_bytes <= self._counters.min_physical_offset.read():
                    return None
                raise
            while len(self._open) > SEGMENTS_MAX:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(base)
        return segment

    def message(self, offset: int) -> Message | None:
        """The message that begins there, with a body of its own; None where its segment has expired.

        Raises CorruptRecord.
        """
        segment = self.segment(self.base_of(offset))
        if segment is None or offset < self._counters.min_physical_offset.read():
            return None
        position = offset - segment.base_offset
        seen = inspect(segment.view, position, offset, check_body_crc=True)
        if seen.kind is not Kind.MESSAGE:
            raise CorruptRecord(str(segment.path), offset, seen.reason or "no message begins there")
        message = decode(segment.view, position, check_body_crc=False, path=str(segment.path))
        object.__setattr__(message, "body", bytes(message.body))
        return message

    def close(self) -> None:
        """Unmap all segments that are open."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
