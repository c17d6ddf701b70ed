"""The rows of metadata tables: what queues, segments, cursors and config files tell, without reading messages.

Only messages that are not in queues of the plain kind (not dispatched yet, batch queues) are counted in the log itself.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from ipc.clock import ms_of
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import inventory
from spark_bridge.plan.collection import planned_in_peace
from spark_bridge.plan.stores import StoreAt
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.split.splits import Beside, LogExtent, Queue, RangeSplit, Selection, plan
from spark_bridge.tables.columns import Row
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles, stated_files
from store.message.topics import is_system_topic
from store.names import CONFIG, CONSUME_QUEUES, CONSUMER_OFFSETS, TOPICS
from store.queues.consume_queue import queue_places
from store.reading import extent
from store.reading.history import held, stored_ms, stored_ms_at
from store.tables import json_files
from store.tables import tables as broker_tables

BLOCK_BYTES = 512  # of st_blocks
MESSAGE_TYPE = "message.type"
COUNTED = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp")

Item = TypeVar("Item")


class Bounds(NamedTuple):
    """The bound of a table's size where others wait for their turn; None is any size."""

    rows: int | None = None  # and queues that are opened for them
    log_bytes: int | None = None  # that are looked through for what is in no queue

    def held(self, items: Iterable[Item], what: str) -> Iterator[Item]:
        """The items. Raises InvalidOption when they are more than there may be rows."""
        for number, item in enumerate(items):
            if number == self.rows:
                raise InvalidOption(f"more than {self.rows} {what}, the most for one table here; name fewer topics")
            yield item


UNBOUNDED = Bounds()


class QueueRow(NamedTuple):
    """One queue: its first offset and end, its messages, and the first and last of them by time and place."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    min_ms: int | None = None
    max_ms: int | None = None
    min_physical_offset: int | None = None
    max_physical_offset: int | None = None

    def joined(self, other: QueueRow) -> QueueRow:
        """Join two parts of one queue into one row."""
        if not self.messages or not other.messages:
            return self if self.messages or not other.messages else other
        return QueueRow(
            self.topic,
            self.queue_id,
            min(self.min_offset, other.min_offset),
            max(self.max_offset, other.max_offset),
            self.messages + other.messages,
            _least(self.min_ms, other.min_ms),
            _most(self.max_ms, other.max_ms),
            _least(self.min_physical_offset, other.min_physical_offset),
            _most(self.max_physical_offset, other.max_physical_offset),
        )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


@planned_in_peace
def rows_of(table: str, stores: Iterable[StoreAt], options: ReadOptions, bounds: Bounds = UNBOUNDED) -> list[Row]:
    """Return all rows of a table, store after store.

    Raises what finding the log's ends raises, MalformedConfig, and InvalidOption where it is larger than the bounds.
    """
    rows = ((store.broker_name, *row) for store in stores for row in _TABLES[table](store, options, bounds))
    return list(bounds.held(rows, f"rows in table {table}"))


def _selected(store: StoreAt, options: ReadOptions) -> Selection:
    return inventory.selection_of(options, store.broker_name)


def queue_rows(
    store: StoreAt, options: ReadOptions, bounds: Bounds = UNBOUNDED, *, with_times: bool = True
) -> list[QueueRow]:
    """Return every queue of the topics selected, multi-dispatch queues only if they are named."""
    log = inventory.find_extent(store.root, store.broker_name)
    selection = _selected(store, options)
    named = frozenset() if options.topics_admitted else selection.topics or frozenset()
    topics = inventory.topics_of(store.root, selection) | named
    wanted = replace(selection, topics=topics, topic_pattern=None)
    if bounds.rows is not None:
        there = inventory.topics_in(store.root, CONSUME_QUEUES, topics)
        deque(bounds.held(queue_places(Path(store.root, CONSUME_QUEUES), there), "queues"), maxlen=0)
    by_queue: dict[tuple[str, int], QueueRow] = {}

    def look(queue: Queue) -> None:
        by_queue[queue.topic, queue.queue_id] = _row_of(queue)

    _, scanned = inventory.find_queues(store.root, log, wanted, look)
    if with_times:
        _add_times(log, by_queue)
    for row in _counted(log, scanned, selection, bounds):
        key = row.topic, row.queue_id
        by_queue[key] = by_queue[key].joined(row) if key in by_queue else row
    return [by_queue[key] for key in sorted(by_queue)]


def _row_of(queue: Queue) -> QueueRow:
    row = QueueRow(queue.topic, queue.queue_id, queue.first, queue.end, queue.end - queue.first)
    if not row.messages:
        return row
    first, last = (queue.entries.physical_offset(at) for at in (queue.first, queue.end - 1))
    return row._replace(min_physical_offset=first, max_physical_offset=last)


def _add_times(log: LogExtent, rows: dict[tuple[str, int], QueueRow]) -> None:
    """Add when each queue's first and last messages were stored, read segment by segment: there may be very many."""
    asked = [row[-2:] for row in rows.values() if row.messages]
    stored = _stored_at(log, itertools.chain.from_iterable(asked))
    for key, row in rows.items():
        if row.min_physical_offset is not None and row.max_physical_offset is not None:
            first_ms, last_ms = stored[row.min_physical_offset], stored[row.max_physical_offset]
            rows[key] = row._replace(min_ms=first_ms, max_ms=last_ms)


def _stored_at(log: LogExtent, offsets: Iterable[int | None]) -> dict[int, int | None]:
    """Return when the records at these offsets were stored; each segment is opened once."""
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    stored: dict[int, int | None] = {}
    for base, inside in itertools.groupby(sorted({at for at in offsets if at is not None}), files.base_of):
        fd = files.descriptor(base)
        try:
            stored.update((offset, stored_ms_at(fd, offset - base)) for offset in inside)
        finally:
            os.close(fd)
    return stored


