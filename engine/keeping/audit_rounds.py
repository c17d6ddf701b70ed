"""What the housekeeper tells the audit: segments that came or were sealed at once, all other files in rounds.

A round looks at the directory of every queue. There may be very many, so it is done in slices, one a turn, and after
each round comes a rest, by which all of them take no more than a tenth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.upkeep.audit import SEGMENT, Audit, Change, FileWatch

SLICE = 500  # directories a turn
REST_TIMES = 9


class AuditRounds:
    """The audit of one store, as its housekeeper writes it."""

    def __init__(
        self, counters: BrokerCounters, files: SegmentFiles, directory: StoreDirectory, wall_of: Callable[[int], int]
    ) -> None:
        self._counters, self._files, self._wall_of = counters, files, wall_of
        self._audit, self._watch = Audit(directory.root), FileWatch(directory)
        self._watch.look_at_segments()
        self._built_to = -1
        self._sealed_to = files.base_of(counters.max_physical_offset.read())
        self._has_begun = False
        self._round: Iterator[list[Change]] | None = self._watch.look()  # what was there when the broker began
        self._due_ms = self._round_ns = 0

    def note(self, now_ms: int, event: str, kind: str, path: Path | None, reason: str, **facts: object) -> None:
        """A line of its own."""
        self._audit.write(self._wall_of(now_ms), event, kind, path, reason, **facts)

    def forget(self, path: Path) -> None:
        """The file is about to be deleted by us, and has its line: its absence is no news."""
        self._watch.forget(path)

    def look(self, now_ms: int, interval_ms: int) -> bool:
        """Audit segments, and a slice of the other files if a round is due; return whether the round goes on."""
        self._look_at_segments(now_ms)
        if self._round is None:
            built_to = self._counters.reput_from_offset.read()
            if now_ms < self._due_ms or built_to == self._built_to:
                return False
            self._begin_round(built_to)
        if self._slice(now_ms):
            return True
        self._due_ms = now_ms + max(interval_ms, REST_TIMES * self._round_ns // waiting.NS_PER_MS)
        return False

    def finish(self, beat: Callable[[], None]) -> None:
        """A whole round, for the last time; `beat` after each slice."""
        now_ms = monotonic_ms()
        while not self._has_begun and self._slice(now_ms):
            beat()
        self._look_at_segments(now_ms)
        self._begin_round(self._counters.reput_from_offset.read())
        while self._slice(now_ms):
            beat()
        self.note(now_ms, "stop", "store", None, "the broker stops")

    def _begin_round(self, built_to: int) -> None:
        self._built_to, self._round_ns, self._round = built_to, 0, self._watch.look()

    def _slice(self, now_ms: int) -> bool:
        """A slice of the round; whether it goes on."""
        assert self._round is not None
        began_ns, directories, changes = time.monotonic_ns(), 0, []
        for part in islice(self._round, SLICE):
            directories += 1
            changes += part
        if self._has_begun:
            self._note_all(now_ms, changes, f"built from the log up to {self._built_to}")
        self._round_ns += time.monotonic_ns() - began_ns
        if directories == SLICE:
            return True
        self._round = None
        if not self._has_begun:
            self._begin(now_ms)
        return False

    def _begin(self, now_ms: int) -> None:
        self._has_begun, counters = True, self._counters
        begin, end = counters.min_physical_offset.read(), counters.max_physical_offset.read()
        self.note(
            now_ms,
            "start",
            "store",
            None,
            "what was there when the broker began to look",
            **self._watch.counts(),
            min_physical_offset=begin,
            max_physical_offset=end,
        )

    def _look_at_segments(self, now_ms: int) -> None:
        counters = self._counters
        end = counters.max_physical_offset.read()
        self._note_all(now_ms, self._watch.look_at_segments(), f"the log's end is at {end}: room for what comes")
        self._sealed_to = max(self._sealed_to, counters.min_physical_offset.read())
        while self._sealed_to + self._files.segment_bytes <= end:
            path = self._files.path_of(self._sealed_to)
            self.note(now_ms, "seal", SEGMENT, path, "full: the log goes on in the next segment")
            self._sealed_to += self._files.segment_bytes

    def _note_all(self, now_ms: int, changes: list[Change], came_because: str) -> None:
        lines: list[tuple[str, str, Path | None, str]] = []
        for change in changes:
            if not change.came:
                lines.append(("vanish", change.kind, change.path, "removed, but not by retention"))
                waiting.add(self._counters.vanished_files, 1)
                continue
            if change.follows is not None and change.kind != SEGMENT:
                lines.append(("seal", change.kind, change.follows, f"full: {change.path.name} follows"))
            lines.append(("create", change.kind, change.path, came_because))
        if lines:
            self._audit.write_all(self._wall_of(now_ms), lines)
