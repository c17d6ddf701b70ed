"""The messages of some topics in log order, by their consume queues: a small topic of a large log is read alone.

Only what the queues are sure to list is read so: of a running broker what its dispatcher has passed, of a log without
one all of it, if the broker stopped in order and the last record is in its queue. None otherwise: then the log is read.
A queue lists what consumers can get; a deleted topic's records, and those whose entries expired, are in the log alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ipc.errors import RegionMissing
from store.errors import BrokerOutOfReach, CorruptRecord, ForeignFile, QueueFileMismatch
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment import Segment
from store.message.record import Kind, Message, decode, inspect
from store.names import BATCH_QUEUES
from store.queues.consume_queue import PREFILL_SIZE, ConsumeQueue, is_file_name, queue_directories
from store.reading.extent import running
from store.reading.log_reader import LogReader

CHUNK_ENTRIES, SAMPLE_ENTRIES = 4096, 64
LARGE_SHARE = 0.75  # of the log: to read all of it record by record is quicker then
ADVICE = "`slipstream log verify` says more; `slipstream log cat --scan` reads the log itself"


class Listed(NamedTuple):
    """Queues that list all messages of some topics below `end`."""

    queues: tuple[ConsumeQueue, ...]
    topics: frozenset[str]
    end: int


def listed(store: Path, reader: LogReader, topics: Sequence[str]) -> Listed | None:
    """The queues of these topics, None where only the log itself tells, or where it is quicker."""
    directory = reader.directory
    for topic in topics:
        if not is_file_name(topic) or not (directory.consumequeue / topic).is_dir():
            return None
        if (directory.root / BATCH_QUEUES / topic).is_dir():
            return None
    try:
        end = _dispatched_to(store, reader)
        if end is None:
            return None
        wanted = frozenset(topics)
        places = [place for topic, _id, place in queue_directories(directory.consumequeue) if topic in wanted]
        queues = Listed(tuple(map(ConsumeQueue.open, places)), wanted, end)
        return queues if _bytes_about(queues) < (end - reader.min_offset) * LARGE_SHARE else None
    except (ForeignFile, QueueFileMismatch):
        return None  # damaged: `log verify` says so, the log has the messages


def _dispatched_to(store: Path, reader: LogReader) -> int | None:
    broker = running(store)
    if broker is not None:
        try:
            counters = broker.counters()
        except (RegionMissing, BrokerOutOfReach):
            return None
        try:
            return min(counters.cursor("reput_from_offset").read(), reader.max_offset)
        finally:
            counters.close()
    if reader.files is None or reader.live or reader.directory.was_aborted():
        return None
    from store.reading.boundary import boundary_before  # loads numba, which a running broker's words do not need

    last = boundary_before(reader.files, reader.min_offset, reader.max_offset).last
    return reader.max_offset if last is not None and is_listed(reader.directory, last) else None


def _bytes_about(queues: Listed) -> float:
    """Return how much of the log these queues list, judged by the newest entries of each."""
    total = 0.0
    for queue in queues.queues:
        first, last = queue.min_offset, queue.end_below(queues.end)
        sizes = queue.entries(max(first, last - SAMPLE_ENTRIES), last)["size"]
        if len(sizes):
            total += (last - first) * float(sizes.mean())
    return total


def is_listed(directory: StoreDirectory, message: Message) -> bool:
    """Whether the entry of that message is in its queue. Raises AccessDenied."""
    if "/" in message.topic or not message.topic.strip("."):
        return False
    place = directory.consumequeue / message.topic / str(message.queue_id)
    try:
        if not place.is_dir():
            return False
    except PermissionError:
        raise file_io.denied(place) from None
    entry = ConsumeQueue.open(place).last_entry(message.queue_offset + 1)
    return entry is not None and int(entry["physical_offset"]) == message.physical_offset


def messages_listed(reader: LogReader, queues: Listed, start: int) -> Iterator[Message]:
    """Their messages in [start, queues.end), in log order. Raises CorruptRecord, SegmentRemoved."""
    for record in records_listed(reader, queues, start):
        message = decode(record, check_body_crc=False)
        if message.topic in queues.topics:  # not one that another topic's queue lists, too
            yield message


def records_listed(reader: LogReader, queues: Listed, start: int) -> Iterator[bytes]:
    """The records that they list there, in log order: some may be of other topics. Raises the same."""
    places = heapq.merge(*(_places(queue, start, queues.end) for queue in queues.queues))
    files, segment = reader.files, None
    assert files is not None
    try:
        for offset, directory in places:
            base = files.base_of(offset)
            if segment is None or segment.base_offset != base:
                if segment is not None:
                    segment.close()
                segment = files.open(base)
            yield _record(segment, offset, queues.end, directory)
    finally:
        if segment is not None:
            segment.close()


def _places(queue: ConsumeQueue, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The offsets in the log that a queue names, and the queue, for errors."""
    number, last = max(queue.end_below(start), queue.min_offset), queue.end_below(end)
    while number < last:
        entries = queue.entries(number, min(number + CHUNK_ENTRIES, last))
        for offset, size in zip(entries["physical_offset"].tolist(), entries["size"].tolist(), strict=True):
            if 0 < size < PREFILL_SIZE and offset >= start:
                yield offset, str(queue.directory)
        number += CHUNK_ENTRIES


def _record(segment: Segment, offset: int, end: int, directory: str) -> bytes:
    position, limit = offset - segment.base_offset, min(end - segment.base_offset, segment.size_bytes)
    inspection = inspect(segment.view, position, offset, check_body_crc=False, limit=limit)
    if inspection.kind is not Kind.MESSAGE:
        raise CorruptRecord(directory, offset, "no message begins there, although a queue entry points there", ADVICE)
    return bytes(segment.view[position : position + inspection.size])
