"""Sums and rates of what is counted by a name and a key, over the last minute, hour and day: pure, the clock passed in.

Implements: StatsItem, StatsItemSet, BrokerStatsManager's names
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

SECONDS_MS, MINUTES_MS, HOUR_MS = 10_000, 600_000, 3_600_000
KEPT_OF_MINUTE = KEPT_OF_HOUR = 7
KEPT_OF_DAY = 25
ITEMS_MAX = 20_000
TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"


class Snapshot(NamedTuple):
    """The counts up to a moment."""

    time_ms: int
    value: int
    times: int


class Stats(NamedTuple):
    """Sum and rates over one span."""

    sum: int
    tps: float
    avgpt: float


class _Span:
    """Snapshots of one length apart."""

    __slots__ = ("every_ms", "snapshots")

    def __init__(self, every_ms: int, kept: int) -> None:
        self.every_ms = every_ms
        self.snapshots: deque[Snapshot] = deque(maxlen=kept)

    def take(self, now: Snapshot) -> None:
        if not self.snapshots:
            self.snapshots.append(Snapshot(now.time_ms - self.every_ms, 0, 0))
        elif now.time_ms - self.snapshots[-1].time_ms < self.every_ms:
            return
        self.snapshots.append(now)

    @property
    def stats(self) -> Stats:
        if not self.snapshots:
            return Stats(0, 0.0, 0.0)
        first, last = self.snapshots[0], self.snapshots[-1]
        total, times = last.value - first.value, last.times - first.times
        elapsed_ms = last.time_ms - first.time_ms
        return Stats(total, total * 1000.0 / elapsed_ms if elapsed_ms else 0.0, total / times if times > 0 else 0.0)


class _Item:
    """Counts of one key under one name."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = self.times = 0
        self.minute = _Span(SECONDS_MS, KEPT_OF_MINUTE)
        self.hour = _Span(MINUTES_MS, KEPT_OF_HOUR)
        self.day = _Span(HOUR_MS, KEPT_OF_DAY)


class StatsItems:
    """All of them; ITEMS_MAX at most: what comes later is not counted."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], _Item] = {}
        self._sampled_ms: int | None = None

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        """Add a value to an item, if the table has room for it."""
        item = self._item(name, key)
        if item is not None:
            item.value += value
            item.times += times

    def set(self, name: str, key: str, value: int, times: int) -> None:
        """Note what somebody else counted since the beginning; a count that begins anew counts on."""
        item = self._item(name, key)
        if item is not None:
            item.value, item.times = max(item.value, value), max(item.times, times)

    def _item(self, name: str, key: str) -> _Item | None:
        item = self._items.get((name, key))
        if item is None and len(self._items) < ITEMS_MAX:
            item = self._items[name, key] = _Item()
        return item

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a sample."""
        return self._sampled_ms is None or now_ms - self._sampled_ms >= SECONDS_MS

    def sample(self, now_ms: int) -> None:
        """Take a sample of every item."""
        self._sampled_ms = now_ms
        for item in self._items.values():
            now = Snapshot(now_ms, item.value, item.times)
            for span in (item.minute, item.hour, item.day):
                span.take(now)

    def forget(self, is_gone: frozenset[str]) -> None:
        """Drop the items of those keys."""
        for name, key in [each for each in self._items if each[1] in is_gone]:
            del self._items[name, key]

    def tps(self, name: str, key: str) -> float:
        """A second, over the last minute."""
        item = self._items.get((name, key))
        return 0.0 if item is None else item.minute.stats.tps

    def value(self, name: str, key: str) -> int:
        """Return the sum since the beginning."""
        item = self._items.get((name, key))
        return 0 if item is None else item.value

    def values(self, name: str) -> Iterator[tuple[str, int]]:
        """Return every key of a name, and what was counted since the beginning."""
        return ((key, item.value) for (of, key), item in list(self._items.items()) if of == name)

    def spans(self, name: str, key: str) -> tuple[Stats, Stats, Stats] | None:
        """Minute, hour, day; None of what was never counted."""
        item = self._items.get((name, key))
        return None if item is None else (item.minute.stats, item.hour.stats, item.day.stats)
