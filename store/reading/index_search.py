"""The messages that an index names for a key, as RocketMQ's brokers return them.

Implements: DefaultMessageStore.queryMessage, IndexService.queryOffset, CommitLog.getData for one record
The index holds hashes: what comes back may carry another key, which clients sort out. Read only, without compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store.errors import IndexFileDamaged, StoreError
from store.files.segment_files import SegmentFiles
from store.index.index_file import Geometry, Header, IndexFile
from store.index.query import index_files, query_offset
from store.message.record import Kind, inspect, store_timestamp_of
from store.reading.queue_view import LogLimits

ROUNDS = 3  # each before the oldest message of the one before, where none of it is there any more


class Answer(NamedTuple):
    """Whole records in the log's order, and where the index ended."""

    records: list[bytes]
    last_update_ms: int = 0
    last_physical_offset: int = 0


class LogRecords:
    """Single records of a log that somebody else writes."""

    def __init__(self, files: SegmentFiles, limits: Callable[[], LogLimits]) -> None:
        self._files, self._limits = files, limits

    def at(self, physical_offset: int) -> bytes | None:
        """The record that begins there, as it lies in the log; None where none does, whatever number that is."""
        limits = self._limits()
        if not limits.min_physical_offset <= physical_offset < limits.dispatched_to:
            return None
        base = self._files.base_of(physical_offset)
        try:
            with self._files.open(base) as segment:
                position, limit = physical_offset - base, min(limits.dispatched_to - base, segment.size_bytes)
                inspected = inspect(segment.view, position, physical_offset, check_body_crc=False, limit=limit)
                if inspected.kind is not Kind.MESSAGE:
                    return None
                return bytes(segment.view[position : position + inspected.size])
        except (StoreError, OSError):
            return None


class IndexSearch:
    """Asks the index in that directory, which the dispatcher of a running broker writes."""

    def __init__(self, directory: Path, geometry: Geometry, records: LogRecords) -> None:
        self._directory, self._geometry, self._records = directory, geometry, records

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, bytes_max: int) -> Answer:
        """queryMessage; of more than `bytes_max` the first ones."""
        answer, until_ms = Answer([]), end_ms
        for _ in range(ROUNDS):
            offsets = sorted(query_offset(self._newest_first(), topic, key, max_num, begin_ms, until_ms))
            last = self._last()
            if not offsets or last is None:
                break
            first = self._records.at(offsets[0])
            until_ms = until_ms if first is None else store_timestamp_of(first, 0) or until_ms
            records = self._records_at(offsets, bytes_max)
            answer = Answer(records, last.end_timestamp_ms, last.end_physical_offset)
            if records or until_ms < begin_ms:
                break
        return answer

    def _records_at(self, offsets: list[int], bytes_max: int) -> list[bytes]:
        records: list[bytes] = []
        for offset in offsets:
            record = self._records.at(offset)
            if record is not None:
                bytes_max -= len(record)
                if bytes_max < 0:
                    break
                records.append(record)
        return records

    def _newest_first(self) -> Iterator[IndexFile]:
        for path in reversed(index_files(self._directory)):
            with suppress(FileNotFoundError, IndexFileDamaged):  # deleted with its records; or not a valid index file
                yield IndexFile.open(path, self._geometry)

    def _last(self) -> Header | None:
        newest = next(self._newest_first(), None)
        return None if newest is None else newest.header
