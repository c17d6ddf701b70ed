"""A running broker looked at again and again, from shared memory alone: what live views show. No process is asked.

Regions are mapped once; a look costs copies of words. What may be very much (topics, groups) is read as seldom as keeps
its cost below `SHARE` of a core.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from engine.monitoring import ha_status
from engine.monitoring.client_status import FrontStatus, fronts_of
from engine.monitoring.finding import Finding
from engine.monitoring.ha_status import BROKER_STATES, HaStatus
from engine.monitoring.live.groups import GroupFigures, LiveGroups
from engine.monitoring.live.queues import LiveQueues, LiveTopics, TopicFigures
from engine.monitoring.live.rings import LiveRings, PutTimes, RingFigures
from engine.monitoring.live.roles import LiveRoles, RoleFigures
from engine.protocol.ha.rates import HaSample
from engine.protocol.store.put_rates import Rate, Sample, rate
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.ha_samples import read_ha_samples, sample_now
from engine.shared_memory.put_samples import Sampled, read_samples, totals_of
from engine.shared_memory.topic_table import TopicTable
from ipc.clock import monotonic_ms
from ipc.errors import RegionMissing
from store.errors import NoBroker
from store.reading import extent

SHARE = 0.02
CURVE_SAMPLES = 600  # one a second
Figures = TypeVar("Figures")


class Stage(NamedTuple):
    """A stage of the pipeline: how far it came, and how many bytes behind the log's end."""

    name: str
    offset: int
    behind: int


@dataclass(frozen=True)
class Look:
    """Figures of one look at a broker."""

    store: str
    broker_name: str
    up_seconds: float
    replication: HaStatus
    findings: list[Finding]
    stages: list[Stage]
    log_bytes: int
    rate: Rate
    times: PutTimes
    fronts: list[FrontStatus]
    topics: list[TopicFigures]
    groups: list[GroupFigures]
    groups_are_whole: bool
    rings: list[RingFigures]
    roles: list[RoleFigures]
    puts_curve: list[float] = field(default_factory=list)  # messages a second, one a sample, oldest first
    lag_curves: dict[int, list[int]] = field(default_factory=dict)  # bytes, by slot
    received_curve: list[float] = field(default_factory=list)  # bytes a second, of a slave


class Paced(Generic[Figures]):
    """Figures that are read again once their last reading has been paid for."""

    def __init__(self, first: Figures) -> None:
        self._value, self._due_ns, self._is_new = first, 0, True

    def of(self, take: Callable[[], Figures], *, at_once: bool) -> Figures:
        """Return the newest figures: `take` is called again once its share of CPU time allows, or `at_once`."""
        now_ns = time.monotonic_ns()
        if at_once or now_ns >= self._due_ns:
            began_ns = time.thread_time_ns()
            self._value = take()
            if not self._is_new:  # what the first reading costs, as loading compiled code, comes once
                self._due_ns = now_ns + int((time.thread_time_ns() - began_ns) / SHARE)
            self._is_new = False
        return self._value


class LagCurves:
    """Samples of replication, one a second: a minute of them is in shared memory, longer ago is remembered here."""

    def __init__(self) -> None:
        self._samples: deque[HaSample] = deque(maxlen=CURVE_SAMPLES)

    def take(self, samples: list[HaSample]) -> None:
        """Append the samples newer than the last one kept."""
        last_ms = self._samples[-1].time_ms if self._samples else -1
        self._samples.extend(sample for sample in samples if sample.time_ms > last_ms)

    def of_slot(self, slot: int, connected_at_ms: int) -> list[int]:
        """The lag in bytes, over the connection that is there now."""
        return [
            max(0, sample.max_physical_offset - sample.slots[slot].slave_ack_offset)
            for sample in self._samples
            if sample.slots[slot].connected_at_ms == connected_at_ms and sample.slots[slot].slave_ack_offset >= 0
        ]

    def received(self) -> list[float]:
        """Return the bytes a second that a slave received."""
        samples = list(self._samples)
        return [
            max(0.0, (after.received_bytes - before.received_bytes) * 1000 / (after.time_ms - before.time_ms))
            for before, after in zip(samples, samples[1:], strict=False)
            if after.time_ms > before.time_ms
        ]


def puts_curve(samples: list[Sample]) -> list[float]:
    """Messages a second between samples."""
    return [
        max(0.0, (after.messages - before.messages) * 1000 / (after.time_ms - before.time_ms))
        for before, after in zip(samples, samples[1:], strict=False)
        if after.time_ms > before.time_ms
    ]


