"""Compiles for this CPU alone, and measures what that gains: the same check of records, in processes with either code.

Which code a process runs is settled when it loads its first kernel, so each does one thing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

import numpy as np

from ipc.arrays import Bytes
from ipc.compiled import carried
from ipc.module_names import named
from store.message import rows_kernel
from store.message.record import encode
from store.message.topics import SELF_TEST_TOPIC
from store.recovery.log_end import new_rows

BODIES = (128, 4096, 65536)
BYTES = 16 << 20  # of records: beyond a CPU's second cache
PASSES, PROCESSES = 3, 3
DEADLINE_SECONDS, ALL_SECONDS = 600, 3600  # of a process that may compile; of one that compiles all


def compile_natively() -> str | None:
    """Compile all kernels in a process that is asked to; return the folder, None where none could be kept."""
    command = [sys.executable, "-m", named("tools.cli"), "warm", "--json"]
    asked = {**os.environ, carried.ASKED: carried.NATIVE}
    made = subprocess.run(command, env=asked, stdout=subprocess.PIPE, check=False, timeout=ALL_SECONDS)
    kept: str | None = json.loads(made.stdout)["kept"] if made.returncode == 0 else None
    return kept


def gains() -> dict[str, float]:
    """Return how many times as fast records of each size are checked. Raises CalledProcessError, TimeoutExpired."""
    taken: dict[str, list[list[float]]] = {carried.BASELINE: [], carried.NATIVE: []}
    for _ in range(PROCESSES):
        for asked, seconds in taken.items():
            seconds.append(_in_a_process(asked))
    package, native = ([median(each) for each in zip(*runs, strict=True)] for runs in taken.values())
    return {f"{size} B": round(a / b, 2) for size, a, b in zip(BODIES, package, native, strict=True)}


def _in_a_process(asked: str) -> list[float]:
    """Return the seconds by size of bodies. What the package carries is the code for the baseline."""
    environment = {name: value for name, value in os.environ.items() if name != carried.ASKED}
    if asked == carried.NATIVE or carried.listed() is None:
        environment[carried.ASKED] = asked
    command = [sys.executable, "-m", named("tools.kernels.native_gain")]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=DEADLINE_SECONDS)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def _records(body_bytes: int) -> tuple[Bytes, int]:
    """Return a segment's worth of equal records, and how many they are."""
    body = (bytes(range(256)) * (body_bytes // 256 + 1))[:body_bytes]
    size = len(encode(topic=SELF_TEST_TOPIC, body=body))
    count = BYTES // size
    parts = [encode(topic=SELF_TEST_TOPIC, body=body, physical_offset=number * size) for number in range(count)]
    return np.frombuffer(b"".join(parts), np.uint8), count


def _seconds(body_bytes: int) -> float:
    array, count = _records(body_bytes)
    rows, spent = new_rows(count), []
    for _ in range(1 + PASSES):  # the first compiles or loads
        began = time.perf_counter()
        _end, whole, _stop = rows_kernel.scan(array, 0, len(array), 0, rows)
        bad = rows_kernel.first_bad_crc(array, rows, whole)
        spent.append(time.perf_counter() - began)
        assert (whole, bad) == (count, -1), "a sound record was found damaged"
    return min(spent[1:])


if __name__ == "__main__":
    print(json.dumps([_seconds(size) for size in BODIES]))