def _counted(log: LogExtent, scanned: frozenset[str], selection: Selection, bounds: Bounds) -> Iterator[QueueRow]:
    """Yield what the log itself tells of topics without plain queues, and of the part that is not dispatched."""
    wanted = replace(selection, topics=scanned, topic_pattern=None)
    splits = plan(log, [], scanned, wanted, None, 1, beside=Beside(selection))
    size = sum(split.end - split.start for split in splits if isinstance(split, RangeSplit))
    if bounds.log_bytes is not None and size > bounds.log_bytes:
        what = f"{size} bytes of the log, in no queue, would have to be looked through, {bounds.log_bytes} at most"
        raise InvalidOption(f"{what}; name topics whose messages are in queues, or ask where the store lies")
    asked, parts = Asked.of(COUNTED), []
    for split in splits:
        for batch in read_split(split, asked):
            aggregates = [
                ("queueOffset", "min"), ("queueOffset", "max"), ("queueOffset", "count"), ("storeTimestamp", "min"),
                ("storeTimestamp", "max"), ("physicalOffset", "min"), ("physicalOffset", "max"),
            ]  # fmt: skip
            parts += pa.Table.from_batches([batch]).group_by(["topic", "queueId"]).aggregate(aggregates).to_pylist()
    for part in parts:
        first_ms, last_ms = (ms_of(part[f"storeTimestamp_{end}"]) for end in ("min", "max"))
        yield QueueRow(
            part["topic"],
            part["queueId"],
            part["queueOffset_min"],
            part["queueOffset_max"] + 1,
            part["queueOffset_count"],
            first_ms,
            last_ms,
            part["physicalOffset_min"],
            part["physicalOffset_max"],
        )


def _topics(store: StoreAt, options: ReadOptions, bounds: Bounds) -> Iterator[Row]:
    """Topics that have queues or a configuration, or both."""
    selection = _selected(store, options)
    path = Path(store.root) / CONFIG / TOPICS
    table = broker_tables.topics(json_files.read(path), str(path))
    by_topic: dict[str, list[QueueRow]] = {name: [] for name in table if selection.admits(name)}
    for row in queue_rows(store, options, bounds):
        by_topic.setdefault(row.topic, []).append(row)
    for topic, rows in sorted(by_topic.items()):
        fields = table.get(topic, {})
        kind = (fields.get("attributes") or {}).get(MESSAGE_TYPE)
        first_ms, last_ms = _least(*(row.min_ms for row in rows)), _most(*(row.max_ms for row in rows))
        yield (
            topic,
            len(rows),
            sum(row.messages for row in rows),
            first_ms,
            last_ms,
            _whole(fields.get("perm")),
            _whole(fields.get("readQueueNums")),
            _whole(fields.get("writeQueueNums")),
            kind,
            is_system_topic(topic),
        )


def _segments(store: StoreAt, _options: ReadOptions, _bounds: Bounds) -> Iterator[Row]:
    """The files of the log, with the part of each that holds data."""
    log = inventory.find_extent(store.root, store.broker_name)
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    for base, status in stated_files(Path(log.commitlog)):
        first, end = max(base, log.min_physical_offset), min(base + status.st_size, log.max_physical_offset)
        begins_ms = stored_ms(files, first) if first < end else None
        yield (
            f"{log.commitlog}/{file_name(base)}",
            base,
            max(first, end),
            status.st_size,
            status.st_blocks * BLOCK_BYTES,
            begins_ms,
            status.st_mtime_ns // 1_000_000,
        )


def _replicas(store: StoreAt, _options: ReadOptions, _bounds: Bounds) -> Iterator[Row]:
    """Yield one row for a store: who serves it, and how far everything is."""
    log = inventory.find_extent(store.root, store.broker_name)
    broker = extent.running(store.root)
    settings = broker.settings if broker is not None else {}
    flushed, confirmed, in_sync = (
        inventory.cursor_of(store.root, name) for name in ("flushed_offset", "confirm_offset", "in_sync_slaves")
    )
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    is_master = str(settings.get("brokerRole", "")).endswith(inventory.MASTER_ROLE)
    yield (
        os.path.abspath(store.root),
        settings.get("brokerClusterName"),
        _whole(settings.get("brokerId")),
        settings.get("brokerRole"),
        settings.get("storeHost"),
        broker.pid if broker is not None else None,
        log.min_physical_offset,
        log.max_physical_offset,
        log.reput_from_offset,
        flushed,
        confirmed if is_master else None,
        in_sync if is_master else None,
        held(files, log.min_physical_offset, log.max_physical_offset).from_ms,
    )


def _consumer_groups(store: StoreAt, options: ReadOptions, bounds: Bounds) -> Iterator[Row]:
    """Yield where each group is in each queue, as its broker wrote it down last."""
    selection = _selected(store, options)
    path = Path(store.root) / CONFIG / CONSUMER_OFFSETS
    offsets = broker_tables.consumer_offsets(json_files.read(path), str(path))
    queues = {(row.topic, row.queue_id): row for row in queue_rows(store, options, bounds, with_times=False)}
    for (topic, group), by_queue in sorted(offsets.items()):
        for queue_id, offset in sorted(by_queue.items()) if selection.admits(topic) else ():
            row = queues.get((topic, queue_id))
            ends = (None, None, None) if row is None else (row.min_offset, row.max_offset, row.max_offset - offset)
            yield (group, topic, queue_id, offset, *ends)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


_TABLES: dict[str, Callable[[StoreAt, ReadOptions, Bounds], Iterable[Row]]] = {
    "queues": queue_rows,
    "topics": _topics,
    "segments": _segments,
    "replicas": _replicas,
    "consumer_groups": _consumer_groups,
}
