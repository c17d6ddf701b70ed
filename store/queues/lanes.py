"""Queues that are built, as words for compiled code: where each ends, and a descriptor of its last file for some.

Implements: nothing of RocketMQ's, which has every queue file mapped
As many files are open as `open_max` says. Which one goes then is decided as by a clock's hand, that passes those that
were written to since it was there before: so many queues that are met once do not close those that are used. A file
without a name (somebody removed it) is noticed by who writes, and opened again by its name.
"""

from __future__ import annotations

import os

import numpy as np

from ipc.arrays import Bytes, Words
from store.queues import group_kernel
from store.queues.group_kernel import CLOSED, Lane, LaneTable

NO_SLOT = -1


class Lanes:
    """The lanes of one process, by number. Call `close`."""

    def __init__(self, open_max: int) -> None:
        self.open_max = open_max
        self.words: Words = np.zeros((64, len(Lane)), np.int64)
        self.names: Bytes = np.zeros(4096, np.uint8)
        self.places: Words = np.zeros(256, np.int64)  # a hash table of lane + 1
        self._used = self._name_bytes = self._hand = 0
        self._open: list[int] = []  # lanes
        self.opened = 0  # how often a file was

    def __len__(self) -> int:
        return self._used

    @property
    def open_files(self) -> int:
        """Return the number of descriptors that are held."""
        return len(self._open)

    def table(self) -> LaneTable:
        """Return the lanes for kernels, as long as none is added."""
        return LaneTable(self.words, self.names, self.places)

    def add(self, topic: bytes, queue_id: int) -> int:
        """A lane for one more queue, which ends at 0."""
        if self._used == len(self.words):
            self.words = np.concatenate([self.words, np.zeros_like(self.words)])
        while self._name_bytes + len(topic) > len(self.names):
            self.names = np.concatenate([self.names, np.zeros_like(self.names)])
        lane, row = self._used, self.words[self._used]
        row[Lane.FD], row[Lane.SLOT], row[Lane.QUEUE_ID] = CLOSED, NO_SLOT, queue_id
        row[Lane.NAME_AT], row[Lane.NAME_BYTES] = self._name_bytes, len(topic)
        self.names[self._name_bytes : self._name_bytes + len(topic)] = np.frombuffer(topic, np.uint8)
        self._name_bytes += len(topic)
        self._used += 1
        if 2 * self._used > len(self.places):
            self.places = np.zeros(2 * len(self.places), np.int64)
            group_kernel.enter_lanes(self.words, self.names, self.places, 0, self._used)
        else:
            group_kernel.enter_lanes(self.words, self.names, self.places, lane, self._used)
        return lane

    def hold(self, lane: int, fd: int, first: int, until: int) -> None:
        """Keep the file with the queue offsets [first, until) open for what comes next."""
        row = self.words[lane]
        self.opened += 1
        if row[Lane.FD] != CLOSED:
            os.close(int(row[Lane.FD]))
        elif len(self._open) < self.open_max:
            self._open.append(lane)
        else:
            self._open[self._make_room()] = lane
        row[Lane.FD], row[Lane.FIRST], row[Lane.UNTIL], row[Lane.IS_USED] = fd, first, until, 0

    def _make_room(self) -> int:
        """Close the file of a lane that was not written to lately; its place."""
        while True:
            at, self._hand = self._hand, (self._hand + 1) % self.open_max
            row = self.words[self._open[at]]
            if not row[Lane.IS_USED]:
                os.close(int(row[Lane.FD]))
                row[Lane.FD] = CLOSED
                return at
            row[Lane.IS_USED] = 0

    def close(self) -> None:
        """Close the files of all lanes."""
        for lane in self._open:
            os.close(int(self.words[lane, Lane.FD]))
            self.words[lane, Lane.FD] = CLOSED
        self._open.clear()
        self._hand = 0
