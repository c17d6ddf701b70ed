"""What this broker's topics were given and its groups took, over a minute, an hour and a day.

Implements: BrokerStatsManager; BrokerStats' counts of yesterday and today
Follows:    the topic table, the fronts' words, what fronts say of pulls (question `pulled`)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.protocol.remoting.answers import Json
from engine.protocol.store.put_rates import ROCKETMQ_WINDOWS_S, SAMPLE_MS, SAMPLES
from engine.protocol.store.stats_items import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    Stats,
    StatsItems,
)
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.topic_table import TopicTable
from ipc.clock import wall_ms
from ipc.errors import IpcError

NO_RATE = "0.0"


class Sample(NamedTuple):
    """The counts of what consumers got up to a moment, since the broker's start."""

    time_ms: int
    messages: int
    pulls: int
    found_pulls: int


def is_due(samples: deque[Sample], now_ms: int) -> bool:
    """Whether it is time for another one."""
    return not samples or now_ms - samples[-1].time_ms >= SAMPLE_MS


class BrokerStats:
    """Statistics of one broker; `turn` samples them."""

    def __init__(self, counters: BrokerCounters, directory: Path, cluster: str) -> None:
        self._counters, self._directory, self._cluster = counters, directory, cluster
        self._items = StatsItems()
        self._topics: TopicTable | None = None
        self._pulls = np.array([front.pulls.index for front in counters.fronts])  # of counters
        self._pulled_messages = np.array([front.pulled_messages.index for front in counters.fronts])
        self._day = self._pulled = 0
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.put_morning = self.get_morning = self.put_yesterday = self.get_yesterday = 0

    def turn(self, now_ms: int) -> None:
        """Take the samples that are due."""
        if is_due(self._samples, now_ms):
            pulls = int(self._counters.region.words[self._pulls].sum())
            since_ms = now_ms - self._samples[-1].time_ms if self._samples else 0
            missed = min(since_ms // SAMPLE_MS, SAMPLES)  # one a second is counted on; a quiet broker looks less often
            for ago in reversed(range(max(1, missed))):
                self._samples.append(Sample(now_ms - ago * SAMPLE_MS, self.get_total, pulls, self._pulled))
        if not self._items.is_due(now_ms):
            return
        try:
            self._topics = self._topics or TopicTable.attach(self._directory)
        except IpcError:
            return  # the broker is starting or stopping
        for count in self._topics.read():
            self._items.set(TOPIC_PUT_NUMS, count.topic, count.messages, count.messages)
            self._items.set(TOPIC_PUT_SIZE, count.topic, count.bytes, count.messages)
        puts, gets = self.put_total, self.get_total
        self._items.set(BROKER_PUT_NUMS, self._cluster, puts, puts)
        self._items.set(BROKER_GET_NUMS, self._cluster, gets, gets)
        self._items.sample(now_ms)
        self._note_day(puts, gets)

    def _note_day(self, puts: int, gets: int) -> None:
        day = datetime.fromtimestamp(wall_ms() / 1000).toordinal()
        if self._day and day != self._day:
            self.put_yesterday, self.get_yesterday = self.put_morning, self.get_morning
            self.put_morning, self.get_morning = puts, gets
        self._day = day

    @property
    def put_total(self) -> int:
        """Messages put since the broker's start."""
        return self._counters.put_messages.read()

    @property
    def get_total(self) -> int:
        """Messages given to consumers since then."""
        return int(self._counters.region.words[self._pulled_messages].sum())

    def close(self) -> None:
        """Unmap the topic table, if samples were taken from it."""
        if self._topics is not None:
            self._topics.close()

    def figures(self, transferred_key: str) -> dict[str, str]:
        """RocketMQ's runtime figures of what was put and got."""
        return {
            transferred_key: self._rates(lambda one: one.messages),
            "getTotalTps": self._rates(lambda one: one.pulls, before=NO_RATE),
            "getFoundTps": self._rates(lambda one: one.found_pulls),
            "getMissTps": self._rates(lambda one: one.pulls - one.found_pulls),
            "msgPutTotalYesterdayMorning": str(self.put_yesterday),
            "msgPutTotalTodayMorning": str(self.put_morning),
            "msgGetTotalYesterdayMorning": str(self.get_yesterday),
            "msgGetTotalTodayMorning": str(self.get_morning),
            "msgGetTotalTodayNow": str(self.get_total),
        }

    def _rates(self, count: Callable[[Sample], int], *, before: str = "") -> str:
        """Over 10, 60 and 600 seconds; `before` there are samples of such a time."""
        rates = []
        for seconds in ROCKETMQ_WINDOWS_S:
            if len(self._samples) <= seconds:
                rates.append(before)
                continue
            begin, end = self._samples[-1 - seconds], self._samples[-1]
            elapsed_ms = end.time_ms - begin.time_ms
            rates.append(str(max(0.0, 1000 * (count(end) - count(begin)) / elapsed_ms)) if elapsed_ms else NO_RATE)
        return " ".join(rates)

    def pulled(self, fields: Json) -> None:
        """Count what a front pulled since its last report: by topic@group messages and bytes."""
        for key, (messages, size, pulls) in fields["pulled"].items():
            self._pulled += pulls
            self._items.add(GROUP_GET_NUMS, key, messages)
            self._items.add(GROUP_GET_SIZE, key, size)

    def put_tps(self, topic: str) -> float:
        """Return messages a second of a topic, like tpsTopicPutNums."""
        return self._items.tps(TOPIC_PUT_NUMS, topic)

    def get_tps(self, group: str, topic: str) -> float:
        """Return messages a second that a group took of a topic, like tpsGroupGetNums."""
        return self._items.tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def got(self) -> Iterator[tuple[str, str, int, int]]:
        """Topic, group, messages and bytes of whatever was taken since the broker's start."""
        for key, messages in self._items.values(GROUP_GET_NUMS):
            topic, _at, group = key.partition("@")
            yield topic, group, messages, self._items.value(GROUP_GET_SIZE, key)

    def spans(self, name: str, key: str) -> tuple[Stats, Stats, Stats] | None:
        """Return an item's minute, hour and day, like getStatsItem; None where it is not counted."""
        return self._items.spans(name, key)
