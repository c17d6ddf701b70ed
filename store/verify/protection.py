"""Which bytes of a store a check can vouch for, and which it cannot: what `log verify` calls unprotected, byte by byte.

A byte is protected when the check finds out that it changed: by a CRC, because lengths and places no longer fit, or
because queue, index and log no longer agree. The format leaves others to nobody: the user's flag, system flags, times,
hosts, most properties, the configuration. Unused bytes hold no data at all. `verify_kernel` counts the same for a
record; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from store.files import checkpoint as checkpoint_file
from store.files.segment import Segment, file_name
from store.index.geometry import geometry_of
from store.index.index_file import ENTRY_BYTES as INDEX_ENTRY_BYTES
from store.index.index_file import HEADER_BYTES, IndexFile
from store.index.query import index_files
from store.message.delay import SCHEDULE_TOPIC
from store.message.properties import CRC_HEAD, CRC_PROPERTY_BYTES, NAME_SEPARATOR, PAIR_SEPARATOR, TAGS
from store.message.record import (
    BLANK_BYTES,
    BODY_CRC_AT,
    FAMILIES,
    FLAG_AT,
    HOST_MASK,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    Kind,
    Message,
    SysFlag,
    decode,
    goes_to_queue,
)
from store.queues.consume_queue import ENTRY_BYTES, PREFILL_SIZE
from store.reading.log_reader import LogReader, open_log
from store.reading.origin import batch_topics_of
from store.reading.walk import walk_segment
from store.verify import digests
from store.verify.queues import CheckedQueue, Queues


class Protection(Enum):
    """The degrees of a byte's protection."""

    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    UNUSED = "unused"


class Span(NamedTuple):
    """A range of bytes of one file that are not protected."""

    path: Path
    start: int
    end: int
    protection: Protection
    what: str


def open_spans(root: Path) -> Iterator[Span]:
    """Everything below the root that a check cannot vouch for. Raises NotAStore."""
    reader = open_log(root)
    batch_topics = batch_topics_of(root)
    queues = Queues(reader.directory.consumequeue, batch_topics)
    known = digests.read(root)
    if reader.files is not None:
        for base in reader.files.base_offsets():
            if base not in known:
                with reader.files.open(base) as segment:
                    yield from _segment_spans(segment, reader, batch_topics)
    for queue in queues.all:
        yield from _queue_spans(queue, reader)
    yield from _index_spans(reader)
    yield from _other_files(reader)


def _segment_spans(segment: Segment, reader: LogReader, batch_topics: frozenset[str]) -> Iterator[Span]:
    path, end = segment.path, 0
    limit = reader.max_offset
    for step in walk_segment(segment, 0, limit):
        position = step.physical_offset - segment.base_offset
        if step.inspection.kind is Kind.BLANK:
            yield Span(path, position + BLANK_BYTES, segment.size_bytes, Protection.UNUSED, "behind a blank record")
            return
        if step.inspection.kind is not Kind.MESSAGE:
            break
        end = position + step.inspection.size
        message = decode(step.record, check_body_crc=False)
        for start, stop, what in record_gaps(message, step.record, message.topic in batch_topics):
            yield Span(path, position + start, position + stop, Protection.UNPROTECTED, what)
    yield Span(path, end, segment.size_bytes, Protection.UNUSED, "behind the log's end")


