"""How fast one reader is, alone: bodies of a topic, by `scan`, in place or through Flight.

python -m tools.dev.cluster.rate PATH TOPIC TOKEN_FILE
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import pyarrow.compute as pc

from spark_bridge import scan
from spark_bridge.options.flights import is_flight

TIMES = 4  # the first warms up


class Rate(NamedTuple):
    """Speed of reading bodies: bytes a second, the best run; CPU seconds a gigabyte, the mean."""

    bytes_a_second: float
    cpu_a_gigabyte: float


def read_once(path: str, topic: str, token_file: str) -> tuple[int, float]:
    """Return the bytes of bodies that were read, and the seconds that it took."""
    options: dict[str, Any] = {"flightTokenFile": token_file} if is_flight(path) else {}
    began, size = time.perf_counter(), 0
    for batch in scan(path, topics=[topic], columns=["body"], **options):
        size += pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
    return size, time.perf_counter() - began


def rate_of(text: str, elsewhere: float) -> Rate:
    """Compute the rate from a run's output, and the CPU seconds that it cost another process."""
    said = json.loads(text)
    size = sum(size for size, _seconds in said["times"])
    return Rate(max(size / seconds for size, seconds in said["times"]), (said["cpu"] + elsewhere) / size * 1e9)


def main() -> None:
    """Prints what each time came to, and the CPU seconds of all."""
    before = time.process_time()
    times = [read_once(*sys.argv[1:4]) for _time in range(TIMES)]
    print(json.dumps({"times": times, "cpu": time.process_time() - before}))


if __name__ == "__main__":
    main()
