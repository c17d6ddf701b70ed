"""Producers as they put: what waits in each one's ring and how fast it comes, and how long puts take just now."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.shared_memory.cursors import ROLES, BrokerCounters
from engine.shared_memory.latencies import latencies_of, sum_of_rings, value_at_percentile
from ipc.arrays import Words
from ipc.ring import BYTES_PER_DESCRIPTOR, WORDS_PER_RING, ControlWord, attach_rings

PRODUCER = "producer"
RingKey = tuple[int, int, int]  # number, owner, when that began


class RingFigures(NamedTuple):
    """One ring that somebody has; records that the writer has not taken, of so many places."""

    ring: int
    owner: str
    pid: int
    waiting: int
    fill_ratio: float
    records: int
    records_per_second: float
    refused: int


class PutTimes(NamedTuple):
    """Times of the puts answered since the last look, in microseconds."""

    puts: int
    p50_us: int
    p99_us: int


class LiveRings:
    """Every ring of a master."""

    def __init__(self, directory: Path, ring_bytes: int) -> None:
        self._directory = directory
        self._region = attach_rings(directory, writable=False)
        self._places = max(1, ring_bytes // BYTES_PER_DESCRIPTOR)
        self._before: dict[RingKey, tuple[int, int]] = {}
        self._times: Words | None = None

    def take(self, now_ms: int, counters: BrokerCounters) -> list[RingFigures]:
        """Return the figures of each ring in use now, with rates since the last look."""
        taken = self._region.words.reshape(-1, WORDS_PER_RING).copy()
        roles = {counters.pids[name].read(): name for name in ROLES if counters.pids[name].read() > 0}
        rows, seen = [], {}
        for number in np.flatnonzero(taken[:, ControlWord.OWNER_PID] > 0).tolist():
            words = taken[number].tolist()
            tail, waiting = words[ControlWord.TAIL], max(0, words[ControlWord.TAIL] - words[ControlWord.HEAD])
            pid = words[ControlWord.OWNER_PID]
            key = (number, pid, words[ControlWord.OWNER_START])
            began_ms, before = self._before.get(key, (now_ms, tail))
            rate = (tail - before) * 1000 / (now_ms - began_ms) if now_ms > began_ms else 0.0
            seen[key] = (now_ms, tail)
            rows.append(
                RingFigures(
                    number,
                    roles.get(pid, PRODUCER),
                    pid,
                    waiting,
                    waiting / self._places,
                    tail,
                    rate,
                    words[ControlWord.REFUSALS],
                )
            )
        self._before = seen
        return rows

    def times(self) -> PutTimes:
        """Since the last look; at the first one since the broker's start."""
        block = sum_of_rings(self._directory)
        since = latencies_of(block if self._times is None else block - self._times)
        self._times = block
        return PutTimes(since.puts, *(value_at_percentile(since.counts, percentile) for percentile in (50.0, 99.0)))

    def close(self) -> None:
        """Unmap the rings; no further look is possible."""
        self._region.close()