def record_gaps(message: Message, record: memoryview, in_batch: bool) -> Iterator[tuple[int, int, str]]:
    """(start, end, what) of the bytes of a record that nothing protects."""
    raw = message.properties_raw
    if raw[-CRC_PROPERTY_BYTES:].startswith(CRC_HEAD):
        start = len(record) - CRC_PROPERTY_BYTES
        yield start, start + len(CRC_HEAD), "the name of its CRC"
        return
    queued = goes_to_queue(message.sys_flag)
    queued = queued and not in_batch and not message.sys_flag & SysFlag.INNER_BATCH
    family = FAMILIES[message.sys_flag & HOST_MASK]
    if not len(message.body):
        yield BODY_CRC_AT, BODY_CRC_AT + 4, "CRC of no body"
    if not queued:
        yield QUEUE_ID_AT, QUEUE_ID_AT + 4, "queue id"
    yield FLAG_AT, FLAG_AT + 4, "flag"
    if not queued:
        yield FLAG_AT + 4, PHYSICAL_OFFSET_AT, "queue offset"
    yield SYS_FLAG_AT, family.body_length_at, "system flag, times, hosts, reconsume times, half message's offset"
    properties_at = len(record) - len(raw)
    topic_at = properties_at - 2 - len(message.topic.encode("utf-8", "surrogateescape"))
    if not queued:
        yield topic_at, properties_at - 2, "topic"
    start, end = (0, 0) if not queued or message.topic == SCHEDULE_TOPIC else _tags_pair(raw)
    if start:
        yield properties_at, properties_at + start, "properties"
    if end < len(raw):
        yield properties_at + end, len(record), "properties"


def _tags_pair(raw: bytes) -> tuple[int, int]:
    """Return where the pair of the tags lies, its separator included; the last one counts."""
    span, at = (0, 0), 0
    name = f"{TAGS}{NAME_SEPARATOR}".encode()
    for part in raw.split(PAIR_SEPARATOR.encode()):
        if part.startswith(name) and len(part) > len(name):
            span = at, min(at + len(part) + 1, len(raw))
        at += len(part) + 1
    return span


def _queue_spans(queue: CheckedQueue, reader: LogReader) -> Iterator[Span]:
    for file_number, (base, entries) in enumerate(zip(queue.queue.bases(), queue.files, strict=True)):
        path, start = queue.queue.directory / file_name(base), file_number * queue.per_file
        for number, entry in enumerate(entries):
            offset, size = int(entry["physical_offset"]), int(entry["size"])
            at = number * ENTRY_BYTES
            if start + number >= queue.count:
                yield Span(path, at, len(entries) * ENTRY_BYTES, Protection.UNUSED, "behind the queue's end")
                break
            if size != PREFILL_SIZE and offset < reader.min_offset:
                yield Span(path, at, at + ENTRY_BYTES, Protection.UNPROTECTED, "its record was deleted")


def _index_spans(reader: LogReader) -> Iterator[Span]:
    paths = index_files(reader.directory.index)
    geometry = geometry_of(reversed(paths))
    for path in paths:
        size = path.stat().st_size
        if geometry is None or geometry.file_bytes != size:
            continue
        file = IndexFile.open(path, geometry)
        count, at = file.header.index_count, geometry.entries_at
        if count == 1:
            yield Span(path, 0, HEADER_BYTES, Protection.UNPROTECTED, "header of a file without entries")
        yield Span(path, at, at + INDEX_ENTRY_BYTES, Protection.UNUSED, "entry 0")
        for number in range(1, count):
            start = at + number * INDEX_ENTRY_BYTES
            if int(file.entries[number]["physical_offset"]) < reader.min_offset:
                yield Span(path, start, start + INDEX_ENTRY_BYTES, Protection.UNPROTECTED, "its record was deleted")
        yield Span(path, at + count * INDEX_ENTRY_BYTES, size, Protection.UNUSED, "behind the last entry")


def _other_files(reader: LogReader) -> Iterator[Span]:
    directory = reader.directory
    checked = {directory.commitlog, directory.consumequeue, directory.index}
    for path in sorted(directory.root.rglob("*")):
        if not path.is_file() or checked & set(path.parents) or path == digests.path_of(directory.root):
            continue
        size = path.stat().st_size
        if path == directory.checkpoint and size == checkpoint_file.FILE_BYTES:
            yield Span(path, 0, checkpoint_file.INDEX_AT, Protection.UNPROTECTED, "RocketMQ's part of the checkpoint")
        else:
            yield Span(path, 0, size, Protection.UNPROTECTED, "a file without any checks but its syntax")
