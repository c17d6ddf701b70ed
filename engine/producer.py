"""What a process on the broker's host calls to put messages: into its own ring of shared memory, no socket, no copy.

Implements: DefaultMQProducer, as far as a local process needs it
Every message is encoded here, in its final bytes; the writer gives it its place. `send` waits for what the broker
is set to: appended; on disk (SYNC_FLUSH); held by enough slaves (SYNC_MASTER).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt

from engine import encoding, unique_keys
from engine.answers import Answers
from engine.batches import as_bytes, column_of, properties_of, property_column
from engine.connection import LIVENESS_NS, Connection
from engine.encoding import Column
from engine.errors import BatchIncomplete, EngineError, MessageIllegal, MessagesRefused
from engine.protocol.group_transfer import PutMessageStatus
from engine.role import wall_clock_ms
from engine.single_put import LOOK, Form, follow, form_of, put
from ipc import ring
from ipc.errors import RingFull
from ipc.waiting import NS_PER_MS
from store.properties import MAX_PROPERTIES_BYTES
from store.put_message import SendRequest, Stored, record_of, stored_message

__all__ = ["BatchResult", "Producer", "PutMessageStatus", "SendRequest", "SendResult"]

RESERVED = ("KEYS", "TAGS")


class SendResult(NamedTuple):
    """What became of one message. `message_id` is RocketMQ's offsetMsgId."""

    status: PutMessageStatus
    message_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What became of a batch: `queue_offsets` and `physical_offsets` are int64[count], in the batch's order."""

    status: PutMessageStatus
    count: int
    queue_id: int
    queue_offsets: npt.NDArray[np.int64]
    physical_offsets: npt.NDArray[np.int64]


