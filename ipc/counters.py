"""Counters: labelled 64-bit words in shared memory, the only progress that processes share.

One writer per word, named as its owner; any number of readers; no locks. Each counter has a cache line of its own:
word 0 the value, word 1 how many wait for it to change (`ipc.compiled.atomics` adds to that one atomically).

Words are native-endian and moved whole. `struct.pack_into` is banned here: it zeroes the field first, and readers
in other processes see that zero. Only the region's maker allocates; labels never move, so a viewer needs no map of
its own. Publishing (`ipc.waiting`) needs numba; attaching and reading do not.

Payload: word 0 capacity, word 1 used | labels, 128 bytes each from byte 64 | values, 64 bytes each
label: kind 12 bytes, owner 36 bytes, name 80 bytes (ASCII, zero-padded)
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ipc.arrays import Words
from ipc.errors import CounterMissing, CountersFull, OtherVersion
from ipc.module_names import version_here
from ipc.region import Region

REGION_KIND, LAYOUT = "counters", 1
KINDS = ("cursor", "tally", "gauge", "heartbeat")
WORDS_PER_SLOT = 8
LABELS_AT, LABEL_BYTES = 64, 128
LABEL_DTYPE = np.dtype([("kind", "S12"), ("owner", "S36"), ("label", "S80")])


class CountersWord(IntEnum):
    """The words of the region before its labels."""

    CAPACITY = 0
    USED = 1


class CounterView(NamedTuple):
    """One counter as a viewer sees it."""

    slot: int
    label: str
    kind: str
    owner: str
    value: int


class Cursor:
    """One word that one process moves and the others follow; `words[index]` is its value, for compiled code."""

    __slots__ = ("index", "label", "words")

    def __init__(self, words: Words, index: int, label: str) -> None:
        self.words, self.index, self.label = words, index, label

    def read(self) -> int:
        """The value now: one load of an aligned word."""
        return int(self.words[self.index])

    def __repr__(self) -> str:
        return f"<{self.label} {self.read()}>"


class AbsentCursor(Cursor):
    """A counter that a broker of another version does not have: views read 0, and nobody gets a word to move."""

    __slots__ = ("_region",)

    def __init__(self, region: Region, label: str) -> None:
        self.label, self._region = label, region  # `words` and `index` stay unset

    def read(self) -> int:
        """0."""
        return 0

    def __getattr__(self, name: str) -> Any:
        """Raises OtherVersion for `words` and `index`: index 0 would be another counter's word."""
        if name not in Cursor.__slots__:
            raise AttributeError(name)
        made_by, why = self._region.made_by, f"it has no counter {self.label!r}"
        raise OtherVersion(self._region.path, made_by, version_here(), why)


class Counters:
    """Counters in one region of shared memory."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.path = region.path
        self.capacity = int(region.words[CountersWord.CAPACITY])
        values_at = (LABELS_AT + self.capacity * LABEL_BYTES) // 8
        self._labels = region.bytes[LABELS_AT : LABELS_AT + self.capacity * LABEL_BYTES].view(LABEL_DTYPE)
        self.words: Words = region.words[values_at:]

    @classmethod
    def create(cls, path: Path, capacity: int) -> Counters:
        """A region for `capacity` counters. Raises RegionNoSpace."""
        size = LABELS_AT + capacity * (LABEL_BYTES + WORDS_PER_SLOT * 8)
        region = Region.create(path, size, kind=REGION_KIND, layout=LAYOUT)
        region.words[CountersWord.CAPACITY] = capacity
        return cls(region)

    @classmethod
    def attach(cls, path: Path, writable: bool = False) -> Counters:
        """The counters of a running broker. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(path, kind=REGION_KIND, layout=LAYOUT, writable=writable))

    @property
    def _used(self) -> int:
        return int(self._region.words[CountersWord.USED])

    def allocate(self, label: str, *, kind: str, owner: str, initial: int = 0) -> Cursor:
        """A new counter; only the region's maker calls this. Raises CountersFull."""
        assert kind in KINDS and label not in self, f"{kind} {label}"
        used = self._used
        if used == self.capacity:
            raise CountersFull(self.path, self.capacity)
        cursor = Cursor(self.words, used * WORDS_PER_SLOT, label)
        self.words[cursor.index] = initial
        self._labels[used] = (kind.encode("ascii"), owner.encode("ascii"), label.encode("ascii"))
        self._region.words[CountersWord.USED] = used + 1
        return cursor

    def cursor(self, label: str) -> Cursor:
        """The counter of that label. Raises CounterMissing."""
        slots = np.flatnonzero(self._labels["label"][: self._used] == label.encode("ascii"))
        if not len(slots):
            raise CounterMissing(self.path, label)
        return Cursor(self.words, int(slots[0]) * WORDS_PER_SLOT, label)

    def cursor_or_absent(self, label: str) -> Cursor:
        """The counter of that label, or an AbsentCursor where a broker of another version has none."""
        try:
            return self.cursor(label)
        except CounterMissing:
            return AbsentCursor(self._region, label)

    def __contains__(self, label: str) -> bool:
        return bool((self._labels["label"][: self._used] == label.encode("ascii")).any())

    def __iter__(self) -> Iterator[CounterView]:
        for slot in range(self._used):
            kind, owner, label = (field.decode("ascii") for field in self._labels[slot])
            yield CounterView(slot, label, kind, owner, int(self.words[slot * WORDS_PER_SLOT]))

    def close(self) -> None:
        """Unmap the region; the counters cannot be read afterwards."""
        self.words = np.empty(0, np.int64)
        self._labels = np.empty(0, LABEL_DTYPE)
        self._region.close()
