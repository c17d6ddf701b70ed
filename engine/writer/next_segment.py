"""The writer's next segment, mapped and populated before it is needed; the last one, unmapped after it was.

Implements: AllocateMappedFileService, its warm-up of the next file (spec: store-formats, section 9)
Mapping a file, making its first pages writable and unmapping the one before take half a millisecond, and a put that
begins a segment would wait for all of it. A thread of the writer does it instead: it follows allocated_offset until the
segment is ready, then sleeps until the writer is in it; it works outside the interpreter's lock but for moments, and
what it has not done in time the writer does itself.
"""

from __future__ import annotations

import threading

import numpy as np

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.arrays import Words
from ipc.compiled.atomics import await_change, publish
from store.files import mapped_files
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles

LOOK_MS = 100  # while the segment is not there
READY_NS = 30_000_000_000  # once it is: the writer rings when it wants another one
JOIN_SECONDS = 5.0


class SegmentAhead:
    """At most one segment that is ready, and those to be unmapped. `sync_flush`: each put waits for the disk."""

    def __init__(
        self, counters: BrokerCounters, files: SegmentFiles, populate_bytes: int, *, sync_flush: bool = False
    ) -> None:
        self._counters, self._files, self._populate_bytes = counters, files, populate_bytes
        self._sync_flush = sync_flush
        self._ready: Segment | None = None
        self._wanted = -1
        self._retired: list[Segment] = []
        self._bell: Words = np.zeros(2, np.int64)
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def open(self, base: int) -> Segment:
        """The segment at `base`, mapped as its writer needs it. Raises as `SegmentFiles.open`."""
        segment = self._files.open(base, writable=True)
        if self._sync_flush:
            segment.take_pages_alone()
        return segment

    def begun(self, base: int, retired: Segment | None) -> None:
        """The writer is in the segment at `base` now: have the one after it ready, unmap the retired one."""
        if retired is not None:
            self._retired.append(retired)
        self._wanted = base + self._files.segment_bytes
        if self._thread is None:
            self.start()
        self._ring()

    def start(self) -> None:
        """Begin the thread, which makes the next segment ready."""
        self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
        self._thread.start()

    def _ring(self) -> None:
        publish(self._bell, 0, int(self._bell[0]) + 1)

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
        self._ring()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)
        self._unmap()
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def _run(self) -> None:
        allocated = self._counters.allocated_offset
        while not self._is_closing:
            rung, seen = int(self._bell[0]), allocated.read()
            if self.look():
                await_change(self._bell, 0, rung, READY_NS)
            else:
                waiting.await_change(allocated, seen, LOOK_MS)

    def look(self) -> bool:
        """Unmap what is retired, and make the next segment ready if it is there; whether it is ready."""
        self._unmap()
        wanted = self._wanted
        if not self._is_ready(wanted) and self._counters.allocated_offset.read() >= wanted + self._files.segment_bytes:
            self._prepare(wanted)
        return self._is_ready(wanted)

    def _is_ready(self, wanted: int) -> bool:
        ready = self._ready
        return ready is not None and ready.base_offset == wanted

    def _prepare(self, base: int) -> None:
        stale, self._ready = self._ready, None
        if stale is not None:
            stale.close()
        try:
            segment = self.open(base)
        except FileNotFoundError:
            return  # removed meanwhile; the writer says what is wrong, if anything is
        mapped_files.populate_write(segment.array, 0, self._populate_bytes)
        self._ready = segment

    def _unmap(self) -> None:
        while self._retired:
            self._retired.pop().close()
