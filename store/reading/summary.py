"""Counts over a log: messages, bytes and times, for each topic and in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from store.errors import CorruptRecord
from store.message.record import Kind, Message, decode
from store.reading.log_reader import LogReader
from store.reading.walk import walk

PROGRESS_MESSAGES = 4096


@dataclass(slots=True)
class TopicSummary:
    """Counts over one topic's messages."""

    messages: int = 0
    record_bytes: int = 0
    body_bytes: int = 0
    queues: set[int] = field(default_factory=set)
    first_store_ms: int = 0
    last_store_ms: int = 0

    def add(self, message: Message) -> None:
        """Count one more message of the topic."""
        self.first_store_ms = self.first_store_ms if self.messages else message.store_timestamp_ms
        self.last_store_ms = message.store_timestamp_ms
        self.messages += 1
        self.record_bytes += message.total_size
        self.body_bytes += len(message.body)
        self.queues.add(message.queue_id)


def messages(reader: LogReader, start: int | None = None, end: int | None = None) -> Iterator[Message]:
    """The messages of the log from `start` (a record's first byte) to `end`, by default all. Raises as `records`."""
    return (decode(record, check_body_crc=False) for record in records(reader, start, end))


def records(reader: LogReader, start: int | None = None, end: int | None = None) -> Iterator[memoryview]:
    """The same as records, each a view of its mapped segment.

    Raises CorruptRecord where the log is damaged before its end, OffsetOutOfRange.
    """
    start = reader.min_offset if start is None else start
    end = reader.max_offset if end is None else end
    if reader.files is None or start >= end:
        return
    for offset, record, inspection in walk(reader.files, start, end):
        if inspection.kind is Kind.MESSAGE:
            yield record
        elif inspection.kind in (Kind.CORRUPT, Kind.END_OF_LOG):
            path = str(reader.files.path_of(reader.files.base_of(offset)))
            raise CorruptRecord(path, offset, inspection.reason or "zeros in the middle of the log")


def by_topic(reader: LogReader, on_progress: Callable[[int, int], None] | None = None) -> dict[str, TopicSummary]:
    """Return what the log holds of each topic, in the order of their names; how much is done is said in bytes.

    Raises CorruptRecord.
    """
    topics: dict[str, TopicSummary] = {}
    for number, message in enumerate(messages(reader)):
        if on_progress is not None and not number % PROGRESS_MESSAGES:
            on_progress(message.physical_offset - reader.min_offset, reader.max_offset - reader.min_offset)
        topics.setdefault(message.topic, TopicSummary()).add(message)
    return dict(sorted(topics.items()))
