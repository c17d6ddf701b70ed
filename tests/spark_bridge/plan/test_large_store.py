"""Four gigabytes through Spark with every body: all rows, and no process grows with the store."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from store.files.segment import file_name
from store.message.record import BLANK_BYTES, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, blank, encode
from tests.spark_bridge.stores import HOST

pytestmark = pytest.mark.spark

SEGMENT, SEGMENTS, BODY = 1 << 30, 4, 1 << 20
MIB = 1 << 20
WORKER_BYTES_MAX, JVM_BYTES_MAX = 256 * MIB, 1536 * MIB  # their own memory; the segments' pages are nobody's
LOOK_S = 0.05


def write_sparse_store(root: Path) -> int:
    """Segments whose bodies are holes in their files; how many records."""
    record = encode(topic="orders", body=bytes(BODY), store_host=HOST, born_host=HOST)
    tail = record[-32:].lstrip(b"\0")  # topic and properties: what lies behind the body
    head = bytearray(record[:128])
    (root / "commitlog").mkdir(parents=True)
    count = 0
    for base in range(0, SEGMENTS * SEGMENT, SEGMENT):
        with open(root / "commitlog" / file_name(base), "wb") as file:
            file.truncate(SEGMENT)
            at = 0
            while at + len(record) + BLANK_BYTES <= SEGMENT:
                head[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] = count.to_bytes(8)
                head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = (base + at).to_bytes(8)
                os.pwrite(file.fileno(), head, at)
                os.pwrite(file.fileno(), tail, at + len(record) - len(tail))
                at, count = at + len(record), count + 1
            os.pwrite(file.fileno(), blank(SEGMENT - at)[:BLANK_BYTES], at)
    return count


class Watch(threading.Thread):
    """The most memory of its own that each process below this one had."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = threading.Event()
        self.most: dict[tuple[str, int], int] = defaultdict(int)

    def run(self) -> None:
        while not self.stopping.wait(LOOK_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    key = process.name(), process.pid
                    status = Path(f"/proc/{process.pid}/status").read_text()
                except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    continue
                for line in status.splitlines():
                    if line.startswith("RssAnon:"):
                        self.most[key] = max(self.most[key], int(line.split()[1]) * 1024)


def test_four_gigabytes_with_every_body_in_memory_that_does_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    count = write_sparse_store(tmp_path)
    assert sum(path.stat().st_blocks for path in (tmp_path / "commitlog").iterdir()) * 512 < SEGMENT // 4
    watch = Watch()
    watch.start()
    try:
        frame = spark_bridge.read(spark, str(tmp_path), columns=["queueOffset", "body"])
        sums = frame.agg(F.count("*"), F.sum("queueOffset"), F.sum(F.length("body"))).collect()[0]
    finally:
        watch.stopping.set()
        watch.join()
    assert tuple(sums) == (count, count * (count - 1) // 2, count * BODY)
    assert count * BODY > (SEGMENTS - 1) * SEGMENT
    workers = {key: size for key, size in watch.most.items() if key[0].startswith("python")}
    assert workers and max(workers.values()) < WORKER_BYTES_MAX, workers
    java = {key: size for key, size in watch.most.items() if key[0] == "java"}
    assert java and max(java.values()) < JVM_BYTES_MAX, java
