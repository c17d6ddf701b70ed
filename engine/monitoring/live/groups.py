"""Consumer groups as they follow their queues: lag and pace of each, from shared memory, however many there are.

A row of the table of offsets knows its queue by name; which queue's end that is, is looked up once a row and for a
bounded number of rows a look. All else are sums over columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.monitoring.live.queues import LiveQueues
from engine.monitoring.live.window import Window
from engine.shared_memory.clients.client_rows import ClientRows
from engine.shared_memory.clients.client_table import LOW_HALF
from engine.shared_memory.clients.name_rows import texts_of
from engine.shared_memory.clients.offset_rows import NONE, OffsetRow
from engine.shared_memory.queue_ends import NO_SLOT
from ipc.arrays import Words

Doubles = npt.NDArray[np.float64]
LOOKUPS_MAX = 20_000  # of rows, in one look
UNKNOWN = -2  # a row that was not looked up yet
QUEUES_MAX = 1000  # of one group that is looked at closely: those with the largest lag


class GroupFigures(NamedTuple):
    """One group; `taken_per_second`: how fast its offsets move, all queues together."""

    group: str
    topics: int
    queues: int
    lag: int
    taken_per_second: float


class QueueLag(NamedTuple):
    """Progress of a group in one queue."""

    topic: str
    queue_id: int
    offset: int
    end: int
    lag: int


class LiveGroups:
    """Every group that has offsets here."""

    def __init__(self, directory: Path, queues: LiveQueues) -> None:
        self._table, self._queues = ClientRows.attach(directory), queues
        self._names: list[str] = []
        self._past: Window[Doubles] = Window()
        self._forget()
        self._queues_known = 0
        self.is_whole = True

    def _forget(self) -> None:
        self._name_rows: Words = np.empty((0, 1), np.int64)
        self._keys: Words = np.empty((0, 2), np.int64)
        self._slots: Words = np.empty(0, np.int64)
        self._names = []
        self._past.clear()

    def take(self, now_ms: int) -> list[GroupFigures]:
        """Return each group's figures now; while `is_whole` is False, the lag of some groups is not known yet."""
        rows = self._table.offset_rows()
        self._take_names()
        self._look_up(rows)
        numbers = rows[:, OffsetRow.TOPIC_AND_GROUP] & LOW_HALF
        used = (rows[:, OffsetRow.OFFSET] != NONE) & (numbers < len(self._names)) & (numbers >= 0)
        rows, numbers, slots = rows[used], numbers[used], self._slots[used]
        size, offsets = len(self._names), rows[:, OffsetRow.OFFSET]
        queues = np.bincount(numbers, minlength=size)
        lags = np.bincount(numbers, weights=self._lag(offsets, slots), minlength=size)
        pairs = np.unique(rows[:, OffsetRow.TOPIC_AND_GROUP])
        topics = np.bincount(pairs & LOW_HALF, minlength=size)
        paces = self._paces(now_ms, np.bincount(numbers, weights=offsets, minlength=size).astype(np.float64))
        present = np.flatnonzero(queues).tolist()
        columns = (column[present].tolist() for column in (topics, queues, lags.astype(np.int64), paces))
        names = (self._names[number] for number in present)
        return [GroupFigures(*of) for of in zip(names, *columns, strict=True)]

    def queues_of(self, group: str) -> list[QueueLag]:
        """Return the queues of one group as of the last look, the largest lag first."""
        rows = self._table.offset_rows()[: len(self._slots)]
        try:
            number = self._names.index(group)
        except ValueError:
            return []
        is_its = rows[:, OffsetRow.TOPIC_AND_GROUP] & LOW_HALF == number
        of_group = np.flatnonzero(is_its & (rows[:, OffsetRow.OFFSET] != NONE))
        slots, rows = self._slots[of_group], rows[of_group]
        lags = self._lag(rows[:, OffsetRow.OFFSET], slots)
        order = np.argsort(-lags, kind="stable")[:QUEUES_MAX]
        shown = []
        for row, slot, lag in zip(rows[order].tolist(), slots[order].tolist(), lags[order].tolist(), strict=True):
            topic = row[OffsetRow.TOPIC_AND_GROUP] >> 32
            name = self._names[topic] if topic < len(self._names) else "?"
            end = int(self._queues.ends[slot]) if slot >= 0 else 0
            shown.append(QueueLag(name, row[OffsetRow.QUEUE_ID], row[OffsetRow.OFFSET], end, int(lag)))
        return shown

    def _take_names(self) -> None:
        """New ones; where one is another than it was, all is looked up anew."""
        rows = self._table.name_rows()
        known = len(self._name_rows)
        if len(rows) < known or (known and not np.array_equal(rows[:known], self._name_rows)):
            self._forget()
            known = 0
        if len(rows) > known:
            self._names += texts_of(rows[known:])
            self._name_rows = rows

    def _look_up(self, rows: Words) -> None:
        keys = rows[:, [OffsetRow.TOPIC_AND_GROUP, OffsetRow.QUEUE_ID]]
        known = min(len(self._keys), len(keys))
        slots = np.full(len(keys), UNKNOWN, np.int64)
        same = (keys[:known] == self._keys[:known]).all(axis=1)
        slots[:known][same] = self._slots[:known][same]
        queues = self._queues.look()
        if queues != self._queues_known:  # one without entries may have some now
            slots[slots == NO_SLOT] = UNKNOWN
            self._queues_known = queues
        open_rows = np.flatnonzero((slots == UNKNOWN) & (rows[:, OffsetRow.OFFSET] != NONE))
        self.is_whole = len(open_rows) <= LOOKUPS_MAX
        for at in open_rows[:LOOKUPS_MAX].tolist():
            topic = int(keys[at, 0]) >> 32
            is_named = 0 <= topic < len(self._names)
            slots[at] = self._queues.slot_of(self._names[topic], int(keys[at, 1])) if is_named else NO_SLOT
        self._keys, self._slots = keys, slots

    def _lag(self, offsets: Words, slots: Words) -> Words:
        ends = self._queues.ends[np.maximum(slots, 0)]
        lag: Words = np.where(slots >= 0, np.maximum(ends - offsets, 0), 0)
        return lag

    def _paces(self, now_ms: int, sums: Doubles) -> Doubles:
        before, a_second = self._past.begin(now_ms, sums)
        moved = sums.copy()
        moved[: len(before)] -= before
        moved[len(before) :] = 0
        pace: Doubles = moved * a_second
        return pace

    def close(self) -> None:
        """Unmap the table of clients; no further look is possible."""
        self._table.close()
