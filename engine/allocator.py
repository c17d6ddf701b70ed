"""Makes the log's segments before they are needed: the one asked for and the one after it, every block reserved.

Implements: AllocateMappedFileService (spec: store-formats, section 9)
Follows:    segment_request_offset, the writer's or receiver's ("I need the segment of this"; below 0: nobody asked)
Publishes:  allocated_offset, allocation_errno, min_physical_offset (of a store that had no segment)
A full disk is an errno here, never a SIGBUS in the writer. It is tried again each second.
"""

from __future__ import annotations

import logging
import os

from engine.config import BrokerConfig
from engine.cursors import Board
from ipc import waiting
from store.segment_files import SegmentFiles

log = logging.getLogger("slipstream.allocator")

RETRY_MS = 1000
SEGMENTS_AHEAD = 1


class Allocator:
    """The role of the allocator."""

    name = "allocator"

    def __init__(self, board: Board, files: SegmentFiles) -> None:
        self._board, self._files = board, files
        self._request = board.segment_request_offset.read()
        self._retry_at_ms = 0
        self._now_ms = 0
        bases = files.base_offsets()
        self._first = bases[0] if bases else None
        self._end = bases[-1] + files.segment_bytes if bases else 0
        if self._end > board.allocated_offset.read():
            waiting.publish(board.allocated_offset, self._end)

    def do_work(self, now_ms: int) -> int:
        """Make one segment if one is missing; the bytes it has."""
        self._now_ms = now_ms
        self._request = self._board.segment_request_offset.read()
        if self._request < 0 or now_ms < self._retry_at_ms:
            return 0
        wanted = self._files.base_of(self._request)
        if self._first is not None and wanted > self._first >= self._board.max_physical_offset.read():
            self._drop_before(wanted)
        base = wanted if self._first is None else self._end
        if base > wanted + SEGMENTS_AHEAD * self._files.segment_bytes:
            return 0
        return self._make(base)

    def _make(self, base: int) -> int:
        try:
            self._files.reserve(base)
        except OSError as error:
            self._fail(base, error)
            return 0
        if self._first is None:
            self._first = base
            waiting.publish(self._board.min_physical_offset, base)
        self._end = base + self._files.segment_bytes
        if self._board.allocation_errno.read():
            log.info("%s: made after all", self._files.path_of(base))
            waiting.publish(self._board.allocation_errno, 0)
        self._retry_at_ms = 0
        waiting.publish(self._board.allocated_offset, self._end)
        return self._files.segment_bytes

    def _fail(self, base: int, error: OSError) -> None:
        number = error.errno or -1
        if self._board.allocation_errno.read() != number:
            log.error(
                "%s: %d bytes cannot be reserved (%s); messages are refused once the segment before it is full."
                " Free space on this file system: it is tried again each second",
                self._files.path_of(base), self._files.segment_bytes, os.strerror(number) if number > 0 else error,
            )  # fmt: skip
        waiting.publish(self._board.allocation_errno, number)
        self._retry_at_ms = self._now_ms + RETRY_MS

    def _drop_before(self, wanted: int) -> None:
        """A slave whose log is still empty begins where its master says, whatever was made before.

        Its published end may lag behind what it received, so files that hold anything decide: then all of them stay.
        """
        bases = self._files.base_offsets()
        before = [base for base in bases if base < wanted]
        if not all(self._files.is_unused(base) for base in before):
            return
        for base in before:
            self._files.remove(base)
        self._first = bases[len(before)] if len(before) < len(bases) else None
        if self._first is not None:
            waiting.publish(self._board.min_physical_offset, self._first)

    def idle(self, timeout_ms: int) -> None:
        """Sleep until another segment is asked for, or the retry is due."""
        if self._retry_at_ms > self._now_ms:
            timeout_ms = min(timeout_ms, self._retry_at_ms - self._now_ms)
        waiting.await_change(self._board.segment_request_offset, self._request, timeout_ms)

    def close(self) -> None:
        """Nothing is held."""


def open_role(config: BrokerConfig, board: Board) -> Allocator:
    """The allocator of a store."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    return Allocator(board, files)
