"""`log verify` with its CRCs against reading the same mapped files once, in the same run, the page cache warm.

Both go over the whole commit log: the reader adds up eight bytes a step (numpy's vectorised sum, one thread, what the
machine's memory gives a sequential reader), the check does everything that `slipstream log verify` does.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import median

from store.verify.verification import Verification
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024, 4096)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 4
GOAL = 0.6


def measure(scratch: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """The figures for each size of bodies."""
    figures, ratios = [], []
    for body_bytes in BODIES:
        root = scratch / f"verify-{body_bytes}"
        writer = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes))
        records = writer.write(SEGMENTS)
        work = f"log verify, {body_bytes} B bodies"
        reading, checking = [], []
        read_through(root), _verify(root, records)  # page cache, compiled code
        for _ in range(repeat):
            reading.append(SEGMENTS * SEGMENT_BYTES / read_through(root))
            checking.append(SEGMENTS * SEGMENT_BYTES / _verify(root, records))
        figures.append(Figure(work, "mmap read", median(reading) / 1e6, "MB/s"))
        note = f"{median(checking) / (SEGMENTS * SEGMENT_BYTES) * records / 1e6:.1f} M records/s"
        figures.append(Figure(work, "slipstream", median(checking) / 1e6, "MB/s", note=note))
        ratios.append(Ratio(work, median(checking), median(reading), "mmap read", GOAL))
        shutil.rmtree(root)
    return figures, ratios


def _verify(root: Path, records: int) -> float:
    """Seconds of the whole check."""
    started = time.perf_counter()
    verification = Verification(root)
    findings = list(verification.findings())
    seconds = time.perf_counter() - started
    if findings or verification.records != records:
        raise SystemExit(f"the check of a sound store of {records} records went wrong: {verification} {findings[:3]}")
    return seconds