class Producer:
    """A connection to the broker that runs on `store` (its directory). Threads may share one, processes may not.

    Raises NoBroker at once when none runs there. `timeout` (seconds) is the default of all calls.
    """

    def __init__(self, store: str | os.PathLike[str], *, timeout: float = 3.0) -> None:
        self._timeout_ms = int(timeout * 1000)
        self._connection = Connection(os.fspath(store))
        self._templates: dict[tuple[str, int], encoding.Template] = {}
        self._forms: dict[tuple[str, int], Form] = {}
        self._round_robin: dict[str, int] = {}
        self._lock = threading.Lock()
        self._answers: Answers | None = None

    @overload
    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = ..., keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ..., queue_id: int | None = ..., flag: int = ...,
        wait: Literal[True] = ..., timeout: float | None = ...,
    ) -> SendResult: ...  # fmt: skip

    @overload
    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = ..., keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ..., queue_id: int | None = ..., flag: int = ...,
        wait: bool, timeout: float | None = ...,
    ) -> SendResult | None: ...  # fmt: skip

    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = None, keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None, queue_id: int | None = None, flag: int = 0,
        wait: bool = True, timeout: float | None = None,
    ) -> SendResult | None:  # fmt: skip
        """Put one message. With `wait=False` returns None once it is in the ring; `flush` tells what became of it.

        Raises MessageIllegal and RingFull (nothing sent), MessagesRefused (not in the log), SendTimeout, BrokerGone.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        in_sync_slaves = self._connection.board.in_sync_slaves.read() if self._connection.slaves_needed else 0
        with self._lock:
            number, sent_to, length = self._put(topic, body, tags, keys, properties, queue_id, flag, deadline_ms)
        if not wait:
            return None
        return self.result_of(number, sent_to, length, in_sync_slaves, deadline_ms, began_ns)

    def send_async(
        self, topic: str, body: bytes | str, *, tags: str | None = None, keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None, queue_id: int | None = None, flag: int = 0,
        timeout: float | None = None,
    ) -> Future[SendResult]:  # fmt: skip
        """Put one message; a future of its SendResult, or of what `send` would have raised behind the ring.

        `add_done_callback` of the future is the callback form; callbacks run in one thread of this producer.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        in_sync_slaves = self._connection.board.in_sync_slaves.read()
        with self._lock:
            if self._answers is None:
                self._answers = Answers()
            self._answers.await_room(deadline_ms)
            number, sent_to, length = self._put(topic, body, tags, keys, properties, queue_id, flag, deadline_ms)
            return self._answers.add(
                lambda: self.result_of(number, sent_to, length, in_sync_slaves, deadline_ms, began_ns)
            )

    def send_batch(
        self, topic: str, bodies: Any, *, tags: Any = None, keys: Any = None,
        properties: Mapping[str, Any] | None = None, queue_id: int | None = None,
        wait: bool = True, timeout: float | None = None,
    ) -> BatchResult | None:  # fmt: skip
        """Put many messages into one queue: a sequence of bytes, a numpy or an Arrow column (taken in place).

        `tags`, `keys` and each value of `properties` are one str for all, or a sequence with one for each message.
        Messages become visible in order, each whole; the batch as such is not one unit. Raises as `send`, and
        BatchIncomplete when only its beginning found room in the ring within the time.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        column = column_of(bodies, "bodies")
        count = len(column.ends) - 1
        fields = {"KEYS": keys, "TAGS": tags, **_user_properties(properties)}
        encoded = property_column(count, {name: value for name, value in fields.items() if value is not None})
        self._check_sizes(column, encoded)
        in_sync_slaves = self._connection.board.in_sync_slaves.read()
        with self._lock:
            sent_to, template = self._queue(topic, queue_id, deadline_ms)
            places = np.zeros((count if wait else 0, 2), np.int64)
            self._put_batch(template, column, encoded, places, deadline_ms)
        if not wait:
            return None
        physical_offsets, queue_offsets = places[:, 0], places[:, 1]
        refused = physical_offsets[physical_offsets < 0]
        if len(refused):
            raise MessagesRefused(self._connection.store, len(refused), -int(refused[-1]))
        status = PutMessageStatus.PUT_OK
        if count:
            last_bytes = len(template.record) + int(np.diff(column.ends[-2:])[0] + np.diff(encoded.ends[-2:])[0])
            end_offset = int(physical_offsets[-1]) + last_bytes
            status = self._connection.status_of_log(end_offset, in_sync_slaves, deadline_ms)
            self._connection.clock.stop(began_ns)
        return BatchResult(status, count, sent_to, queue_offsets, physical_offsets)

    def put_message(self, request: SendRequest, *, timeout: float | None = None) -> SendResult:
        """Store what a client sent, as the broker of the setting `compat` does, and wait for it.

        Raises InvalidMessage, PropertiesTooLarge (nothing sent), and what `send` raises.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        connection = self._connection
        stored = stored_message(request, connection.facts, unique_keys.new_key)
        in_sync_slaves = connection.board.in_sync_slaves.read()
        with self._lock:
            number, length = self._put_record(stored, deadline_ms)
        return self.result_of(number, stored.queue_id, length, in_sync_slaves, deadline_ms, began_ns)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker's settings are met for everything sent so far.

        Raises MessagesRefused, SendTimeout, BrokerGone; EngineError when all is appended but the status is not PUT_OK.
        """
        deadline_ms = self._deadline(timeout)
        connection = self._connection
        with self._lock:
            connection.await_appended(int(connection.outlet.local[ring.TAIL_LOCAL]) - 1, deadline_ms)
            connection.raise_refusals()
            end_offset = connection.board.max_physical_offset.read()
        in_sync_slaves = connection.board.in_sync_slaves.read()
        status = connection.status_of_log(end_offset, in_sync_slaves, deadline_ms)
        if status is not PutMessageStatus.PUT_OK:
            raise EngineError(f"{connection.store}: everything sent is appended, but its status is {status.value}")

    def close(self) -> None:
        """Answer the futures, give the ring back. What was sent stays sent."""
        if self._answers is not None:
            self._answers.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def result_of(
        self, number: int, queue_id: int, length: int, in_sync_slaves: int, deadline_ms: int, began_ns: int
    ) -> SendResult:
        """Wait for the answer to record `number` of the ring. Raises MessagesRefused, SendTimeout, BrokerGone."""
        connection, is_done, status = self._connection, False, PutMessageStatus.PUT_OK
        if connection.follows_one and in_sync_slaves >= connection.slaves_needed:
            is_done, physical_offset, queue_offset = follow(connection.block, number, length, LIVENESS_NS, began_ns)
        if not is_done:
            status, physical_offset, queue_offset = connection.await_status(
                number, length, in_sync_slaves, deadline_ms, began_ns
            )
        message_id = f"{connection.message_id_prefix}{physical_offset:016X}"
        return SendResult(status, message_id, queue_id, queue_offset, physical_offset)

    def _deadline(self, timeout: float | None) -> int:
        return time.time_ns() // NS_PER_MS + (self._timeout_ms if timeout is None else int(timeout * 1000))

    def _queue(self, topic: str, queue_id: int | None, deadline_ms: int) -> tuple[int, encoding.Template]:
        """The queue id, the next in turn when none is given, and its template."""
        if queue_id is None:
            queue_id = self._round_robin.get(topic, 0)
            self._round_robin[topic] = (queue_id + 1) % self._connection.queue_nums
        template = self._templates.get((topic, queue_id))
        if template is None:
            template = self._connection.template_of(topic, queue_id, deadline_ms)
            self._templates[topic, queue_id] = template  # bounded by the broker's queue table
            self._forms[topic, queue_id] = form_of(template)
        return queue_id, template

    def _put(
        self, topic: str, body: bytes | str, tags: str | None, keys: str | list[str] | None,
        properties: Mapping[str, str] | None, queue_id: int | None, flag: int, deadline_ms: int,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Publish one message in the ring: (its number, its queue id, its length)."""
        connection = self._connection
        data = body if type(body) is bytes else body.encode() if isinstance(body, str) else bytes(memoryview(body))
        if len(data) > connection.body_bytes_max:
            raise MessageIllegal(f"body of {len(data)} bytes", f"maxMessageSize is {connection.body_bytes_max}")
        encoded = b"" if tags is None and keys is None and not properties else _properties(tags, keys, properties)
        if (form := self._forms.get((topic, queue_id))) is None:  # type: ignore[arg-type]
            queue_id, _template = self._queue(topic, queue_id, deadline_ms)
            form = self._forms[topic, queue_id]
        length = form.length + len(data) + len(encoded)
        if length > connection.record_bytes_max:
            connection.require_running()
            connection.check_record(length)
        began_ms = 0
        while (number := put(connection.block, form.words, data, encoded, flag)) < 0:
            if number == LOOK:
                connection.require_running()
                connection.raise_refusals()
                continue
            began_ms = began_ms or wall_clock_ms()
            if not connection.await_room(deadline_ms):
                raise RingFull(connection.ring.path, length, wall_clock_ms() - began_ms)
        return number, queue_id, length  # type: ignore[return-value]

    def _put_record(self, stored: Stored, deadline_ms: int) -> tuple[int, int]:
        """Publish one encoded message in the ring: (its number, its length)."""
        connection = self._connection
        record = record_of(stored)
        _queue_id, template = self._queue(stored.topic, stored.queue_id, deadline_ms)
        connection.require_running()
        connection.raise_refusals()
        connection.check_record(len(record))
        arguments = (*connection.outlet, as_bytes(record), template.slot)
        began_ms = 0
        while (number := int(encoding.put_record(*arguments))) < 0:
            began_ms = began_ms or wall_clock_ms()
            if not connection.await_room(deadline_ms):
                raise RingFull(connection.ring.path, len(record), wall_clock_ms() - began_ms)
        return number, len(record)

    def _put_batch(
        self,
        template: encoding.Template,
        column: Column,
        encoded: Column,
        places: npt.NDArray[np.int64],
        deadline_ms: int,
    ) -> None:
        """Publish a batch, and collect its places (physical, queue offset) before their descriptors are used again."""
        connection = self._connection
        if len(column.ends) > 1:
            largest = int(np.diff(column.ends).max()) + int(np.diff(encoded.ends).max())
            connection.check_record(len(template.record) + largest)
        connection.require_running()
        connection.raise_refusals()
        count = len(column.ends) - 1
        first_number, began_ms = int(connection.outlet.local[ring.TAIL_LOCAL]), wall_clock_ms()
        published = collected = 0
        chunk, shared = connection.ring.descriptors // 4, len(encoded.ends) == 2
        while published < count:
            until = min(published + chunk, count)
            before = published
            published = int(
                encoding.put_many(
                    connection.outlet, template, column, encoded, shared, published, until, wall_clock_ms()
                )
            )
            if published == before and not connection.await_room(deadline_ms):
                raise BatchIncomplete(connection.store, published, count, wall_clock_ms() - began_ms)
            if len(places) and published - collected > 2 * chunk:
                collected = self._collect(first_number, collected, published - chunk, places, deadline_ms)
        if len(places):
            self._collect(first_number, collected, count, places, deadline_ms)

    def _collect(self, first_number: int, begin: int, end: int, places: npt.NDArray[np.int64], deadline_ms: int) -> int:
        connection = self._connection
        connection.await_appended(first_number + end - 1, deadline_ms)
        descriptors = connection.ring.words.reshape(-1, ring.DESCRIPTOR_WORDS)
        numbers = np.arange(first_number + begin, first_number + end) % connection.ring.descriptors
        places[begin:end] = descriptors[numbers, 2:4]
        connection.refusals_seen += int((places[begin:end, 0] < 0).sum())
        return end

    def _check_sizes(self, column: Column, encoded: Column) -> None:
        bodies, properties = np.diff(column.ends), np.diff(encoded.ends)
        if len(bodies) and int(bodies.max()) > self._connection.body_bytes_max:
            worst = int(bodies.argmax())
            raise MessageIllegal(
                f"body {worst} of {int(bodies[worst])} bytes", f"maxMessageSize is {self._connection.body_bytes_max}"
            )
        if len(properties) and int(properties.max()) > MAX_PROPERTIES_BYTES:
            worst = int(properties.argmax())
            raise MessageIllegal(f"properties of message {worst}", f"more than {MAX_PROPERTIES_BYTES} bytes")


def _user_properties(properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
    for name in RESERVED:
        if properties and name in properties:
            raise MessageIllegal(f"property {name}", "it has an argument of its own")
    return properties or {}


def _properties(tags: str | None, keys: str | list[str] | None, properties: Mapping[str, str] | None) -> bytes:
    """The property string of one message."""
    fields: dict[str, str] = {}
    if keys is not None:
        fields["KEYS"] = keys if isinstance(keys, str) else " ".join(keys)
    if tags is not None:
        fields["TAGS"] = tags
    encoded = properties_of({**fields, **_user_properties(properties)})
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise MessageIllegal(f"properties of {len(encoded)} bytes", f"more than {MAX_PROPERTIES_BYTES} bytes")
    return encoded
