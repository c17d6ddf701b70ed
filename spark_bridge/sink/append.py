"""Rows of one task into the rings of the broker on this host: those that its log does not hold, once.

Every row carries a unique key made of query, epoch, partition and what it says; a task first asks the index which of
its rows the log holds already, and appends the others. Messages are seen one by one as they are appended, not all at
once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import pyarrow as pa

from spark_bridge.sink.options import NOTHING, SinkColumns, WriteOptions
from spark_bridge.sink.rows import Messages, Refusal, RowRefused, Rows, queue_of_key, row_keys
from spark_bridge.sink.task import TaskId, TaskLock
from store.errors import NoBroker, NotAStore
from store.message.properties import UNIQ_KEY
from store.names import CONFIG, TOPICS
from store.reading.extent import Running, running
from store.tables import json_files
from store.tables import tables as broker_tables

if TYPE_CHECKING:
    from engine.producer import Producer
    from spark_bridge.sink.index import WrittenKeys

PIECE_ROWS = 1024  # rows for one queue before the next one's turn
NAMES_TOGETHER_MAX = 64
CLIENT_QUEUES = 4


class NoEngine(NoBroker):
    """Raised when no master runs on the executor's host.

    Next: `slipstream status STORE` on the executor's host; a master must run there.
    """

    code = "NO_ENGINE"

    def __init__(self, path: str, why: str) -> None:
        where = f"on {socket.gethostname()}, where this task of Spark runs"
        super().__init__(path, f"{why} {where}; rows go through shared memory of one host, and nothing was sent")


class Appended(NamedTuple):
    """The result of a task: rows appended, and rows that an earlier attempt had appended."""

    appended: int
    in_log: int


def append(
    batches: Iterator[pa.RecordBatch], task: TaskId, options: WriteOptions, columns: SinkColumns, since_ms: int
) -> Appended:
    """Append those rows of a task that are not in the log; returns when the acknowledgement asked for is there."""
    broker = engine_of(options.path)
    with TaskLock(broker.region_directory, task, options.timeout_s) as lock:
        from engine.producer import Producer  # compiled code, needed by no reader

        written = None
        if options.idempotent and lock.may_be_written:
            from spark_bridge.sink.log import written_keys

            written = written_keys(options.path, broker, since_ms, options.timeout_s)
        rows = Rows(
            columns,
            options.topic,
            drops_system_properties=options.drops_system_properties,
            body_bytes_max=int(broker.settings["maxMessageSize"]),
        )
        appended = in_log = 0
        with Producer(options.path, timeout=options.timeout_s) as producer:
            outlet = _Outlet(producer, partial(_queues_of, options.path, broker), columns.is_keyed, task)
            credits: dict[str, int] = {}
            for batch in batches:
                messages = rows.messages(batch)
                keys = row_keys(task.scope, messages)
                wanted = list(_missing(messages, keys, written, credits))
                outlet.send(messages, keys, wanted)
                appended, in_log = appended + len(wanted), in_log + len(messages) - len(wanted)
            outlet.settle(options.acks)
    return Appended(appended, in_log)


def engine_of(path: str) -> Running:
    """The broker that takes messages for this store. Raises NoEngine."""
    try:
        broker = running(path)
    except NotAStore as error:
        raise NoEngine(path, f"not a store ({error})") from error
    if broker is None:
        raise NoEngine(path, "no broker runs on this store" if os.path.isdir(path) else "no such directory")
    if broker.settings["brokerRole"] == "SLAVE":
        raise NoEngine(path, "give the path of its master's store: the broker is a slave")
    return broker


def _missing(
    messages: Messages, keys: list[str], written: WrittenKeys | None, credits: dict[str, int]
) -> Iterator[int]:
    """The rows that the log does not hold; of equal rows as many count as found as the log holds."""
    counts = written.counts(messages.topics, keys) if written is not None and keys else {}
    for row, key in enumerate(keys):
        left = credits.get(key, counts.get(key, 0)) if counts else 0
        if left:
            credits[key] = left - 1
        else:
            yield row


class _Queues(NamedTuple):
    """The queues of a topic that take turns, and the number below which one may be named."""

    turns: int
    ids: int


def _queues_of(path: str, broker: Running) -> Mapping[str, _Queues]:
    """The queues that each topic has to write to; "" stands for topics that the broker does not have yet."""
    table = Path(path) / CONFIG / TOPICS
    by_topic: dict[str, _Queues] = {}
    if table.exists():
        for topic, fields in broker_tables.topics(json_files.read(table), str(table)).items():
            read, write = (int(fields.get(name, CLIENT_QUEUES)) for name in ("readQueueNums", "writeQueueNums"))
            by_topic[topic] = _Queues(max(1, write), max(read, write))
    fresh = min(CLIENT_QUEUES, int(broker.settings["defaultTopicQueueNums"]))
    return {"": _Queues(fresh, fresh), **by_topic}


class _Outlet:
    """Rows to queues. Without a queue of its own, or a key, a row goes to whose turn it is."""

    def __init__(
        self, producer: Producer, find_queues: Callable[[], Mapping[str, _Queues]], is_keyed: bool, task: TaskId
    ) -> None:
        self._producer, self._find_queues, self._is_keyed = producer, find_queues, is_keyed
        self._queues = find_queues()
        self._turn = crc32(task.query.encode()) + task.partition + task.epoch  # writes begin anywhere

    def send(self, messages: Messages, keys: list[str], rows: list[int]) -> None:
        """Into the ring: the rows named, those of one queue together and in their order. Raises RowRefused."""
        if any(self._beyond(messages, rows)):
            self._queues = self._find_queues()
            refusals = [Refusal(messages.first_row + row, *why) for row, why in self._beyond(messages, rows)]
            if refusals:
                raise RowRefused(refusals)
        groups: dict[tuple[str, int], list[int]] = {}
        for number, row in enumerate(rows):
            topic = messages.topics[row]
            groups.setdefault((topic, self._queue(messages, row, topic, number // PIECE_ROWS)), []).append(row)
        self._turn += -(-len(rows) // PIECE_ROWS)
        for (topic, queue_id), chosen in groups.items():
            for part in _few_names(messages, chosen):
                self._send(topic, queue_id, messages, keys, part)

    def _beyond(self, messages: Messages, rows: list[int]) -> Iterator[tuple[int, tuple[str, str]]]:
        """The rows that name a queue which their topic does not have."""
        for row in rows:
            given, topic = messages.queue_ids[row], messages.topics[row]
            if given is not None and given >= (ids := self._queues.get(topic, self._queues[""]).ids):
                yield row, (f"queueId {given}", f"topic {topic} has queues 0 to {ids - 1}")

    def _queue(self, messages: Messages, row: int, topic: str, piece: int) -> int:
        given, key = messages.queue_ids[row], messages.keys[row]
        if given is not None:
            return given
        queues = self._queues.get(topic, self._queues[""]).turns
        return queue_of_key(key, queues) if self._is_keyed and key else (self._turn + piece) % queues

    def _send(self, topic: str, queue_id: int, messages: Messages, keys: list[str], rows: list[int]) -> None:
        names = dict.fromkeys(name for row in rows for name in messages.properties[row])
        properties = {name: [messages.properties[row].get(name) for row in rows] for name in names}
        self._producer.send_batch(
            topic,
            [messages.bodies[row] for row in rows],
            tags=_column([messages.tags[row] for row in rows]),
            keys=_column([messages.keys[row] for row in rows]),
            properties={**properties, UNIQ_KEY: [keys[row] for row in rows]},
            queue_id=queue_id,
            wait=False,
        )

    def settle(self, acks: str) -> None:
        """Wait for the acknowledgement asked for. Raises what `Producer.flush` raises."""
        if acks != NOTHING:
            self._producer.flush(appended_only=acks == "appended")


def _column(values: list[str | None]) -> list[str | None] | None:
    return values if any(values) else None


def _few_names(messages: Messages, rows: list[int]) -> Iterator[list[int]]:
    """The rows in order, cut so that one part's properties have few different names."""
    part: list[int] = []
    names: set[str] = set()
    for row in rows:
        more = messages.properties[row].keys() - names
        if part and more and len(names) + len(more) > NAMES_TOGETHER_MAX:
            yield part
            part, names = [], set()
        part.append(row)
        names.update(messages.properties[row])
    if part:
        yield part
