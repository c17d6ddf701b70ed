"""What was put into a running broker: counts, rates, latencies, topics. Read from shared memory; no process is asked.

Implements: StoreStatsService, as its readers see it (spec: remoting, GET_BROKER_RUNTIME_INFO)
Latencies are counted by the producers, in HDR's buckets of shared memory.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from engine.protocol.store.put_rates import DISTRIBUTION_NAMES, WINDOWS_S, Rate, Sample, Totals, rate, runtime_info
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.latencies import Latencies, latencies_of, sum_of_rings, value_at_percentile
from engine.shared_memory.put_samples import read_samples, totals_of
from engine.shared_memory.topic_table import TopicCount, TopicTable
from ipc.clock import monotonic_ms, wall_ms
from store.reading import extent

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)


@dataclass(frozen=True)
class LatencyStats:
    """The latencies of answered puts, in microseconds; percentiles by their names, as "99.9"."""

    puts: int
    mean_us: float
    max_us: int
    percentiles_us: dict[str, int]
    distribution: dict[str, int]


@dataclass(frozen=True)
class StoreStats:
    """The figures of `slipstream stats`; counts since the broker's start, rates by their windows, as "10s"."""

    store: str
    broker_name: str
    role: str
    boot_ms: int
    now_ms: int
    put_messages: int
    put_bytes: int
    put_refused: int
    rates: dict[str, Rate]
    latency: LatencyStats
    topics: list[TopicCount]
    dispatch_behind_bytes: int
    runtime_info: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values for json.dumps."""
        plain = asdict(self)
        plain["rates"] = {window: rate._asdict() for window, rate in self.rates.items()}
        plain["topics"] = {topic.topic: {"messages": topic.messages, "bytes": topic.bytes} for topic in self.topics}
        return plain


def latency_stats(latencies: Latencies) -> LatencyStats:
    """Percentiles and the rest. A value's bucket is one percent wide at most; the longest put is exact."""
    puts = latencies.puts
    return LatencyStats(
        puts=puts,
        mean_us=latencies.sum_us / puts if puts else 0.0,
        max_us=latencies.max_us,
        percentiles_us={
            f"{percentile:g}": min(value_at_percentile(latencies.counts, percentile), latencies.max_us)
            for percentile in PERCENTILES
        },
        distribution=dict(zip(DISTRIBUTION_NAMES, latencies.distribution, strict=True)),
    )


def stats(store_root: str | os.PathLike[str]) -> StoreStats:
    """Return the put figures of the broker that runs on this store. Raises NoBroker."""
    running = extent.require_running(os.fspath(store_root))
    counters, topics = BrokerCounters.attach(running.region_directory), TopicTable.attach(running.region_directory)
    try:
        sampled, now_ms = read_samples(running.region_directory), monotonic_ms()
        is_slave = running.settings["brokerRole"] == "SLAVE"
        messages, size = totals_of(counters, topics, is_slave=is_slave)
        now = Sample(now_ms, messages, size)
        latencies, refused = latencies_of(sum_of_rings(running.region_directory)), counters.put_refused.read()
        behind = max(0, counters.max_physical_offset.read() - counters.reput_from_offset.read())
        p99, p999 = (value_at_percentile(sampled.minute.counts, percentile) / 1000 for percentile in (99, 99.9))
        totals = Totals(messages, size, refused, latencies.max_us // 1000, sampled.minute.distribution, p99, p999)
        return StoreStats(
            store=os.fspath(store_root),
            broker_name=str(running.settings["brokerName"]),
            role=str(running.settings["brokerRole"]),
            boot_ms=sampled.boot_ms,
            now_ms=wall_ms(),
            put_messages=messages,
            put_bytes=size,
            put_refused=refused,
            rates={f"{window}s": rate(sampled.samples, now, window) for window in WINDOWS_S},
            latency=latency_stats(latencies),
            topics=topics.read(),
            dispatch_behind_bytes=behind,
            runtime_info=runtime_info(totals, sampled.samples, sampled.boot_ms, now_ms - sampled.began_ms, behind),
        )
    finally:
        counters.region.close()
        topics.close()
