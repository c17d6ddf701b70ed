"""Memory of readers of their own while they go through a log of many GiB, sampled from its first part to its last.

The log is written by the bench's generator, each byte of it. What a reader has of its own is its USS (psutil) without
the pages of mapped segments: those are the page cache's, though a segment that one process alone has mapped is counted
there, too. The reader, and for Flight its server, are processes of their own: nothing of what wrote the log is counted.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from spark_bridge.flight.client import read_remote
from spark_bridge.flight.request import ScanRequest
from spark_bridge.scanning import scan
from tests.spark_bridge.flights import FlightProcess
from tools.dev.bench.bed.log_store import LogWriter

MIB, GIB = 1 << 20, 1 << 30
SEGMENT_BYTES, BODY_BYTES = GIB, (900, 1150)
ROOM_SHARE = 0.8  # of what the disk has left, queues and all
PARTS, WARM_PARTS = 20, 2  # of a read; in the first ones libraries are loaded and buffers grow
SAMPLE_BYTES = 32 * MIB  # of the log between two samples
GROWTH_MIB_MAX = 32.0
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "tags", "storeTimestamp", "body")


class Flat(NamedTuple):
    """One read: who was sampled, what it gave and took, and the most of each part, in MiB."""

    name: str
    rows: int
    gib: float
    seconds: float
    samples: int
    most_mib: tuple[float, ...]

    @property
    def growth_mib(self) -> float:
        """The most of the second half less the most of the first half, whose first parts do not count."""
        middle = len(self.most_mib) // 2
        return max(self.most_mib[middle:]) - max(self.most_mib[WARM_PARTS:middle])


def room_gib(directory: Path) -> int:
    """Return how many GiB of log the disk has room for."""
    return int(shutil.disk_usage(directory).free * ROOM_SHARE) // SEGMENT_BYTES


def own_mib(process: psutil.Process, root: Path) -> float:
    """The private pages of a process, without those of the store's mapped files."""
    own = 0
    for mapped in process.memory_maps(grouped=True):
        if not mapped.path.startswith(str(root)):
            own += mapped.private_clean + mapped.private_dirty
    return own / MIB


def measure(directory: Path, gib: int) -> list[Flat]:
    """Write a log, read it in each way, delete it. Raises AssertionError where a read does not give all rows."""
    root = directory / "flat"
    try:
        records = LogWriter(root, SEGMENT_BYTES, BODY_BYTES).write(gib)
        found = [flat for threads in (1, 2) for flat in _in_child(root, gib, threads)]
        with FlightProcess(root, "--no-token") as server:
            found += _in_child(root, gib, 1, server.location, server.process.pid)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    assert {flat.rows for flat in found} == {records}, (found, records)
    return found


def _in_child(root: Path, gib: int, *asked: Any) -> list[Flat]:
    """Read in a process that has done nothing else."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_read, args=(theirs, root, gib, *asked))
    child.start()
    theirs.close()
    try:
        flats: list[Flat] = ours.recv()
    finally:
        child.join()
    return flats


def _read(answers: Any, root: Path, gib: int, threads: int, location: str = "", server_pid: int = 0) -> None:
    """Read the whole log; what is sampled is this process, and the server if there is one."""
    sampled = {f"scan, {threads} thread{'s' if threads > 1 else ''}": psutil.Process()}
    if location:
        sampled = {"Flight's client": psutil.Process(), "Flight's server": psutil.Process(server_pid)}
        reader = read_remote(location, ScanRequest(None, COLUMNS))
    else:
        reader = scan(root, columns=COLUMNS, threads=threads)
    began, rows, samples, at, next_at = time.perf_counter(), 0, 0, 0, 0
    most = {name: [0.0] * PARTS for name in sampled}
    for batch in reader:
        rows, at = rows + len(batch), batch.column("physicalOffset")[-1].as_py()
        if at >= next_at:
            next_at, samples, part = at + SAMPLE_BYTES, samples + 1, at * PARTS // (gib * SEGMENT_BYTES)
            for name, process in sampled.items():
                most[name][part] = max(most[name][part], own_mib(process, root))
    seconds = time.perf_counter() - began
    read_gib = gib * SEGMENT_BYTES / GIB
    answers.send([Flat(name, rows, read_gib, seconds, samples, tuple(parts)) for name, parts in most.items()])
    answers.close()
