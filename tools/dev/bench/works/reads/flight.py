"""A store through Flight on loopback, beside the same read in place, in turn, the page cache warm.

`slipstream flight` in a process of its own serves, this process takes: bodies of one topic by its queues, bodies of
the whole log, and fixed columns. Figures are bytes of bodies a second; a ratio is the time through Flight to that in
place.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from ipc.module_names import named
from spark_bridge.flight.client import read_remote
from spark_bridge.flight.request import ScanRequest
from spark_bridge.scanning import scan
from tools.common.local_broker import end
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.log_store import LogWriter, read_through, topic_name

SEGMENT_BYTES, SEGMENTS = 256 << 20, 2
BODY_BYTES = 1024
STOP_SECONDS = 60.0
WAYS: dict[str, tuple[Sequence[str] | None, Sequence[str], float | None]] = {  # topics, columns, goal of the ratio
    "bodies of one topic": ([topic_name(3)], ["queueId", "body"], 1.5),
    "bodies of the log": (None, ["body"], None),
    "fixed columns": (None, ["queueId", "queueOffset", "storeTimestamp", "bodyLength"], None),
}


def measure(of: Asked, to: Results) -> None:
    """Measure each way of reading through Flight and in place, in turn."""
    root = of.scratch / "flight"
    LogWriter(root, SEGMENT_BYTES, (BODY_BYTES, BODY_BYTES)).write(SEGMENTS)
    read_through(root)  # the page cache
    with _served(root) as location:
        for way, (topics, columns, goal) in WAYS.items():
            request = ScanRequest(None if topics is None else tuple(topics), tuple(columns))
            remote, local = [], []
            _timed(read_remote(location, request))  # a server's first answer loads what the others find loaded
            for _ in range(of.repeat):
                remote.append(_timed(read_remote(location, request)))
                local.append(_timed(scan(root, topics=topics, columns=columns)))
            if {rows for rows, _ in remote} != {rows for rows, _ in local}:
                raise SystemExit(f"{way}: other rows through Flight than in place")
            rows = remote[0][0]
            seconds, there = (median(taken for _, taken in side) for side in (remote, local))
            for subject, taken in (("Flight", seconds), ("in place", there)):
                note = f"{rows / taken / 1e6:.2f} M rows/s"
                to.figure(f"{way}, 1 KB", subject, rows * BODY_BYTES / taken / 1e9, "GB/s", note=note)
            if goal is not None:
                to.at_most(f"{way}: time through Flight", seconds, there, "in place", goal)
    shutil.rmtree(root)


def _timed(reader: pa.RecordBatchReader) -> tuple[int, float]:
    """Rows, and the seconds until the last of them was looked at."""
    began, rows = time.perf_counter(), 0
    for batch in reader:
        rows += len(batch)
        if "body" in batch.schema.names:
            pc.sum(pc.binary_length(batch.column("body")))
    return rows, time.perf_counter() - began


@contextmanager
def _served(root: Path) -> Iterator[str]:
    """A server of the store; its address."""
    command = [sys.executable, "-m", named("tools.cli"), "flight", str(root), "--port", "0", "--no-token"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready: "):
            raise SystemExit(f"no Flight server: {line}")
        yield next(word.rstrip(",") for word in line.split() if word.startswith("grpc"))
    finally:
        end(process, STOP_SECONDS)
