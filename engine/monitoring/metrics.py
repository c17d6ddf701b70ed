"""A running broker's figures as Prometheus metrics: RocketMQ 5's names where it has them, `rocketmq_ha_*` where not.

Implements: BrokerMetricsManager, DefaultStoreMetricsManager, as far as their figures exist here
Names, units and labels are those that a 5.3.3 broker exports. A figure that is not known is left out, never made up; a
time to catch up that never ends is +Inf.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.monitoring import front_metrics, ha_status, process_metrics
from engine.monitoring.ha_status import CLIENT_STATES, ConnectionStatus, HaStatus
from engine.monitoring.series import COUNTER, GAUGE, OVERFLOW, Histogram, Series, Shown, bounded
from engine.protocol.ha.wire import CODES, CloseReason
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import Failing, failing
from ipc.clock import wall_ms
from store.files.segment_files import SegmentFiles
from store.reading import extent
from store.recovery.log_end import store_timestamp_ms

if TYPE_CHECKING:  # the first request for metrics loads the library: no start waits for it
    from prometheus_client.core import Metric

COMMON_LABELS = ("cluster", "node_id", "node_type")
STORAGE_LABELS, STORAGE = ("storage_medium", "storage_type"), ("disk", "local")
NODE_TYPE = "broker"
SAMPLES_MAX = 50_000  # of one metric: metricsOtelCardinalityLimit's default


class TableSizes(NamedTuple):
    """Figures that only the process that serves the metrics knows: permission, numbers of topics and groups."""

    permission: int
    topics: int
    groups: int
    series: tuple[Shown, ...] = ()
    samples_max: int = SAMPLES_MAX


class Figures:
    """Makes families whose samples all have the broker's labels."""

    def __init__(self, status: HaStatus, samples_max: int = SAMPLES_MAX, broker_id: int = 0) -> None:
        """`broker_id` is its file's, which no promotion changes: a node's series go on. 0 has RocketMQ's label."""
        node = f"{status.broker_name}:{broker_id}" if broker_id else status.broker_name
        self._values, self._samples_max = (status.cluster, node, NODE_TYPE), samples_max

    def family(
        self, kind: str, name: str, what: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
    ) -> Metric:
        """A family with one sample for each (label values, value), and one for all that are too many."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        make = GaugeMetricFamily if kind == GAUGE else CounterMetricFamily
        family = make(name, what, labels=(*COMMON_LABELS, *labels))
        kept, rest = bounded(name, samples, self._samples_max)
        for values, value in kept:
            family.add_metric((*self._values, *values), value)
        if rest is not None:
            common = dict(zip(COMMON_LABELS, self._values, strict=True))
            sample = name if kind == GAUGE else f"{name}_total"
            family.add_sample(sample, {**common, OVERFLOW: "true"}, rest)
        return family

    def histogram(self, of: Histogram) -> Metric:
        """A family of buckets; of too many the rest is left out."""
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(of.name, of.what, labels=(*COMMON_LABELS, *of.labels))
        bounds = [*(f"{bound}.0" for bound in of.bounds), "+Inf"]
        for values, counts, total in of.samples[: self._samples_max]:
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            family.add_metric((*self._values, *values), buckets, float(total))
        return family

    def shown(self, one: Shown) -> Iterator[Metric]:
        """Yield the metric families of a series, a histogram or a function that yields series."""
        if isinstance(one, Histogram):
            yield self.histogram(one)
        else:
            for series in [one] if isinstance(one, Series) else one():
                yield self.family(*series)

    def one(self, kind: str, name: str, what: str, value: float) -> Metric:
        """A family with one sample."""
        return self.family(kind, name, what, (), [((), value)])


def families(store_root: str | os.PathLike[str], sizes: TableSizes) -> Iterator[Metric]:
    """Yield all metrics of the broker that runs on this store. Raises NoBroker."""
    running = extent.require_running(os.fspath(store_root))
    settings, directory = running.settings, running.region_directory
    with closing(BrokerCounters.attach(directory)) as counters:
        status = ha_status.of_running(running, counters, os.fspath(store_root))
        figures = Figures(status, sizes.samples_max, counters.own_broker_id.read())
        files = SegmentFiles(Path(settings["storePathCommitLog"]), int(settings["mappedFileSizeCommitLog"]))
        yield from _broker(figures, sizes)
        yield from _troubles(figures, len(status.problems), failing(counters, directory))
        yield from _storage(figures, counters, files, store_root)
        is_slave = status.role == "SLAVE"
        of_processes = process_metrics.series(running, counters, status.compat, is_slave=is_slave)
        for one in (*of_processes, *sizes.series, *front_metrics.series(counters, is_slave=is_slave)):
            yield from figures.shown(one)
        yield from _ha(figures, status)
        yield from _replicas(figures, status.replicas)
        if status.client is not None:
            yield from _client(figures, status)


def _broker(figures: Figures, sizes: TableSizes) -> Iterator[Metric]:
    yield figures.one(GAUGE, "rocketmq_broker_permission", "Broker permission", sizes.permission)
    yield figures.one(GAUGE, "rocketmq_topic_number", "Active topic number", sizes.topics)
    yield figures.one(GAUGE, "rocketmq_consumer_group_number", "Active subscription group number", sizes.groups)


def _troubles(figures: Figures, problems: int, roles: list[Failing]) -> Iterator[Metric]:
    yield figures.one(GAUGE, "rocketmq_broker_problems", "Number of problems that `slipstream status` shows", problems)
    deaths = [((one.role, "GIVEN_UP" if one.is_given_up else "LOOPING", one.error), float(one.deaths)) for one in roles]
    what = "Deaths within the last minute of a process that dies repeatedly"
    yield figures.family(GAUGE, "rocketmq_broker_failing_role_deaths", what, ("role", "state", "error"), deaths)


def _storage(
    figures: Figures, counters: BrokerCounters, files: SegmentFiles, store_root: str | os.PathLike[str]
) -> Iterator[Metric]:
    disk = os.statvfs(store_root)
    end, start = counters.max_physical_offset.read(), counters.min_physical_offset.read()
    gauges = [
        ("size_bytes", "Broker storage size", (disk.f_blocks - disk.f_bfree) * disk.f_frsize),
        ("flush_behind_bytes", "Broker flush behind bytes", max(0, end - counters.flushed_offset.read())),
        ("dispatch_behind_bytes", "Broker dispatch behind bytes", max(0, end - counters.reput_from_offset.read())),
    ]
    earliest_ms = store_timestamp_ms(files, start) if end > start else None
    if earliest_ms:
        kept_ms = wall_ms() - earliest_ms
        gauges.append(("message_reserve_time_milliseconds", "Broker message reserve time", kept_ms))
    for name, what, value in gauges:
        yield figures.family(GAUGE, f"rocketmq_storage_{name}", what, STORAGE_LABELS, [(STORAGE, value)])


def _ha(figures: Figures, status: HaStatus) -> Iterator[Metric]:
    role = [((status.role, status.compat), 1.0)]
    yield figures.family(GAUGE, "rocketmq_ha_info", "Role and compat of this broker", ("role", "compat"), role)
    behind = status.max_physical_offset - status.push2_slave_max_offset
    for name, what, value in (
        ("max_physical_offset", "End of the log", status.max_physical_offset),
        ("confirm_offset", "End of what the required replicas have", status.confirm_offset),
        ("push2_slave_max_offset", "Highest acknowledgement of a connected slave", status.push2_slave_max_offset),
        ("slave_fall_behind_bytes", "Bytes that no connected slave has acknowledged", max(0, behind)),
        ("in_sync_slaves", "Distinct slaves that are in sync", status.in_sync_slaves),
        ("connected_slaves", "Connections of slaves", len(status.replicas)),
        ("replicas_needed", "Replicas that a put waits for, including the master", status.replicas_needed),
    ):
        yield figures.one(GAUGE, f"rocketmq_ha_{name}", what, value)
    yield figures.one(COUNTER, "rocketmq_ha_acks_rejected", "Rejected acknowledgements", status.acks_rejected)
    sides = (("master", status.ended), ("slave", status.client_ended))
    ended = [
        ((side, name, CODES[CloseReason[name]].value), float(counts[name])) for side, counts in sides for name in counts
    ]
    labels = ("side", "close_reason", "reason")
    yield figures.family(COUNTER, "rocketmq_ha_connections_ended", "Ended connections by reason", labels, ended)


def replica_labels(replicas: list[ConnectionStatus]) -> list[str]:
    """Return the label of each replica in metrics: who it is; where several have the same name, also where they are."""
    called = [one.replica or one.peer for one in replicas]
    return [
        f"{name} at {one.peer}" if called.count(name) > 1 else name for one, name in zip(replicas, called, strict=True)
    ]


def _replicas(figures: Figures, replicas: list[ConnectionStatus]) -> Iterator[Metric]:
    names = replica_labels(replicas)
    states = [((name, one.state, one.reason), 1.0) for name, one in zip(names, replicas, strict=True)]
    labels = ("replica", "state", "reason")
    yield figures.family(GAUGE, "rocketmq_ha_replica_state", "State and reason code of a replica", labels, states)
    for name, what, values in (
        ("lag_bytes", "Bytes of the log not acknowledged", [one.lag_bytes for one in replicas]),
        ("lag_seconds", "Age of the oldest unacknowledged byte", [one.lag_seconds for one in replicas]),
        ("catch_up_seconds", "Time to catch up; +Inf: never at this rate", [*map(_catch_up, replicas)]),
        ("acked_bytes_per_second", "Acknowledged bytes per second", [one.acked_bytes_per_second for one in replicas]),
        ("sent_bytes_per_second", "Sent bytes per second", [one.sent_bytes_per_second for one in replicas]),
        ("ack_offset", "End of the acknowledged log", [one.slave_ack_offset for one in replicas]),
        ("transfer_offset", "End of the sent log", [one.next_transfer_offset for one in replicas]),
        ("in_sync", "1 if the replica is in sync", [float(one.in_sync) for one in replicas]),
        ("silent_seconds", "Time since the last report", [one.silent_seconds for one in replicas]),
        ("connection_acks_rejected", "Rejected acknowledgements", [one.acks_rejected for one in replicas]),
        ("connection_transferred_bytes", "Bytes sent on this connection", [one.transferred_bytes for one in replicas]),
    ):
        samples = [((name,), value) for name, value in zip(names, values, strict=True) if value is not None]
        yield figures.family(GAUGE, f"rocketmq_ha_replica_{name}", what, ("replica",), samples)


def _catch_up(one: ConnectionStatus) -> float | None:
    if one.catch_up_seconds is None and one.acked_bytes_per_second is not None:
        return math.inf
    return one.catch_up_seconds


def _client(figures: Figures, status: HaStatus) -> Iterator[Metric]:
    client = status.client
    assert client is not None
    states = [((client.master, name), float(name == client.state)) for name in CLIENT_STATES.values()]
    yield figures.family(GAUGE, "rocketmq_ha_client_state", "State of the HA client", ("master", "state"), states)
    reason = [((client.master, client.reason_code), 1.0)]
    what = "Why this slave does not follow its master"
    yield figures.family(GAUGE, "rocketmq_ha_client_reason", what, ("master", "reason"), reason)
    received = float(client.transferred_bytes)
    yield figures.one(COUNTER, "rocketmq_ha_client_received_bytes", "Bytes received from the master", received)
    for name, what, value in (
        ("received_bytes_per_second", "Received bytes per second", client.received_bytes_per_second),
        ("silent_seconds", "Time since the master's last bytes", client.silent_seconds),
    ):
        if value is not None:
            yield figures.one(GAUGE, f"rocketmq_ha_client_{name}", what, value)
