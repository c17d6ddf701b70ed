"""How long puts took: counts of log-linear buckets in shared memory, which each producer keeps for its own ring.

Implements: setPutMessageEntireTimeMax of StoreStatsService, with HDR's buckets beside RocketMQ's thirteen
Nobody is asked for a figure and nothing is lost with a producer: a ring's counts stay when it changes hands. Who wants
to know adds up all rings. Threads of one producer share a ring, so counts go up with atomic additions.

Region "latencies": for each ring a block of words: 0 longest put in microseconds | 1 sum of all, in microseconds |
2 to 14 puts by RocketMQ's bounds, in whole milliseconds | from 16: puts by HDR's buckets of microseconds, two digits.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import time
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Words
from ipc.compiled.atomics import fetch_add, fetch_max
from ipc.compiled.kernels import inlined, kernel
from ipc.region import Region

REGION_KIND, LAYOUT, LATENCIES_FILE = "latencies", 1, "latencies"

HIGHEST_US = 3_600_000_000  # an hour; what takes longer counts as that
HALF_BITS = 7  # HDR's sub buckets for two digits: 256, of which the upper half is new in every bucket
SUB_BUCKETS = 2 << HALF_BITS
BUCKETS = (HIGHEST_US // SUB_BUCKETS).bit_length() + 1
COUNTS = (BUCKETS + 1) << HALF_BITS


class LatencyWord(IntEnum):
    """The words of a block; DISTRIBUTION and COUNTS: the first of many."""

    MAX_US = 0
    SUM_US = 1
    DISTRIBUTION = 2
    COUNTS = 16


BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)  # RocketMQ's: below each of these
DISTRIBUTION_WORDS = slice(LatencyWord.DISTRIBUTION, LatencyWord.DISTRIBUTION + len(BOUNDS_MS) + 1)
BLOCK_WORDS = LatencyWord.COUNTS + COUNTS
_BOUNDS_MS = np.array(BOUNDS_MS, np.int64)


class Latencies(NamedTuple):
    """The latencies of all answered puts. `counts` are HDR's buckets, `distribution` RocketMQ's."""

    max_us: int
    sum_us: int
    distribution: list[int]
    counts: Words

    @property
    def puts(self) -> int:
        """Return how many puts were counted."""
        return sum(self.distribution)


@inlined
def _index_of(micros: int) -> int:
    bucket = 0
    while micros >> bucket >= SUB_BUCKETS:
        bucket += 1
    return (bucket << HALF_BITS) + (micros >> bucket)


@kernel
def record(words: Words, at: int, micros: int) -> None:
    """Count one put of the ring whose block begins at word `at`."""
    micros = min(max(micros, 0), HIGHEST_US)
    milliseconds, bound = micros // 1000, 0
    while bound < _BOUNDS_MS.size and milliseconds >= _BOUNDS_MS[bound]:
        bound += 1
    fetch_add(words, at + LatencyWord.DISTRIBUTION + bound, 1)
    fetch_add(words, at + LatencyWord.COUNTS + _index_of(micros), 1)
    fetch_add(words, at + LatencyWord.SUM_US, micros)
    if words[at + LatencyWord.MAX_US] < micros:
        fetch_max(words, at + LatencyWord.MAX_US, micros)


def lowest_of(index: int) -> int:
    """The smallest latency, in microseconds, that bucket `index` counts."""
    bucket = max(0, (index >> HALF_BITS) - 1)
    return (index - (bucket << HALF_BITS)) << bucket


def value_at_percentile(counts: Words, percentile: float) -> int:
    """The largest latency, in microseconds, of the bucket that the percentile falls into, as HDR's own libraries say.

    Of 0 it is the smallest one that was counted, up to its bucket; of nothing it is 0.
    """
    until = counts.cumsum()
    wanted = max(1, int(percentile * int(until[-1]) / 100 + 0.5))
    index = int(until.searchsorted(wanted))
    if index == len(counts):
        return 0
    return lowest_of(index + 1) - 1 if percentile else lowest_of(index)


def create_latencies(directory: Path, rings: int) -> None:
    """The region of a broker with that many rings; made by the supervisor."""
    Region.create(directory / LATENCIES_FILE, rings * BLOCK_WORDS * 8, kind=REGION_KIND, layout=LAYOUT).close()


class Clock:
    """One ring's block, written by its owner."""

    def __init__(self, directory: Path, number: int) -> None:
        self._region = Region.attach(directory / LATENCIES_FILE, kind=REGION_KIND, layout=LAYOUT, writable=True)
        self.words: Words = self._region.words[number * BLOCK_WORDS : (number + 1) * BLOCK_WORDS]

    def stop(self, began_ns: int) -> None:
        """A put that began at `began_ns` (time.monotonic_ns) is answered."""
        record(self.words, 0, (time.monotonic_ns() - began_ns) // 1000)

    def close(self) -> None:
        """Unmap the region; the words are zero afterwards."""
        self.words = np.zeros(BLOCK_WORDS, np.int64)
        self._region.close()


def latencies_of(block: Words) -> Latencies:
    """A block's words, or the difference of two blocks."""
    return Latencies(
        max_us=int(block[LatencyWord.MAX_US]),
        sum_us=int(block[LatencyWord.SUM_US]),
        distribution=block[DISTRIBUTION_WORDS].tolist(),
        counts=block[LatencyWord.COUNTS :].copy(),
    )


def sum_of_rings(directory: Path) -> Words:
    """Return one block that adds up the blocks of all rings. Raises RegionMissing, RegionMismatch."""
    with closing(Region.attach(directory / LATENCIES_FILE, kind=REGION_KIND, layout=LAYOUT)) as region:
        blocks = region.words.reshape(-1, BLOCK_WORDS)
        used = blocks[blocks[:, DISTRIBUTION_WORDS].any(axis=1)]
        total: Words = used.sum(axis=0, dtype=np.int64)
        total[LatencyWord.MAX_US] = used[:, LatencyWord.MAX_US].max(initial=0)
        return total
