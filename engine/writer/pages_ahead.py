"""Pages of the writer's segment made writable before it comes to them, by a thread of its own.

Implements: MappedFile.warmMappedFile, for some megabytes ahead
The first touch of a page is a fault, and one of many reads megabytes ahead and clears them: 20 ms, in which no message
is appended if the writer does it. What the thread has not done in time the writer does itself.
"""

from __future__ import annotations

import threading

import numpy as np

from engine.shared_memory.cursors import BrokerCounters
from ipc.arrays import Words
from ipc.compiled.atomics import await_change, publish
from store.files import mapped_files
from store.files.segment import Segment

AHEAD_BYTES, STEP_BYTES = 16 << 20, 1 << 20
LOW_BYTES = AHEAD_BYTES - 4 * STEP_BYTES  # below, it is asked to go on
LOOK_NS = 30_000_000_000  # the writer rings when it wants more
JOIN_SECONDS = 5.0


class PagesAhead:
    """Pages of the writer's newest segment."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters = counters
        self._segment: Segment | None = None
        self._ready = 0  # the log offset up to which pages are writable
        self._guard = threading.Lock()
        self._bell: Words = np.zeros(2, np.int64)
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def begin(self, segment: Segment, ready: int) -> None:
        """The writer is in this segment now, whose pages are writable up to an offset."""
        with self._guard:
            self._segment, self._ready = segment, ready
        self._ring()
        if self._thread is None:
            self.start()

    def start(self) -> None:
        """Begin the thread, which makes pages writable."""
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()

    def ready(self, end: int, least: int) -> int:
        """Return up to where pages are writable, at least `least` bytes behind `end`; ask for more where few are left.

        Raises OSError where there are no blocks behind them.
        """
        if self._ready < end + LOW_BYTES:
            self._ring()
        segment = self._segment
        if segment is not None and self._ready < end + least:
            self._populate(segment, max(end, self._ready), end + 2 * least)
        return self._ready

    def _ring(self) -> None:
        publish(self._bell, 0, int(self._bell[0]) + 1)

    def close(self) -> None:
        """End the thread, and wait a limited time."""
        self._is_closing = True
        self._ring()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)
        self._segment = None

    def _run(self) -> None:
        while not self._is_closing:
            seen = int(self._bell[0])
            if not self._step():
                await_change(self._bell, 0, seen, LOOK_NS)

    def _step(self) -> bool:
        """A step ahead; whether there may be another one."""
        with self._guard:
            segment, ready = self._segment, self._ready
        end = self._counters.max_physical_offset.read()
        begin, goal = max(end, ready), min(end + AHEAD_BYTES, segment.end_offset) if segment is not None else 0
        if segment is None or begin >= goal:
            return False
        try:
            self._populate(segment, begin, min(begin + STEP_BYTES, goal))
        except OSError:  # the writer comes to it, and says so
            return False
        return True

    def _populate(self, segment: Segment, begin: int, end: int) -> None:
        end = min(end, segment.end_offset)
        if begin < end:
            mapped_files.populate_write(segment.array, begin - segment.base_offset, end - begin)
        with self._guard:
            if self._segment is segment:
                self._ready = max(self._ready, end)
