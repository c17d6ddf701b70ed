"""Rolling: what a new segment every few hundred messages adds to the slowest appends, waited for and not.

Segments are so small that more than one append in a thousand begins one: else p99.9 would not see them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.machine import warm_memory

KIB = 1 << 10
SIZE, MESSAGES = 1024, 60_000
ONE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES = 1 << 28, 1000 * KIB  # all in one; 870 messages each
WORKS = {"sync": "waited for", "nowait": "not waited for"}
ADDED_GOAL = 3.0


def _once(directory: Path, work: str, segment_bytes: int) -> tuple[float, float]:
    """(median, p99.9) of one append, in microseconds."""
    settings: dict[str, Any] = {"mappedFileSizeCommitLog": segment_bytes, "maxMessageSize": 64 * KIB}
    with LocalBroker(directory, brokerRole="ASYNC_MASTER", **settings) as broker:
        report = run_load(broker.store, work, SIZE, MESSAGES).producers[0]
    shutil.rmtree(directory)
    return report["p50_us"], report["p999_us"]


def measure(of: Asked, to: Results) -> None:
    """Measure one large segment and many small ones in turn; medians of the runs."""
    warm_memory()
    for work, named in WORKS.items():
        flat, rolling = [], []
        for number in range(of.repeat):
            flat.append(_once(of.scratch / f"roll-{number}-one", work, ONE_SEGMENT_BYTES))
            rolling.append(_once(of.scratch / f"roll-{number}-many", work, SMALL_SEGMENT_BYTES))
        (p50, flat_p999), (_, rolling_p999) = medians(flat), medians(rolling)
        name = f"append 1 KB, {named}"
        to.figure(f"{name}, one segment", "slipstream", p50, "us", note=f"p99.9 {flat_p999:,.1f} us")
        to.figure(f"{name}, a roll each 870", "slipstream", rolling_p999, "us", note="p99.9")
        added = max(0.0, rolling_p999 - flat_p999)
        to.at_most(f"{name}: what rolling adds to p99.9", added, p50, "median", ADDED_GOAL)
