"""Catching up: an empty slave takes a full segment from its master, at frames of 32 KiB and larger."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from engine.cursors import Board
from ipc import waiting
from store import published
from tools.bench.figures import Figure, Ratio
from tools.bench.loads import run_load
from tools.bench.machine import warm_memory
from tools.bench.peers import Peers
from tools.bench.rocketmq import catch_up as rocketmq_catch_up
from tools.local_broker import LocalBroker

MIB = 1 << 20
SEGMENT_BYTES = 1500 * MIB  # one segment: a new slave is sent the last one only
MESSAGES, SIZE = 1_200_000, 1024
FRAMES = (32 * 1024, 256 * 1024)
DEADLINE_SECONDS = 120.0


def _await(board: Board, offset: int) -> int:
    """Wait until the log reaches `offset`; the monotonic nanosecond at which it did."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := board.max_physical_offset.read()) < offset:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave stays at {seen} of {offset}")
        waiting.await_change(board.max_physical_offset, seen, 100)
    return time.monotonic_ns()


def _once(directory: Path, frame_bytes: int) -> float:
    """MiB/s between the first mebibyte and the last."""
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "haTransferBatchSize": frame_bytes}
    with LocalBroker(directory / "m", brokerRole="ASYNC_MASTER", **keys) as master:
        run_load(master.store, "batch", SIZE, MESSAGES)
        master_board = Board.attach(published.require_running(master.store).region_directory)
        end = master_board.max_physical_offset.read()
        warm_memory()
        with LocalBroker(
            directory / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **keys
        ) as slave:
            board = Board.attach(published.require_running(slave.store).region_directory, writable=True)
            began_ns = _await(board, MIB)
            begun_at = board.max_physical_offset.read()
            seconds = (_await(board, end) - began_ns) / 1e9
    shutil.rmtree(directory)
    return (end - begun_at) / MIB / seconds


def measure(directory: Path, peers: Peers, rocketmq: Path | None, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Ours, the machine's own `sendfile -> recv_into(mmap)` of the same chunk, RocketMQ's."""
    rates: dict[int, list[float]] = {frame: [] for frame in FRAMES}
    for number in range(repeat):
        for frame in FRAMES:
            rates[frame].append(_once(directory / f"catch-up-{number}-{frame}", frame))
        warm_memory()
        peers.run("limits", "sendfile", directory=directory)
    figures, ratios = [], []
    for frame, found in rates.items():
        work, rate = f"catch-up, frames of {frame // 1024} KiB", statistics.median(found)
        figures.append(Figure(work, "slipstream", rate, "MiB/s"))
        limit = peers.figure("mb_per_s", work="sendfile", chunk=f"{frame // 1024} KiB")
        if limit is not None:
            limit = limit * 1e6 / MIB
            figures.append(Figure(work, "sendfile -> recv_into(mmap)", limit, "MiB/s"))
            ratios.append(Ratio(work, rate, limit, "sendfile limit", 0.7))
    if rocketmq is not None:
        theirs, ours = rocketmq_catch_up(rocketmq), statistics.median(rates[FRAMES[0]])
        figures.append(Figure("catch-up, frames of 32 KiB", "rocketmq 4.9", theirs, "MiB/s"))
        ratios.append(Ratio("catch-up, frames of 32 KiB", ours, theirs, "rocketmq 4.9", 4.0))
    return figures, ratios
