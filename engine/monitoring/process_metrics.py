"""What a broker's processes, rings, disk and readers are at, as metrics: RocketMQ's broker, one process, has none such.

Implements: nothing of RocketMQ's
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import islice

import numpy as np

from engine.monitoring.series import COUNTER, GAUGE, Histogram, Series
from engine.shared_memory.cursors import ROLES, BrokerCounters
from engine.shared_memory.latencies import COUNTS, Latencies, latencies_of, lowest_of, sum_of_rings
from ipc.arrays import Words
from ipc.clock import monotonic_ms, wall_ms
from ipc.module_names import version_here
from ipc.ring import BYTES_PER_DESCRIPTOR, WORDS_PER_RING, ControlWord, attach_rings
from store.files.file_io import CREATING_SUFFIX
from store.names import LEASES
from store.reading.extent import Running
from store.upkeep.leases import LEASES_MAX

PUT_BOUNDS_US = (
    20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000,
)  # fmt: skip


def series(running: Running, counters: BrokerCounters, compat: str, *, is_slave: bool) -> Iterator[Series | Histogram]:
    """Yield the metrics of the broker's processes and disk; a slave has no rings. Raises RegionMissing."""
    yield _build(compat)
    yield put_latency(latencies_of(sum_of_rings(running.region_directory)))
    yield from _roles(counters)
    yield from _disk(counters)
    if not is_slave:
        yield from _rings(running)
    yield from lease_series(_lease_ages(running.store_root))


def put_latency(latencies: Latencies) -> Histogram:
    """Return how long answered puts took; a bucket of one percent counts where it begins."""
    counts = np.bincount(_places(), weights=latencies.counts, minlength=len(PUT_BOUNDS_US) + 1)
    what = "From a put to its answer, which comes as flushDiskType and brokerRole ask for it"
    samples = [((), [int(count) for count in counts], latencies.sum_us)]
    return Histogram("rocketmq_put_latency_microseconds", what, (), PUT_BOUNDS_US, samples)


@cache
def _places() -> Words:
    """Below which bound each bucket begins."""
    begins = np.array([lowest_of(index) for index in range(COUNTS)], np.int64)
    return np.searchsorted(np.array(PUT_BOUNDS_US, np.int64), begins, side="left")


def _build(compat: str) -> Series:
    labels = (version_here(), compat, platform.python_version())
    what = "Version, compat and Python of this broker"
    return Series(GAUGE, "rocketmq_build_info", what, ("version", "compat", "python"), [(labels, 1.0)])


def _roles(counters: BrokerCounters) -> Iterator[Series]:
    now_ms = monotonic_ms()
    running = [role for role in ROLES if counters.pids[role].read() > 0 or counters.restarts[role].read() > 0]
    restarts = [((role,), float(counters.restarts[role].read())) for role in running]
    what = "Restarts of a process"
    yield Series(COUNTER, "rocketmq_role_restarts", what, ("role",), restarts)
    beats = [(role, counters.heartbeats[role].read()) for role in running]
    ages = [((role,), max(0.0, (now_ms - beat_ms) / 1000)) for role, beat_ms in beats if beat_ms]
    what = "Time since the last loop of a process"
    yield Series(GAUGE, "rocketmq_role_heartbeat_age_seconds", what, ("role",), ages)


def _disk(counters: BrokerCounters) -> Iterator[Series]:
    for name, what, value in (
        ("state", "0 normal, 1 files are deleted early, 2 puts are refused, 3 full", counters.disk_state.read()),
        ("used_percent", "Usage of the fullest disk of this store", counters.disk_used_percent.read()),
        (
            "flush_errno",
            "0, or the error number of a failed flush; no acknowledgements now",
            counters.flush_errno.read(),
        ),
        ("allocation_errno", "0, or the error number of a failed segment allocation", counters.allocation_errno.read()),
        ("dispatch_errno", "0, or the error number that stops queues and index", counters.dispatch_errno.read()),
    ):
        yield Series(GAUGE, f"rocketmq_disk_{name}", what, (), [((), float(value))])
    for name, what, count in (
        ("log_flushes", "Flushes of the log", counters.log_flushes.read()),
        ("deleted_segments", "Expired segments of the log that were deleted", counters.deleted_segments.read()),
        ("put_refused", "Messages that could not be appended", counters.put_refused.read()),
    ):
        yield Series(COUNTER, f"rocketmq_storage_{name}", what, (), [((), float(count))])


def _rings(running: Running) -> Iterator[Series]:
    """Yield how much waits in each ring that has an owner."""
    with closing(attach_rings(running.region_directory, writable=False)) as region:
        taken = region.words.reshape(-1, WORDS_PER_RING).copy()
    places = max(1, int(running.settings["ringSizeInBytes"]) // BYTES_PER_DESCRIPTOR)
    waiting = [
        ((str(number),), float(max(0, words[ControlWord.TAIL] - words[ControlWord.HEAD])))
        for number, words in enumerate(taken)
        if words[ControlWord.OWNER_PID] > 0
    ]
    what = "Records in a producer's or front's ring that the writer has not taken"
    yield Series(GAUGE, "rocketmq_ring_waiting_records", what, ("ring",), waiting)
    fill = [(labels, count / places) for labels, count in waiting]
    yield Series(GAUGE, "rocketmq_ring_fill_ratio", "Used share of a ring", ("ring",), fill)


def lease_series(ages: Sequence[float]) -> Iterator[Series]:
    """Yield the number of readers' leases and the oldest one's age; without a lease, no age is exported."""
    yield Series(GAUGE, "rocketmq_reader_leases", "Leases of readers that retention waits for", (), [((), len(ages))])
    what = "Time since the oldest lease was made or renewed"
    oldest = [((), max(ages))] if ages else []
    yield Series(GAUGE, "rocketmq_reader_lease_age_seconds", what, (), oldest)


def _lease_ages(root: str | os.PathLike[str]) -> list[float]:
    """Return the age in seconds of each lease file, dead readers' included; a renewal replaces the file."""
    ages, now_seconds = list[float](), wall_ms() / 1000
    with suppress(OSError), os.scandir(os.path.join(os.fspath(root), LEASES)) as entries:
        leases = (entry for entry in entries if not entry.name.endswith(CREATING_SUFFIX))
        for entry in islice(leases, LEASES_MAX):
            with suppress(FileNotFoundError):  # released meanwhile
                ages.append(max(0.0, now_seconds - entry.stat(follow_symlinks=False).st_mtime))
    return ages
