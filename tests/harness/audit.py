"""What must be true of a store after anything: read with our own decoder, record by record, queue by queue."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message.record import Kind, Message, decode, inspect
from store.queues.consume_queue import ConsumeQueue, queue_directories


def messages_of(store: Path, end: int) -> list[Message]:
    """Every message below `end`, its CRC and its own place checked; nothing but messages and blank records."""
    directory = store / "commitlog"
    files = SegmentFiles(directory, segment_bytes_of(directory))
    messages = []
    for base in (base for base in files.base_offsets() if base < end):
        view, position = files.path_of(base).read_bytes(), 0
        while position < len(view) and base + position < end:
            there = inspect(view, position, base + position, check_body_crc=True)
            assert there.kind in (Kind.MESSAGE, Kind.BLANK), (base + position, there)
            if there.kind is Kind.MESSAGE:
                messages.append(decode(view, position))
            position += there.size
    return messages


def assert_queue_offsets_dense(messages: list[Message]) -> None:
    """In every queue the offsets are 0, 1, 2, ... in the order of the log."""
    queues: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in messages:
        queues[message.topic, message.queue_id].append(message.queue_offset)
    for queue, offsets in queues.items():
        assert offsets == list(range(len(offsets))), queue


def assert_queues_hold_exactly(store: Path, messages: list[Message], file_bytes: int) -> None:
    """The consume queues name every message once, at its place."""
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for message in messages:
        entry = (message.physical_offset, message.size, message.tags_code)
        expected[message.topic, message.queue_id].append(entry)
    queues = {}
    for topic, queue_id, path in queue_directories(store / "consumequeue"):
        queue = ConsumeQueue.open(path, file_bytes)
        entries = queue.entries(queue.min_offset, queue.max_offset)
        queues[topic, queue_id] = [tuple(int(value) for value in entry) for entry in entries]
    assert queues == dict(expected)
