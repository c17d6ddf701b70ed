"""Writes a store of any size, fast, without a broker: valid records of version 1 with their consume queues.

Whole blocks of records are built as one byte matrix, a row a record, and squeezed to the bytes that count.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.files.segment import file_name
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message import properties
from store.message.host import Host, pack_host
from store.message.record import BLANK_BYTES, CRC_MASK, MAGIC_V1, blank, fixed_dtype
from store.names import COMMIT_LOG, CONSUME_QUEUES
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue, file_bytes_of

BLOCK_RECORDS = 20_000
POOL_BYTES = 16 << 20
TOPICS, QUEUES = 10, 4
TAGS = ("TagA", "TagB", "TagC", "TagD")
QUEUE_FILE_BYTES = file_bytes_of(6_000_000)
FIRST_TIMESTAMP_MS = 1_760_000_000_000
HOST = Host("127.0.0.1", 10911)
FIXED = fixed_dtype(0)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def topic_name(number: int) -> str:
    """Return a topic's name; all names have one length."""
    return f"orders-{number:02d}"


@dataclass
class _Block:
    """Records: their bytes as a matrix, with the padding of bodies masked out, and their queues' entries."""

    matrix: Bytes
    counted: npt.NDArray[np.bool_]
    sizes: Ints
    queues: Ints
    tags: Ints

    def first(self, count: int) -> _Block:
        """Return a block of the first records only."""
        return _Block(
            self.matrix[:count], self.counted[:count], self.sizes[:count], self.queues[:count], self.tags[:count]
        )


def read_through(root: Path) -> float:
    """Seconds to touch every byte of the log once through new mappings: what memory gives one sequential reader."""
    commitlog = root / COMMIT_LOG
    files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
    started = time.perf_counter()
    for base in files.base_offsets():
        with files.open(base) as segment:
            segment.array.view(np.uint64).sum()
    return time.perf_counter() - started


