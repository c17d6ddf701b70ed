"""Scans without Spark against reading the same mapped files once, in the same run, the page cache warm.

polars and DuckDB take the record batches of fixed columns and add one up; the reader adds up eight bytes a step. Both
figures are bytes of the log a second, so that a scan is measured by the log that it answers for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_bridge.scanning import scan
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, in_turn
from tools.dev.bench.bed.log_store import LogWriter, read_through

BODIES = (128, 1024)
SEGMENT_BYTES, SEGMENTS = 256 << 20, 4
LOG_BYTES = SEGMENT_BYTES * SEGMENTS
FIXED_COLUMNS = ["queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bodyLength"]
GOAL = 0.5


def measure(of: Asked, to: Results) -> None:
    """The figures for each size of bodies."""
    ways = {**FIXED_WAYS, "bodies, copied": _bodies}
    for body_bytes in BODIES:
        root = of.scratch / f"scan-{body_bytes}"
        records = LogWriter(root, SEGMENT_BYTES, (body_bytes, body_bytes)).write(SEGMENTS)
        compare(root, f"scan, {body_bytes} B bodies", ways, (records, body_bytes), of.repeat, to)
        shutil.rmtree(root)


def compare(
    root: Path,
    work: str,
    ways: Mapping[str, Callable[[Path], int]],
    bodies: tuple[int, int],
    repeat: int,
    to: Results,
) -> None:
    """Have each way add up the bytes of all bodies (how many, and the bytes of each), in turn with a plain reader."""
    records, body_bytes = bodies
    limit = "mmap read"

    def rate(way: str) -> tuple[float]:
        began = time.perf_counter()
        if way == limit:
            read_through(root)
        elif (added_up := ways[way](root)) != records * body_bytes:
            raise SystemExit(f"{way} found {added_up} bytes of {records} bodies of {body_bytes}")
        return (LOG_BYTES / (time.perf_counter() - began),)

    names = {way: way for way in (limit, *ways)}
    for way in names:  # the page cache, and what a process does once: it compares the side files' sums
        rate(way)
    rates = in_turn(names, repeat, rate)
    for way, (middle,) in rates.items():
        note = f"{middle / LOG_BYTES * records / 1e6:.1f} M records/s"
        to.figure(f"{work}: {way}", "slipstream" if way in ways else way, middle / 1e6, "MB/s", note=note)
        if way in ways:
            to.at_least(f"{work}: {way}", middle, rates[limit][0], limit, GOAL)


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


FIXED_WAYS = {"polars, fixed columns": _polars, "DuckDB, fixed columns": _duckdb}
