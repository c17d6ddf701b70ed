"""`log verify` with its CRCs against reading the same mapped files once, in the same run, the page cache warm.

Both go over the whole commit log: the reader adds up eight bytes a step (numpy's vectorised sum, one thread, what the
machine's memory gives a sequential reader), the check does everything that `slipstream log verify` does.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from store.verify.verification import Verification
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024, 4096)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 4
LOG_BYTES = SEGMENT_BYTES * SEGMENTS
GOAL = 0.6


def measure(of: Asked, to: Results) -> None:
    """The figures for each size of bodies."""
    for body_bytes in BODIES:
        root = of.scratch / f"verify-{body_bytes}"
        records = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes)).write(SEGMENTS)
        work = f"log verify, {body_bytes} B bodies"
        read_through(root), _verify(root, records)  # page cache, compiled code
        reading, checking = medians(
            (LOG_BYTES / read_through(root), LOG_BYTES / _verify(root, records)) for _ in range(of.repeat)
        )
        to.figure(work, "mmap read", reading / 1e6, "MB/s")
        note = f"{checking / LOG_BYTES * records / 1e6:.1f} M records/s"
        to.figure(work, "slipstream", checking / 1e6, "MB/s", note=note)
        to.at_least(work, checking, reading, "mmap read", GOAL)
        shutil.rmtree(root)


def _verify(root: Path, records: int) -> float:
    """Seconds of the whole check."""
    started = time.perf_counter()
    verification = Verification(root)
    findings = list(verification.findings())
    seconds = time.perf_counter() - started
    if findings or verification.records != records:
        raise SystemExit(f"the check of a sound store of {records} records went wrong: {verification} {findings[:3]}")
    return seconds
