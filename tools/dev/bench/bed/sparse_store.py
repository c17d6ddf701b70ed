"""Makes stores of very many segments and queues that take a page each: what planning looks at is there, bodies are not.

A segment holds some records at its beginning and a blank record behind them, a hole; a queue's file its entries. So a
store of 100,000 segments of 1 GiB is 100 TB long and takes 400 MB. It is as after a stop in order, all dispatched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ipc.descriptors import closing_fd
from store.files.segment import file_name
from store.message import properties
from store.message.host import Host
from store.message.record import blank, encode
from store.names import COMMIT_LOG, CONFIG, CONSUME_QUEUES
from store.queues.consume_queue import CQ_DTYPE, file_bytes_of

SEGMENT_BYTES = 1 << 30
QUEUE_FILE_BYTES = file_bytes_of(6_000_000)
QUEUES_A_TOPIC = 100
RECORDS_A_SEGMENT = 4
FIRST_MS, STEP_MS = 1_760_000_000_000, 1000
HOST = Host("127.0.0.1", 10911)
BODY, PROPERTIES = b"x" * 64, properties.format({properties.TAGS: "TagA", properties.KEYS: "k"})


def topic_name(number: int) -> str:
    """Return a topic's name; all names have one length."""
    return f"orders-{number:06d}"


@dataclass(frozen=True)
class SparseStore:
    """A store: record number n lies in segment n // RECORDS_A_SEGMENT and queue n % queues, stored at `ms(n)`."""

    root: Path
    segments: int
    queues: int
    segment_bytes: int = SEGMENT_BYTES

    @property
    def records(self) -> int:
        """Return the number of records."""
        return self.segments * RECORDS_A_SEGMENT

    @property
    def topics(self) -> int:
        """Return the number of topics; each but the last has QUEUES_A_TOPIC queues."""
        return -(-self.queues // QUEUES_A_TOPIC)

    def queue(self, number: int) -> tuple[str, int]:
        """Return a queue's topic and queue id."""
        return topic_name(number // QUEUES_A_TOPIC), number % QUEUES_A_TOPIC

    @staticmethod
    def ms(number: int) -> int:
        """Return when a record was stored, in ms."""
        return FIRST_MS + STEP_MS * number

    def place(self, number: int) -> int:
        """A record's offset in the log."""
        segment, within = divmod(number, RECORDS_A_SEGMENT)
        return segment * self.segment_bytes + within * self.record_bytes

    @cached_property
    def record_bytes(self) -> int:
        """Return the length of each record."""
        return len(self._record(0, 0))

    def _record(self, number: int, place: int) -> bytes:
        topic, queue_id = self.queue(number % self.queues)
        return encode(
            topic=topic,
            body=BODY,
            queue_id=queue_id,
            queue_offset=number // self.queues,
            physical_offset=place,
            store_host=HOST,
            born_host=HOST,
            born_timestamp_ms=self.ms(number),
            store_timestamp_ms=self.ms(number),
            properties=PROPERTIES,
        )

    def write(self) -> SparseStore:
        """Make its files; a directory that is there has to be empty."""
        (self.root / CONFIG).mkdir(parents=True, exist_ok=True)
        self._write_segments(self.root / COMMIT_LOG)
        self._write_queues(self.root / CONSUME_QUEUES)
        return self

    def _write_segments(self, directory: Path) -> None:
        directory.mkdir()
        used = RECORDS_A_SEGMENT * self.record_bytes
        end = blank(self.segment_bytes - used)
        for segment in range(self.segments):
            numbers = range(segment * RECORDS_A_SEGMENT, (segment + 1) * RECORDS_A_SEGMENT)
            content = b"".join(self._record(number, self.place(number)) for number in numbers)
            is_last = segment == self.segments - 1
            path = f"{directory}/{file_name(segment * self.segment_bytes)}"
            _write_sparse(path, content if is_last else content + end, self.segment_bytes)

    def _write_queues(self, directory: Path) -> None:
        numbers = np.arange(self.records, dtype=np.int64)
        segments, within = np.divmod(numbers, RECORDS_A_SEGMENT)
        entries = np.zeros(self.records, CQ_DTYPE)
        entries["physical_offset"] = segments * self.segment_bytes + within * self.record_bytes
        entries["size"], entries["tags_code"] = self.record_bytes, properties.tags_code("TagA")
        for number in range(min(self.queues, self.records)):
            topic, queue_id = self.queue(number)
            place = f"{directory}/{topic}/{queue_id}"
            os.makedirs(place)
            _write_sparse(f"{place}/{file_name(0)}", entries[number :: self.queues].tobytes(), QUEUE_FILE_BYTES)


def _write_sparse(path: str, content: bytes, size_bytes: int) -> None:
    with closing_fd(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)) as fd:
        os.ftruncate(fd, size_bytes)
        os.pwrite(fd, content, 0)
