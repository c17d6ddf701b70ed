"""The page on scale, multiplied from measured costs: `python -m tools.dev.docs.scale > docs/scale.md`.

`FLEET` is what is asked about; the costs are those of `make bench ARGS="planning scale-costs"` in docs/benchmarks.json.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from spark_bridge.plan.planner import SPLITS_PER_CPU
from spark_bridge.records.reader import SEGMENTS_KEPT_MAX
from spark_bridge.split.leases import LEASES_HELD_MAX
from spark_bridge.stream.tail import MAPPED_MAX
from store.upkeep.leases import LEASES_MAX, RENEWED_EACH
from tools.dev.bench import ledger
from tools.dev.bench.works.reads import planning, scale_costs
from tools.dev.docs.benchmarks import KEPT
from tools.dev.docs.tables import table

GB, TB, GIB, DAY_S = 1e9, 1e12, 1 << 30, 86_400
LEASE_S, REGISTER_S = 120, 30  # leaseSeconds, registerNameServerPeriod
HEAD = """# At scale

This page says which resource is exhausted first in a large cluster. `python -m tools.dev.docs.scale > docs/scale.md`
writes it from measured costs, which `make bench ARGS="planning scale-costs"` measures again. The costs were measured
on one machine; their product was not measured.

"""


@dataclass(frozen=True)
class Fleet:
    """The fleet that is asked about. A log's bytes count once, however many replicas it has."""

    brokers: int = 100
    replicas: int = 2
    hosts: int = 100
    executors: int = 1000  # of one core each
    log_bytes: float = 100 * TB
    segment_bytes: int = GIB
    topic_share: float = 0.01
    link_bytes_s: float = 1.25 * GB  # 10 Gbit/s a host
    memory_bytes: float = 256 * GIB  # a host's
    retention_days: float = 7
    peak: float = 5  # times the mean rate


class Need(NamedTuple):
    """One line: what is needed, how it is worked out, and how much it is."""

    what: str
    how: str
    figure: str


FLEET = Fleet()


class Costs:
    """The measured costs. Raises SystemExit with what to type where they are not in the ledger."""

    def __init__(self, works: list[dict[str, Any]]) -> None:
        figures = [figure for one in works if one["work"] in ("planning", "scale-costs") for figure in one["figures"]]
        self._values = {figure["work"]: float(figure["value"]) for figure in figures}

    def of(self, name: str) -> float:
        """The value of a figure."""
        if name not in self._values:
            raise SystemExit(f"no figure {name!r} in {KEPT}; make bench ARGS='planning scale-costs'")
        return self._values[name]


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / GB:,.2f} GB/s" if bytes_s >= GB else f"{bytes_s / 1e6:,.1f} MB/s"


def remote_share(fleet: Fleet) -> float:
    """Return the share of tasks, placed anywhere, on a host without a replica of what they read."""
    return 1 - fleet.replicas / fleet.hosts


def scan(fleet: Fleet, costs: Costs, share: float = 1.0) -> dict[str, tuple[str, float]]:
    """Seconds that a read of so much of the log takes of each resource, had it that one alone; and how."""
    size = fleet.log_bytes * share
    core, disk = costs.of(scale_costs.BODY_RATE) * 1e6, costs.of(scale_costs.DISK_RATE) * 1e6
    # Ranges do not cross segments; queues are cut into as many parts as are asked for: minPartitions.
    tasks = fleet.log_bytes / fleet.segment_bytes if share == 1 else float(SPLITS_PER_CPU * fleet.executors)
    task_s = costs.of(scale_costs.TASK) / 1000
    remote = remote_share(fleet)
    return {
        "executors' cores": (f"{_rate(core)} a core, {fleet.executors:,} cores", size / core / fleet.executors),
        "disks": (f"{_rate(disk)} a disk, {fleet.hosts} hosts", size / disk / fleet.hosts),
        "network": (
            f"{remote:.0%} of the bytes, {_rate(fleet.link_bytes_s)} a host",
            remote * size / fleet.link_bytes_s / fleet.hosts,
        ),
        "tasks": (f"{tasks:,.0f} tasks of {task_s * 1000:,.0f} ms", tasks * task_s / fleet.executors),
    }


def first_to_give_out(times: dict[str, tuple[str, float]]) -> str:
    """The resource that takes the longest."""
    return max(times, key=lambda name: times[name][1])


def _planning(costs: Costs) -> Iterator[tuple[str, str, str]]:
    for kind in planning.KINDS:
        seconds, mib = costs.of(f"planning: {kind}"), costs.of(f"memory of planning: {kind}")
        yield kind, f"{seconds:,.1f} s", f"{mib:,.0f} MiB"