class LogWriter:
    """Writes records to a store until it is large enough."""

    def __init__(self, root: Path, segment_bytes: int, body_bytes: tuple[int, int], seed: int = 7) -> None:
        self.root, self.segment_bytes = root, segment_bytes
        self.body_least, self.body_most = body_bytes
        self.random = np.random.default_rng(seed)
        self.pool = self.random.integers(32, 127, POOL_BYTES, dtype=np.uint8)
        self.queue_ends = np.zeros(TOPICS * QUEUES, np.int64)
        self.records = self.end = 0
        self.tags_codes = np.array([properties.tags_code(tags) for tags in TAGS], np.int64)
        directories = [root / CONSUME_QUEUES / topic_name(t) / str(q) for t in range(TOPICS) for q in range(QUEUES)]
        self.queue_files = [ConsumeQueue(directory, QUEUE_FILE_BYTES) for directory in directories]

    def write(self, segments: int) -> int:
        """Fill this many segments; the number of records in them."""
        directory = self.root / COMMIT_LOG
        directory.mkdir(parents=True)
        for base in range(0, segments * self.segment_bytes, self.segment_bytes):
            with (directory / file_name(base)).open("wb") as file:
                for data in self._segment():
                    file.write(data if isinstance(data, bytes) else data.tobytes())
                file.truncate(self.segment_bytes)
            self.end = base + self.segment_bytes
        return self.records

    def _segment(self) -> Iterator[Bytes | bytes]:
        rest = self.segment_bytes
        while True:
            block = self._block()
            fitting = int(np.searchsorted(np.cumsum(block.sizes), rest - BLANK_BYTES, "right"))
            full = fitting < len(block.sizes)
            block = block.first(fitting)
            if fitting:
                self._place(block, self.end + self.segment_bytes - rest)
                yield block.matrix[block.counted]
                rest -= int(block.sizes.sum())
            if full:
                yield blank(rest)
                return

    def _block(self) -> _Block:
        """Records without their places and queue offsets."""
        count = BLOCK_RECORDS
        lengths = self.random.integers(self.body_least, self.body_most + 1, count)
        queues, tags = self.random.integers(0, TOPICS * QUEUES, count), self.random.integers(0, len(TAGS), count)
        tails = self._tails(queues, tags)
        body_end = FIXED.itemsize + self.body_most
        matrix = np.empty((count, body_end + tails.shape[1]), np.uint8)
        bodies = np.lib.stride_tricks.sliding_window_view(self.pool, self.body_most)
        matrix[:, FIXED.itemsize : body_end] = bodies[self.random.integers(0, len(bodies), count)]
        matrix[:, body_end:] = tails
        counted = np.ones(matrix.shape, np.bool_)
        counted[:, FIXED.itemsize : body_end] = np.arange(self.body_most) < lengths[:, None]
        sizes = FIXED.itemsize + lengths + tails.shape[1]
        self._head(matrix, lengths, sizes, queues)
        return _Block(matrix, counted, sizes, queues, tags)

    def _tails(self, queues: Ints, tags: Ints) -> Bytes:
        """Topic and properties of each record: one of few combinations."""
        table = []
        for number in range(TOPICS):
            for tag in TAGS:
                topic = topic_name(number).encode()
                unique = "7F000001000018B4AAC2000000000000"
                pairs = {properties.TAGS: tag, properties.KEYS: "k00000000", properties.UNIQ_KEY: unique}
                text = properties.format(pairs)
                table.append(bytes([len(topic)]) + topic + len(text).to_bytes(2, "big") + text)
        rows = np.frombuffer(b"".join(table), np.uint8).reshape(len(table), -1)
        chosen: Bytes = rows[queues // QUEUES * len(TAGS) + tags]
        return chosen

    def _head(self, matrix: Bytes, lengths: Ints, sizes: Ints, queues: Ints) -> None:
        """Write every fixed field that does not depend on the record's place."""
        head = np.zeros(len(matrix), FIXED)
        head["total_size"], head["magic_code"], head["body_length"] = sizes, MAGIC_V1, lengths
        body_at = FIXED.itemsize
        views = (memoryview(row) for row in matrix)
        spans = zip(views, (body_at + lengths).tolist(), strict=True)
        head["body_crc"] = [zlib.crc32(row[body_at:end]) & CRC_MASK for row, end in spans]
        head["queue_id"] = queues % QUEUES
        matrix[:, :body_at] = head.view(np.uint8).reshape(len(head), body_at)

    def _place(self, block: _Block, offset: int) -> None:
        """Give the records their places in the log and in their queues."""
        count = len(block.sizes)
        head = np.frombuffer(block.matrix[:, : FIXED.itemsize].tobytes(), FIXED).copy()
        head["physical_offset"] = offset + np.cumsum(block.sizes) - block.sizes
        head["born_timestamp_ms"] = FIRST_TIMESTAMP_MS + (self.records + np.arange(count)) // 200
        head["store_timestamp_ms"] = head["born_timestamp_ms"] + 1
        host = pack_host(HOST)
        for name in ("born_host", "store_host"):
            head[name] = np.frombuffer(host, FIXED[name])[0]
        order = np.argsort(block.queues, kind="stable")
        counts = np.bincount(block.queues, minlength=len(self.queue_ends))
        starts = np.cumsum(counts) - counts
        number = np.arange(count) - np.repeat(starts, counts)
        queue_offsets = np.empty(count, np.int64)
        queue_offsets[order] = number + np.repeat(self.queue_ends, counts)
        head["queue_offset"] = queue_offsets
        block.matrix[:, : FIXED.itemsize] = head.view(np.uint8).reshape(count, FIXED.itemsize)
        entries = np.zeros(count, CQ_DTYPE)
        entries["physical_offset"], entries["size"] = head["physical_offset"], block.sizes
        entries["tags_code"] = self.tags_codes[block.tags]
        raw = entries.view(np.uint8).reshape(count, CQ_DTYPE.itemsize)[order]
        for queue, (start, length) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
            if length:
                self.queue_files[queue].append(int(self.queue_ends[queue]), raw[start : start + length].tobytes())
        self.queue_ends += counts
        self.records += count
