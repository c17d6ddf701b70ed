"""Rows of offsets of `engine.shared_memory.clients.client_table`, very many of them, by topic and group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

import numpy as np

from ipc.arrays import Words

NONE = -(1 << 63)


class OffsetRow(IntEnum):
    """Words of a row in the table of offsets."""

    OFFSET = 0
    TOPIC_AND_GROUP = 1
    QUEUE_ID = 2
    WORDS = 3


class NewRows:
    """Rows that nobody has, written together."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._queue_ids: list[int] = []
        self._offsets: list[int] = []
        self._names: list[int] = []  # topic and group as a word
        self._counts: list[int] = []  # of them, how many rows

    def add(self, names: int, numbers: list[int], offsets: Mapping[int, int]) -> None:
        """Add one row for each offset, by queue id."""
        self._numbers += numbers
        self._queue_ids += offsets
        self._offsets += offsets.values()
        self._names.append(names)
        self._counts.append(len(numbers))

    def write(self, words: Words, first: int) -> None:
        """The first row is at that word. What makes them count is written last."""
        at = first + np.array(self._numbers, np.int64) * OffsetRow.WORDS
        words[at + OffsetRow.TOPIC_AND_GROUP] = np.repeat(np.array(self._names, np.int64), self._counts)
        words[at + OffsetRow.QUEUE_ID] = self._queue_ids
        words[at] = np.maximum(np.array(self._offsets, np.int64), NONE + 1)


def by_topic_and_group(rows: Words) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield topic and group as one word, their queue ids and their rows' numbers, ordered by first row.
    Rows without an offset are left out.
    """
    used = np.flatnonzero(rows[:, OffsetRow.OFFSET] != NONE)
    ordered = used[np.argsort(rows[used, OffsetRow.TOPIC_AND_GROUP], kind="stable")]
    words = rows[ordered, OffsetRow.TOPIC_AND_GROUP]
    starts = np.flatnonzero(np.diff(words, prepend=-1)) if len(words) else words
    ends = np.append(starts[1:], len(ordered))
    by_first = np.argsort(ordered[starts])
    numbers, queue_ids = ordered.tolist(), rows[ordered, OffsetRow.QUEUE_ID].tolist()
    of_parts = (column[by_first].tolist() for column in (words[starts], starts, ends))
    for word, start, end in zip(*of_parts, strict=True):
        yield word, queue_ids[start:end], numbers[start:end]
