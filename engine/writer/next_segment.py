"""The writer's next segment, mapped and populated before it is needed; the last one, unmapped after it was.

Implements: AllocateMappedFileService, its warm-up of the next file (spec: store-formats, section 9)
Mapping a file, making its first pages writable and unmapping the one before take half a millisecond, and a put that
begins a segment would wait for all of it. A thread of the writer does it instead: it follows allocated_offset, works
outside the interpreter's lock but for moments, and what it has not done in time the writer does itself.
"""

from __future__ import annotations

import threading

from engine.board.cursors import Board
from ipc import waiting
from store.files import file_io
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles

LOOK_MS = 100
JOIN_SECONDS = 5.0


class SegmentAhead:
    """At most one segment that is ready, and those to be unmapped."""

    def __init__(self, board: Board, files: SegmentFiles, populate_bytes: int) -> None:
        self._board, self._files, self._populate_bytes = board, files, populate_bytes
        self._ready: Segment | None = None
        self._wanted = -1
        self._retired: list[Segment] = []
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def begun(self, base: int, retired: Segment | None) -> None:
        """The writer is in the segment at `base` now: have the one after it ready, unmap the retired one."""
        if retired is not None:
            self._retired.append(retired)
        self._wanted = base + self._files.segment_bytes
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
            self._thread.start()

    def take(self, base: int) -> tuple[Segment, int] | None:
        """The segment at `base`, the caller's from now on, and up to where it is populated; None: it is not ready."""
        ready = self._ready
        if ready is None or ready.base_offset != base:
            return None
        self._ready = None
        return ready, min(base + self._populate_bytes, ready.end_offset)

    def close(self) -> None:
        """End the thread, unmap what is left."""
        self._is_closing = True
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)
        self._unmap()
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def _run(self) -> None:
        allocated = self._board.allocated_offset
        while not self._is_closing:
            seen = allocated.read()
            self._unmap()
            wanted, ready = self._wanted, self._ready
            if (ready is None or ready.base_offset != wanted) and seen >= wanted + self._files.segment_bytes:
                self._prepare(wanted)
            waiting.await_change(allocated, seen, LOOK_MS)

    def _prepare(self, base: int) -> None:
        stale, self._ready = self._ready, None
        if stale is not None:
            stale.close()
        try:
            segment = self._files.open(base, writable=True)
        except FileNotFoundError:
            return  # removed meanwhile; the writer says what is wrong, if anything is
        file_io.populate_write(segment.array, 0, self._populate_bytes)
        self._ready = segment

    def _unmap(self) -> None:
        while self._retired:
            self._retired.pop().close()
