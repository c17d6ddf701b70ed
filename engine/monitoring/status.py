"""One snapshot of a running broker, from its counters alone: no process is asked. All views show this."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from engine.monitoring import ha_status
from engine.monitoring.client_status import FrontStatus, fronts_of, services_of
from engine.monitoring.finding import Verdict, stalled
from engine.monitoring.ha_status import BROKER_STATES, ClientStatus, ConnectionStatus
from engine.monitoring.store_stats import StoreStats, stats
from engine.shared_memory.cursors import ROLES, SENDERS, BrokerCounters
from ipc.clock import monotonic_ms
from store.reading import extent
from store.reading.history import History

CPU_SAMPLE_SECONDS = 0.2
TURNING, STALLED = "RUNNING", "STALLED"  # of a process


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the broker; memory in bytes, CPU in percent of one core."""

    role: str
    pid: int
    restarts: int
    heartbeat_age_seconds: float | None
    cpu_percent: float
    rss_bytes: int
    pss_bytes: int
    state: str = TURNING


@dataclass(frozen=True)
class PutStatus:
    """The short form of `slipstream stats`: messages a second over the windows, how long the answered puts took."""

    messages: int
    messages_per_second: dict[str, float]
    p50_us: int
    p99_us: int
    bytes_per_second: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """Snapshot that `slipstream status` prints or exports."""

    store: str
    broker_name: str
    role: str
    flush_disk_type: str
    state: str
    pid: int
    ha_listen_port: int
    cursors: dict[str, int]
    connections: list[ConnectionStatus] = field(default_factory=list)
    client: ClientStatus | None = None
    processes: list[ProcessStatus] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    puts: PutStatus | None = None
    history: History | None = None
    fronts: list[FrontStatus] = field(default_factory=list)
    services: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[dict[str, str]] = field(default_factory=list)
    in_sync_slaves: int = 0
    replicas_needed: int = 1
    up_seconds: float | None = None
    verdict: str = Verdict.WELL.name

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as plain values for json.dumps."""
        return asdict(self)


def snapshot(
    store_root: str | os.PathLike[str], *, cpu_sample_seconds: float = CPU_SAMPLE_SECONDS, with_pss: bool = True
) -> Status:
    """The broker that runs on this store, now. Raises NoBroker.

    To add up what of its memory each process has for itself (PSS) takes seconds where there are very many queues.
    """
    running = extent.require_running(os.fspath(store_root))
    counters = BrokerCounters.attach(running.region_directory)
    settings = running.settings
    try:
        replication = ha_status.of_running(running, counters, os.fspath(store_root))
        figures = stats(store_root)
        return Status(
            store=os.fspath(store_root),
            broker_name=str(settings["brokerName"]),
            role=str(settings["brokerRole"]),
            flush_disk_type=str(settings["flushDiskType"]),
            state=BROKER_STATES.get(counters.broker_state.read(), "UNKNOWN"),
            pid=running.pid,
            ha_listen_port=counters.ha_listen_port.read(),
            cursors={of.label: counters.region.cursor_or_absent(of.label).read() for of in BrokerCounters.plain()},
            connections=replication.replicas,
            client=replication.client,
            processes=_processes(counters, running.pid, cpu_sample_seconds, with_pss=with_pss),
            problems=replication.problems,
            puts=_puts(figures),
            history=replication.history,
            fronts=fronts_of(counters),
            services=services_of(counters),
            findings=[one.to_json() for one in replication.findings],
            verdict=replication.verdict,
            in_sync_slaves=replication.in_sync_slaves,
            replicas_needed=replication.replicas_needed,
            up_seconds=max(0.0, (figures.now_ms - figures.boot_ms) / 1000),
        )
    finally:
        counters.region.close()


def _puts(figures: StoreStats) -> PutStatus:
    rates = {window: rate.messages for window, rate in figures.rates.items()}
    sizes = {window: rate.bytes for window, rate in figures.rates.items()}
    percentiles = figures.latency.percentiles_us
    return PutStatus(figures.put_messages, rates, percentiles["50"], percentiles["99"], sizes)


def _processes(
    counters: BrokerCounters, supervisor_pid: int, cpu_sample_seconds: float, *, with_pss: bool
) -> list[ProcessStatus]:
    pids = {"supervisor": supervisor_pid}
    pids.update({role: counters.pids[role].read() for role in (*ROLES, *SENDERS) if counters.pids[role].read() > 0})
    handles = {}
    for role, pid in pids.items():
        try:
            handles[role] = psutil.Process(pid)
            handles[role].cpu_percent()
        except psutil.NoSuchProcess:
            continue
    psutil.cpu_percent(interval=cpu_sample_seconds)
    now_ms, silent = monotonic_ms(), stalled(counters)
    rows = []
    for role, handle in handles.items():
        beat_ms = counters.heartbeats[role].read() if role in counters.heartbeats else 0
        try:
            memory = handle.memory_full_info() if with_pss else handle.memory_info()
            rows.append(
                ProcessStatus(
                    role=role,
                    pid=handle.pid,
                    restarts=counters.restarts[role].read() if role in counters.restarts else 0,
                    heartbeat_age_seconds=max(0.0, (now_ms - beat_ms) / 1000) if beat_ms else None,
                    cpu_percent=handle.cpu_percent(),
                    rss_bytes=memory.rss,
                    pss_bytes=memory.pss if with_pss else 0,
                    state=STALLED if role in silent else TURNING,
                )
            )
        except psutil.Error:  # gone since, or another user's
            continue
    return rows
