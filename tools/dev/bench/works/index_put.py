"""Putting keys into the index alone: one key a record, of a log in memory, into files of the usual size."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import numpy as np

from store.files.segment import file_name
from store.files.segment_files import SegmentFiles
from store.index.index_file import DEFAULT_GEOMETRY
from store.index.service import IndexService
from store.message import rows_kernel
from store.message.properties import KEYS
from store.message.properties import format as format_properties
from store.message.record import BLANK_BYTES, PHYSICAL_OFFSET_AT, encode
from store.recovery.log_end import new_rows
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results

MESSAGES, ROWS, DIGITS = 1_000_000, 32768, 12
GOAL_PER_SECOND = 3e6


def _write_log(directory: Path) -> SegmentFiles:
    """Write one segment of records of 128 B that differ in their offset and their key."""
    directory.mkdir(parents=True)
    key = "0" * DIGITS
    record = encode(topic="bench", body=b"x" * 128, properties=format_properties({KEYS: key}), store_timestamp_ms=1)
    numbers = np.arange(MESSAGES)
    matrix = np.tile(np.frombuffer(record, np.uint8), (MESSAGES, 1))
    offsets = (numbers * len(record)).astype(">i8").view(np.uint8).reshape(MESSAGES, 8)
    matrix[:, PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = offsets
    at = record.index(key.encode())
    for digit in range(DIGITS):
        matrix[:, at + digit] = ord("0") + numbers // 10 ** (DIGITS - 1 - digit) % 10
    segment_bytes = MESSAGES * len(record) + BLANK_BYTES
    with (directory / file_name(0)).open("wb") as file:
        file.write(matrix.tobytes())
        file.truncate(segment_bytes)
    return SegmentFiles(directory, segment_bytes)


def _keys_per_second(files: SegmentFiles, directory: Path) -> float:
    index, rows = IndexService(directory, *DEFAULT_GEOMETRY), new_rows(ROWS)
    position, put, seconds = 0, 0, 0.0
    with files.open(0) as segment:
        end = segment.size_bytes - BLANK_BYTES
        while position < end:
            position, count, _ = rows_kernel.scan(segment.array, position, end, 0, rows)
            began = time.perf_counter()
            index.put(segment, rows, count)
            seconds += time.perf_counter() - began
            put += count
    index.close()
    shutil.rmtree(directory)
    return put / seconds


def measure(of: Asked, to: Results) -> None:
    """The median of the runs, after one that warms up."""
    files = _write_log(of.scratch / "index-put-log")
    rates = [_keys_per_second(files, of.scratch / f"index-put-{number}") for number in range(of.repeat + 1)]
    shutil.rmtree(files.directory)
    rate = statistics.median(rates[1:])
    to.figure("put keys into the index", "slipstream", rate / 1e6, "M keys/s")
    to.at_least("put keys into the index", rate, GOAL_PER_SECOND, "3 M keys/s")