def _others(fleet: Fleet, costs: Costs) -> Iterator[Need]:
    segments = fleet.log_bytes / fleet.segment_bytes
    a_host, mean = fleet.executors / fleet.hosts, fleet.log_bytes / (fleet.retention_days * DAY_S * fleet.brokers)
    cached = fleet.hosts * fleet.memory_bytes / fleet.log_bytes
    leases = min(fleet.executors, fleet.executors * LEASES_HELD_MAX / fleet.brokers)
    yield Need(
        "page cache",
        f"{fleet.hosts} hosts of {fleet.memory_bytes / GIB:,.0f} GiB, against the log",
        f"{min(cached, 1):.0%} of it, where each byte is read on one host; half where on two",
    )
    yield Need("a broker's puts", f"the log, kept for {fleet.retention_days:g} days", f"{_rate(mean)}, mean")
    copies = f"{fleet.replicas - 1} copy, {fleet.peak:g} times the mean" if fleet.replicas == 2 else "copies"
    yield Need("network for replication", copies, f"{_rate(mean * fleet.peak * (fleet.replicas - 1))} a broker")
    yield Need("a new slave", "its log over one link", _time(fleet.log_bytes / fleet.brokers / fleet.link_bytes_s))
    yield Need(
        "leases in a store",
        f"{LEASES_HELD_MAX} at most that each executor holds, over {fleet.brokers} stores",
        f"{leases:,.0f} of {LEASES_MAX:,} that are checked",
    )
    yield Need(
        "renewals of leases",
        f"each after {LEASE_S / RENEWED_EACH:g} s",
        f"{leases * RENEWED_EACH / LEASE_S:,.1f} a second and store",
    )
    yield Need(
        "segments mapped on a host",
        f"{a_host:,.0f} executors, {SEGMENTS_KEPT_MAX} each",
        f"{a_host * SEGMENTS_KEPT_MAX:,.0f} maps, twice as many descriptors",
    )
    yield Need(
        "segments mapped and let go",
        f"each once, {costs.of(scale_costs.MAPPED):,.0f} us",
        _time(segments * costs.of(scale_costs.MAPPED) / 1e6 / fleet.executors) + " an executor",
    )
    yield Need("a stream's driver", "maps of queues' files", f"{MAPPED_MAX} a store at most; other queues are read")
    yield Need(
        "requests to a name server",
        f"brokers and slaves each {REGISTER_S} s; a plan asks once",
        f"{fleet.brokers * fleet.replicas / REGISTER_S:,.1f} a second",
    )


def _read(fleet: Fleet, costs: Costs, what: str, share: float) -> str:
    times = scan(fleet, costs, share)
    slowest = first_to_give_out(times)
    rows = [(name, how, _time(seconds)) for name, (how, seconds) in times.items()]
    text = table(("resource", "how", "it alone takes"), rows)
    return f"### {what}\n\n{text}\n**The first to run out: {slowest}**, {_time(times[slowest][1])}.\n\n"


def page(works: list[dict[str, Any]] | None = None, fleet: Fleet = FLEET) -> str:
    """Return the whole page as Markdown."""
    costs = Costs(ledger.read(KEPT) if works is None else works)
    text = HEAD + (
        f"## The cluster\n\n{fleet.brokers} brokers with {fleet.replicas} replicas of each log on"
        f" {fleet.hosts} hosts; {fleet.log_bytes / TB:g} TB in segments of {fleet.segment_bytes / GIB:g} GiB,"
        f" {fleet.log_bytes / fleet.segment_bytes:,.0f} of them; {fleet.executors:,} executors of a core each, on"
        f" any host. Spark's Python sources cannot choose a task's host, so {remote_share(fleet):.0%} of the"
        " tasks are on a host without a replica of what they read. A host has a link of"
        f" {fleet.link_bytes_s * 8 / GB:g} Gbit/s and {fleet.memory_bytes / GIB:,.0f} GiB of memory.\n\n"
        f"## Planning, on the driver\n\nOne store has {planning.SEGMENTS:,} segments and {planning.QUEUES:,} queues,"
        " with names and first pages in the page cache. The targets are"
        f" {planning.GOAL_S:g} s and {planning.GOAL_MIB:g} MiB.\n\n"
    )
    text += table(("read", "takes", "memory"), _planning(costs))
    text += "\n## Reading\n\nThe page cache has none of the bytes. Bodies are read, too.\n\n"
    text += _read(fleet, costs, "All of the log", 1.0)
    text += _read(fleet, costs, f"A topic of {fleet.topic_share:.0%}, through its queues", fleet.topic_share)
    text += (
        f"A read of queues makes two splits for each CPU of its driver, unless `minPartitions` says otherwise. The"
        f" tasks above are those of `minPartitions={SPLITS_PER_CPU * fleet.executors}`. With `read(..., placed=True)`"
        " of replicas' Flight servers, tasks prefer the hosts of replicas; only those that find no core there use"
        " the network.\n\n"
    )
    return text + "## What else it needs\n\n" + table(("what", "how", "is"), _others(fleet, costs))


if __name__ == "__main__":
    sys.stdout.write(page())