class LiveBroker:
    """A running broker with its regions mapped; a context manager. Raises NoBroker."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = os.fspath(store)
        self._running = extent.require_running(self.store)
        try:
            self._attach(self._running.region_directory)
        except RegionMissing:
            raise NoBroker(self.store) from None  # it has ended between the two

    def _attach(self, directory: Path) -> None:
        self._directory = directory
        self._counters = BrokerCounters.attach(directory)
        self.queues = LiveQueues(directory)
        self._topics, self.groups = LiveTopics(directory, self.queues), LiveGroups(directory, self.queues)
        self._totals = TopicTable.attach(directory)
        self._roles, self._curves = LiveRoles(self._running.pid), LagCurves()
        self._is_slave = self._running.settings["brokerRole"] == "SLAVE"
        self._rings = None if self._is_slave else LiveRings(directory, int(self._running.settings["ringSizeInBytes"]))
        self._paced_topics: Paced[list[TopicFigures]] = Paced([])
        self._paced_groups: Paced[list[GroupFigures]] = Paced([])

    def look(self, *, at_once: bool = False) -> Look:
        """Return the broker's figures; `at_once` computes them all, at any cost. Raises NoBroker once it has ended."""
        self._follow()
        counters, now_ms = self._counters, monotonic_ms()
        try:
            replication = ha_status.of_running(self._running, counters, self.store)
            self._curves.take(read_ha_samples(self._directory))
            sampled = read_samples(self._directory)
            times = PutTimes(0, 0, 0) if self._rings is None else self._rings.times()
        except RegionMissing:
            raise NoBroker(self.store) from None
        end = counters.max_physical_offset.read()
        return Look(
            store=self.store,
            broker_name=replication.broker_name,
            up_seconds=max(0.0, (now_ms - sampled.began_ms) / 1000),
            replication=replication,
            findings=replication.findings,
            stages=self._stages(end),
            log_bytes=max(0, end - counters.min_physical_offset.read()),
            rate=self._rate(sampled, now_ms),
            times=times,
            fronts=fronts_of(counters),
            topics=self._paced_topics.of(lambda: self._topics.take(now_ms), at_once=at_once),
            groups=self._paced_groups.of(lambda: self.groups.take(now_ms), at_once=at_once),
            groups_are_whole=self.groups.is_whole,
            rings=[] if self._rings is None else self._rings.take(now_ms, counters),
            roles=self._roles.take(counters),
            puts_curve=puts_curve(sampled.samples),
            lag_curves=self._lag_curves(now_ms),
            received_curve=self._curves.received() if self._is_slave else [],
        )

    def _follow(self) -> None:
        """The broker that runs now: another one where it was started again, in another role after a promotion."""
        now, known = extent.require_running(self.store), self._running
        if (now.token, now.settings) == (known.token, known.settings):
            return
        self.close()
        self._running = now
        try:
            self._attach(now.region_directory)
        except RegionMissing:
            raise NoBroker(self.store) from None

    @property
    def address(self) -> str:
        """Return the host and port at which the broker serves clients."""
        return str(self._running.settings["storeHost"])

    @property
    def state(self) -> str:
        """Return the broker's state by its name in BROKER_STATES."""
        return BROKER_STATES.get(self._counters.broker_state.read(), "UNKNOWN")

    def _stages(self, end: int) -> list[Stage]:
        counters = self._counters
        cursors = [("flushed", counters.flushed_offset), ("dispatched", counters.reput_from_offset)]
        if not self._is_slave:
            cursors.append(("confirmed", counters.confirm_offset))
        offsets = [(name, cursor.read()) for name, cursor in cursors]
        return [Stage("appended", end, 0), *(Stage(name, at, max(0, end - at)) for name, at in offsets)]

    def _rate(self, sampled: Sampled, now_ms: int) -> Rate:
        messages, size = totals_of(self._counters, self._totals, is_slave=self._is_slave)
        return rate(sampled.samples, Sample(now_ms, messages, size), 10)

    def _lag_curves(self, now_ms: int) -> dict[int, list[int]]:
        now = sample_now(self._counters, now_ms)
        return {
            slot: self._curves.of_slot(slot, of.connected_at_ms)
            for slot, of in enumerate(now.slots)
            if self._counters.ha[slot].state.read()
        }

    def close(self) -> None:
        """Unmap all regions that were attached."""
        for one in (self._topics, self.groups, self.queues, self._totals, self._rings, self._counters.region):
            if one is not None:
                one.close()

    def __enter__(self) -> LiveBroker:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
