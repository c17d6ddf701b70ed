"""Latencies in shared buckets: the library's buckets, RocketMQ's bounds, no count lost among threads and processes."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.monitoring.store_stats import latency_stats
from engine.protocol.store.put_rates import DISTRIBUTION_NAMES
from engine.shared_memory.latencies import (
    BLOCK_WORDS,
    COUNTS,
    HIGHEST_US,
    Clock,
    LatencyWord,
    create_latencies,
    latencies_of,
    lowest_of,
    record,
    sum_of_rings,
    value_at_percentile,
)

PUTS = 20_000


def library() -> HdrHistogram:
    return HdrHistogram(1, HIGHEST_US, 2)


@settings(deadline=None)
@given(st.integers(0, 3 * HIGHEST_US))
def test_a_latency_falls_into_the_librarys_bucket(micros: int) -> None:
    words, theirs = np.zeros(BLOCK_WORDS, np.int64), library()
    record(words, 0, micros)
    counted = min(micros, HIGHEST_US)
    (index,) = words[LatencyWord.COUNTS :].nonzero()[0].tolist()
    assert theirs.get_value_from_index(index) == lowest_of(index)
    assert lowest_of(index) == theirs.get_lowest_equivalent_value(counted)
    assert (words[LatencyWord.MAX_US], words[LatencyWord.SUM_US]) == (counted, counted)


def test_there_are_as_many_buckets_as_the_library_has() -> None:
    assert library().counts_len == COUNTS
    assert [lowest_of(index) for index in range(COUNTS)] == sorted({lowest_of(index) for index in range(COUNTS)})


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=300))
def test_percentiles_are_those_of_the_values(values: list[int]) -> None:
    words, theirs = np.zeros(BLOCK_WORDS, np.int64), library()
    for micros in values:
        record(words, 0, micros)
        theirs.record_value(micros)
    counts = latencies_of(words).counts
    for percentile in (0, 0.1, 25, 50, 99, 99.9, 99.99, 100):
        assert value_at_percentile(counts, percentile) == theirs.get_value_at_percentile(percentile)
    found = latency_stats(latencies_of(words))
    assert (found.puts, found.max_us, round(found.mean_us * found.puts)) == (len(values), max(values), sum(values))


@pytest.mark.parametrize(
    ("millis", "name"),
    [
        (0, "[<=0ms]"), (1, "[0~10ms]"), (9, "[0~10ms]"), (10, "[10~50ms]"), (50, "[50~100ms]"), (199, "[100~200ms]"),
        (499, "[200~500ms]"), (500, "[500ms~1s]"), (1000, "[1~2s]"), (2000, "[2~3s]"), (3999, "[3~4s]"),
        (4000, "[4~5s]"), (9999, "[5~10s]"), (10_000, "[10s~]"), (3_000_000, "[10s~]"),
    ],
)  # fmt: skip
def test_rocketmqs_bounds(millis: int, name: str) -> None:
    for micros in (millis * 1000, millis * 1000 + 999):
        words = np.zeros(BLOCK_WORDS, np.int64)
        record(words, 0, micros)
        counted = dict(zip(DISTRIBUTION_NAMES, latencies_of(words).distribution, strict=True))
        assert counted == {**dict.fromkeys(DISTRIBUTION_NAMES, 0), name: 1}


def count(directory: Path, ring: int, threads: int) -> None:
    """What a producer process does: its threads share its ring."""
    clock = Clock(directory, ring)
    began_ns = time.monotonic_ns()

    def work() -> None:
        for _ in range(PUTS // threads):
            clock.stop(began_ns)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    clock.close()


def test_processes_and_threads_lose_no_count(tmp_path: Path) -> None:
    create_latencies(tmp_path, rings=4)
    processes = [multiprocessing.get_context("spawn").Process(target=count, args=(tmp_path, k, k)) for k in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = latencies_of(sum_of_rings(tmp_path))
    assert (found.puts, int(found.counts.sum())) == (2 * PUTS, 2 * PUTS)
    count(tmp_path, 1, 1)  # the next owner of the ring goes on counting
    assert latencies_of(sum_of_rings(tmp_path)).puts == 3 * PUTS


def test_nothing_put_is_no_error(tmp_path: Path) -> None:
    create_latencies(tmp_path, rings=2)
    found = latency_stats(latencies_of(sum_of_rings(tmp_path)))
    assert (found.puts, found.max_us, found.mean_us) == (0, 0, 0.0)
    assert set(found.percentiles_us.values()) == {0}
