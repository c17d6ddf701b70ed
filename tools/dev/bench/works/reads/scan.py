"""Scans without Spark against reading the same mapped files once, in the same run, the page cache warm.

polars and DuckDB take the record batches of fixed columns and add one up; the reader adds up eight bytes a step. Both
figures are bytes of the log a second, so that a scan is measured by the log that it answers for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from spark_bridge.scanning import scan
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 4
LOG_BYTES = SEGMENT_BYTES * SEGMENTS
FIXED_COLUMNS = ["queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bodyLength"]
GOAL = 0.5


def measure(scratch: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """The figures for each size of bodies."""
    figures, ratios = [], []
    for body_bytes in BODIES:
        root = scratch / f"scan-{body_bytes}"
        records = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes)).write(SEGMENTS)
        ways: Mapping[str, Callable[[Path], int]] = {
            "polars, fixed columns": _polars,
            "DuckDB, fixed columns": _duckdb,
            "bodies, copied": _bodies,
        }
        taken: dict[str, list[float]] = {"mmap read": [], **{way: [] for way in ways}}
        read_through(root)  # the page cache
        for _ in range(repeat):
            taken["mmap read"].append(LOG_BYTES / read_through(root))
            for way, total in ways.items():
                started = time.perf_counter()
                added_up = total(root)
                taken[way].append(LOG_BYTES / (time.perf_counter() - started))
                if added_up != records * body_bytes:
                    raise SystemExit(f"{way} found {added_up} bytes of {records} bodies of {body_bytes}")
        limit = median(taken["mmap read"])
        for way, rates in taken.items():
            work = f"scan, {body_bytes} B bodies: {way}"
            note = f"{median(rates) / LOG_BYTES * records / 1e6:.1f} M records/s"
            figures.append(Figure(work, "slipstream" if way in ways else way, median(rates) / 1e6, "MB/s", note=note))
            if way in ways:
                ratios.append(Ratio(work, median(rates), limit, "mmap read", GOAL))
        shutil.rmtree(root)
    return figures, ratios


def _polars(root: Path) -> int:
    import polars as pl

    total = 0
    for batch in scan(root, columns=FIXED_COLUMNS):
        frame: Any = pl.from_arrow(batch)
        total += int(frame["bodyLength"].sum())
    return total


def _duckdb(root: Path) -> int:
    import duckdb

    ask: Any = duckdb.sql
    log = scan(root, columns=FIXED_COLUMNS)
    ((total,),) = ask("SELECT sum(bodyLength) FROM log").fetchall()  # a local variable is a table to DuckDB
    del log
    return int(total)


def _bodies(root: Path) -> int:
    import pyarrow.compute as pc

    batches = scan(root, columns=["body"])
    return sum(pc.sum(pc.binary_length(batch.column(0))).as_py() for batch in batches)
