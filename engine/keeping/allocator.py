"""Makes the log's segments before they are needed: the one asked for and the one after it, every block reserved.

Implements: AllocateMappedFileService (spec: store-formats, section 9)
Follows:    segment_request_offset, the writer's or receiver's ("I need the segment of this"; below 0: nobody asked);
            min_physical_offset: an empty slave's log begins where the housekeeper has said
Publishes:  allocated_offset, allocation_errno
A full disk is an errno here, never a SIGBUS in the writer. It is tried again each second.
"""

from __future__ import annotations

import logging
import os

from engine.keeping.empty_log import unused_before
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files.segment_files import SegmentFiles

log = logging.getLogger("slipstream.allocator")

RETRY_MS = 1000
SEGMENTS_AHEAD = 1


class Allocator:
    """The role of the allocator."""

    name = "allocator"

    def __init__(self, counters: BrokerCounters, files: SegmentFiles) -> None:
        self._counters, self._files = counters, files
        self._request = counters.segment_request_offset.read()
        self._retry_at_ms = 0
        self._now_ms = 0
        self._min_seen: int | None = None  # while it waits for the housekeeper
        bases = files.base_offsets()
        self._end = bases[-1] + files.segment_bytes if bases else 0
        if self._end > counters.allocated_offset.read():
            waiting.publish(counters.allocated_offset, self._end)

    def do_work(self, now_ms: int) -> int:
        """Make one segment if one is missing; the bytes it has."""
        self._now_ms, self._min_seen = now_ms, None
        self._request = self._counters.segment_request_offset.read()
        if self._request < 0 or now_ms < self._retry_at_ms:
            return 0
        wanted, begin = self._files.base_of(self._request), self._counters.min_physical_offset.read()
        if unused_before(self._counters, self._files, self._request) is not None:
            self._min_seen = begin  # the housekeeper moves the log's beginning
            return 0
        base = max(self._end, begin)
        if base > wanted + SEGMENTS_AHEAD * self._files.segment_bytes:
            return 0
        return self._make(base)

    def _make(self, base: int) -> int:
        try:
            self._files.reserve(base)
        except OSError as error:
            self._fail(base, error)
            return 0
        self._end = base + self._files.segment_bytes
        if self._counters.allocation_errno.read():
            log.info("%s: created after all", self._files.path_of(base))
            waiting.publish(self._counters.allocation_errno, 0)
        self._retry_at_ms = 0
        waiting.publish(self._counters.allocated_offset, self._end)
        return self._files.segment_bytes

    def _fail(self, base: int, error: OSError) -> None:
        number = error.errno or -1
        if self._counters.allocation_errno.read() != number:
            log.error(
                "%s: %d bytes cannot be reserved (%s); messages are refused once the segment before it is full."
                " Free space on this file system: the broker retries each second",
                self._files.path_of(base),
                self._files.segment_bytes,
                os.strerror(number) if number > 0 else error,
            )
        waiting.publish(self._counters.allocation_errno, number)
        self._retry_at_ms = self._now_ms + RETRY_MS

    def idle(self, timeout_ms: int) -> None:
        """Sleep until another segment is asked for, the retry is due, or the housekeeper has said where to begin."""
        if self._min_seen is not None:
            waiting.await_change(self._counters.min_physical_offset, self._min_seen, min(timeout_ms, RETRY_MS))
            return
        if self._retry_at_ms > self._now_ms:
            timeout_ms = min(timeout_ms, self._retry_at_ms - self._now_ms)
        waiting.await_change(self._counters.segment_request_offset, self._request, timeout_ms)

    def close(self) -> None:
        """Do nothing: the allocator holds nothing between turns."""


def open_role(config: BrokerConfig, counters: BrokerCounters) -> Allocator:
    """The allocator of a store."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    return Allocator(counters, files)
