"""What a process on the broker's host calls to put messages: into its own ring of shared memory, no socket, no copy.

Implements: DefaultMQProducer, as far as a local process needs it
Every message is encoded here, in its final bytes; the writer gives it its place. `send` waits for what the broker
is set to: appended; on disk (SYNC_FLUSH); held by enough slaves (SYNC_MASTER).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from engine import encoding
from engine.answers import Answers
from engine.batch_outlet import check_sizes, publish_batch
from engine.batches import check_property, column_of
from engine.broker_puts import BrokerPuts, SendResult, Sent
from engine.connection import Connection
from engine.encoding import Column
from engine.errors import EngineError, MessageIllegal, MessagesRefused
from engine.property_texts import PropertyTexts, rows_of
from engine.protocol.group_transfer import PutMessageStatus
from engine.role import wall_clock_ms
from engine.single_put import LOOK, Form, form_of, put
from ipc import ring
from ipc.errors import RingFull
from store.errors import PropertiesTooLarge
from store.properties import DELAY, MAX_PROPERTIES_BYTES, NAME_SEPARATOR, PAIR_SEPARATOR, UNIQ_KEY
from store.put_again import PRODUCER_GROUP
from store.put_message import POLICY_PROPERTIES, TRANSACTION_PREPARED, SendRequest
from store.record import SysFlag

__all__ = ["BatchResult", "Producer", "PutMessageStatus", "SendRequest", "SendResult"]

RESERVED = ("KEYS", "TAGS")


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What became of a batch: `queue_offsets` and `physical_offsets` are int64[count], in the batch's order."""

    status: PutMessageStatus
    count: int
    queue_id: int
    queue_offsets: npt.NDArray[np.int64]
    physical_offsets: npt.NDArray[np.int64]


class Producer(BrokerPuts):
    """A connection to the broker that runs on `store` (its directory). Threads may share one, processes may not.

    Raises NoBroker at once when none runs there. `timeout` (seconds) is the default of all calls. `unique_keys` gives
    every message a UNIQ_KEY, as Java clients do; with compat 5 every message has one anyway.
    """

    def __init__(self, store: str | os.PathLike[str], *, timeout: float = 3.0, unique_keys: bool = False) -> None:
        super().__init__(Connection(os.fspath(store)), timeout)
        self._adds_keys, self._appends_crc = unique_keys, self._connection.facts.settings.appends_crc
        self._texts = PropertyTexts(self._connection.facts.settings, self._unique_keys, unique_keys=unique_keys)
        self._forms: dict[tuple[str, int], Form] = {}
        self._templates: dict[tuple[str, int], encoding.Template] = {}
        self._round_robin: dict[str, int] = {}
        self._answers: Answers | None = None

    @overload
    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = ..., keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ..., queue_id: int | None = ..., flag: int = ...,
        delay_level: int = ..., wait: Literal[True] = ..., timeout: float | None = ...,
    ) -> SendResult: ...  # fmt: skip

    @overload
    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = ..., keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ..., queue_id: int | None = ..., flag: int = ...,
        delay_level: int = ..., wait: bool, timeout: float | None = ...,
    ) -> SendResult | None: ...  # fmt: skip

    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = None, keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None, queue_id: int | None = None, flag: int = 0,
        delay_level: int = 0, wait: bool = True, timeout: float | None = None,
    ) -> SendResult | None:  # fmt: skip
        """Put one message. With `wait=False` returns None once it is in the ring; `flush` tells what became of it.

        With a `delay_level` (1 to 18) it waits in the delay topic; levels above the last are the last.
        Raises MessageIllegal and RingFull (nothing sent), MessagesRefused (not in the log), SendTimeout, BrokerGone.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        fields = _fields(tags, _joined(keys), properties, delay_level)
        with self._lock:
            sent = self._put(topic, body, fields, queue_id, flag, deadline_ms)
        return self._answer_of(sent, deadline_ms, began_ns) if wait else None

    def send_async(
        self, topic: str, body: bytes | str, *, tags: str | None = None, keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None, queue_id: int | None = None, flag: int = 0,
        delay_level: int = 0, timeout: float | None = None,
    ) -> Future[SendResult]:  # fmt: skip
        """Put one message; a future of its SendResult, or of what `send` would have raised behind the ring.

        `add_done_callback` of the future is the callback form; callbacks run in one thread of this producer.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        fields = _fields(tags, _joined(keys), properties, delay_level)
        with self._lock:
            if self._answers is None:
                self._answers = Answers()
            self._answers.await_room(deadline_ms)
            sent = self._put(topic, body, fields, queue_id, flag, deadline_ms)
            return self._answers.add(lambda: self._answer_of(sent, deadline_ms, began_ns))

    def send_half(
        self, topic: str, body: bytes | str, *, group: str, tags: str | None = None,
        keys: str | list[str] | None = None, properties: Mapping[str, str] | None = None,
        queue_id: int | None = None, flag: int = 0, timeout: float | None = None,
    ) -> SendResult:  # fmt: skip
        """Put the half message of a transaction of producer group `group`; `end_transaction` makes it seen, or not.

        Its result has the queue id where it will be, and the queue offset that it has among the half messages.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self._deadline(timeout)
        fields = {**_fields(tags, _joined(keys), properties), TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group}
        with self._lock:
            sent = self._put(topic, body, fields, queue_id, flag, deadline_ms, SysFlag.TRANSACTION_PREPARED)
        return self._answer_of(sent, deadline_ms, began_ns)

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
        fields = _fields(tags, keys, properties)
        if self._policies_apply(fields):
            return self._send_each(topic, column, fields, queue_id, wait, deadline_ms)
        texts = self._texts.column(count, fields)
        check_sizes(self._connection, column, texts.column)
        in_sync_slaves = self._connection.board.in_sync_slaves.read()
        if self._connection.checks_replicas:
            self._connection.require_replicas(in_sync_slaves)
        with self._lock:
            sent_to, template = self._queue(topic, queue_id, deadline_ms)
            places = np.zeros((count if wait else 0, 2), np.int64)
            publish_batch(self._connection, template, column, texts, places, deadline_ms)
        if not wait:
            return None
        physical_offsets, queue_offsets = places[:, 0], places[:, 1]
        refused = physical_offsets[physical_offsets < 0]
        if len(refused):
            raise MessagesRefused(self._connection.store, len(refused), -int(refused[-1]))
        status = PutMessageStatus.PUT_OK
        if count:
            bytes_of_last = np.diff(column.ends[-2:])[0] + np.diff(texts.column.ends[-2:])[0]
            last_bytes = len(template.record) + int(bytes_of_last)
            end_offset = int(physical_offsets[-1]) + last_bytes
            status = self._connection.status_of_log(end_offset, in_sync_slaves, deadline_ms)
            self._connection.clock.stop(began_ns)
        return BatchResult(status, count, sent_to, queue_offsets, physical_offsets)

    def flush(self, timeout: float | None = None, *, appended_only: bool = False) -> None:
        """Wait until the broker's settings are met for everything sent so far, or only until it is appended.

        Raises MessagesRefused, SendTimeout, BrokerGone; EngineError when all is appended but the status is not PUT_OK.
        """
        deadline_ms = self._deadline(timeout)
        connection = self._connection
        with self._lock:
            connection.await_appended(int(connection.outlet.local[ring.TAIL_LOCAL]) - 1, deadline_ms)
            connection.raise_refusals()
            end_offset = connection.board.max_physical_offset.read()
        if appended_only:
            return
        in_sync_slaves = connection.board.in_sync_slaves.read()
        status = connection.status_of_log(end_offset, in_sync_slaves, deadline_ms)
        if status is not PutMessageStatus.PUT_OK:
            raise EngineError(f"{connection.store}: everything sent is appended, but its status is {status.value}")

    def close(self) -> None:
        """Answer the futures, give the ring back. What was sent stays sent."""
        if self._answers is not None:
            self._answers.close()
        try:
            self._close_ops()
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _queue(self, topic: str, queue_id: int | None, deadline_ms: int) -> tuple[int, encoding.Template]:
        """The queue id, the next in turn when none is given, and its template."""
        queue_id = self._queue_id(topic, queue_id)
        template = self._templates.get((topic, queue_id))
        if template is None:
            template = self._connection.template_of(topic, queue_id, deadline_ms)
            self._templates[topic, queue_id] = template  # bounded by the broker's queue table
            self._forms[topic, queue_id] = form_of(template)
        return queue_id, template

    def _queue_id(self, topic: str, queue_id: int | None) -> int:
        if queue_id is None:
            queue_id = self._round_robin.get(topic, 0)
            self._round_robin[topic] = (queue_id + 1) % self._connection.queue_nums
        return queue_id

    def _policies_apply(self, fields: Mapping[str, Any]) -> bool:
        """Whether a message is more than its template and a property string."""
        return self._appends_crc or not POLICY_PROPERTIES.isdisjoint(fields)

    def _put(
        self, topic: str, body: bytes | str, fields: Mapping[str, str], queue_id: int | None, flag: int,
        deadline_ms: int, sys_flag: int = 0,
    ) -> Sent:  # fmt: skip
        """Publish one message in the ring."""
        connection = self._connection
        if connection.is_gone:  # the kernel sees what its broker says; a killed one says nothing
            connection.require_running()
        data = body if type(body) is bytes else body.encode() if isinstance(body, str) else bytes(memoryview(body))
        if self._policies_apply(fields):
            return self._put_by_policy(topic, data, fields, queue_id, flag, deadline_ms, sys_flag)
        if len(data) > connection.body_bytes_max:
            raise MessageIllegal(f"body of {len(data)} bytes", f"maxMessageSize is {connection.body_bytes_max}")
        if not data and not connection.facts.settings.policy.stores_empty_bodies:
            raise MessageIllegal("body", "RocketMQ 5.x refuses an empty one")
        encoded = self._texts.of(fields)
        if len(encoded) > MAX_PROPERTIES_BYTES:
            raise PropertiesTooLarge(len(encoded), MAX_PROPERTIES_BYTES)
        if (form := self._forms.get((topic, queue_id))) is None:  # type: ignore[arg-type]
            queue_id, _template = self._queue(topic, queue_id, deadline_ms)
            form = self._forms[topic, queue_id]
        in_sync_slaves = connection.board.in_sync_slaves.read() if connection.slaves_needed else 0
        if connection.checks_replicas:
            connection.require_replicas(in_sync_slaves)
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
        return Sent(number, queue_id, length, in_sync_slaves)  # type: ignore[arg-type]

    def _put_by_policy(
        self, topic: str, body: bytes, fields: Mapping[str, str], queue_id: int | None, flag: int, deadline_ms: int,
        sys_flag: int = 0,
    ) -> Sent:  # fmt: skip
        """The same for a message that the broker's rules make something else of."""
        for name, value in fields.items():
            check_property(name, value)
        if self._adds_keys and UNIQ_KEY not in fields:
            fields = {**fields, UNIQ_KEY: self._unique_keys.new()}
        properties = PAIR_SEPARATOR.join(f"{name}{NAME_SEPARATOR}{value}" for name, value in fields.items())
        request = SendRequest(
            topic=topic, body=bytes(body), queue_id=self._queue_id(topic, queue_id), flag=flag, sys_flag=sys_flag,
            properties=properties, born_timestamp_ms=wall_clock_ms(), born_host=self._connection.store_host,
        )  # fmt: skip
        draft, waits = self._draft_of(request)
        return self._publish(draft, waits, deadline_ms, request.queue_id)

    def _send_each(
        self, topic: str, column: Column, fields: Mapping[str, Any], queue_id: int | None, wait: bool, deadline_ms: int
    ) -> BatchResult | None:
        """A batch whose messages go through the broker's rules, one by one."""
        began_ns, results = time.monotonic_ns(), []
        with self._lock:
            sent_to = self._queue_id(topic, queue_id)
            for number, row in enumerate(rows_of(len(column.ends) - 1, fields)):
                body = column.data[column.ends[number] : column.ends[number + 1]].tobytes()
                sent = self._put_by_policy(topic, body, row, sent_to, 0, deadline_ms)
                if wait:
                    results.append(self._answer_of(sent, deadline_ms, began_ns))
        if not wait:
            return None
        status = results[-1].status if results else PutMessageStatus.PUT_OK
        places = np.array([(one.physical_offset, one.queue_offset) for one in results], np.int64).reshape(-1, 2)
        return BatchResult(status, len(places), sent_to, places[:, 1], places[:, 0])


def _joined(keys: str | list[str] | None) -> str | None:
    return keys if keys is None or isinstance(keys, str) else " ".join(keys)


def _fields(tags: Any, keys: Any, properties: Mapping[str, Any] | None, delay_level: int = 0) -> dict[str, Any]:
    """The properties of a message, or of a batch, by name. Raises MessageIllegal."""
    fields: dict[str, Any] = {}
    if keys is not None:
        fields["KEYS"] = keys
    if tags is not None:
        fields["TAGS"] = tags
    if properties:
        for name in RESERVED:
            if name in properties:
                raise MessageIllegal(f"property {name}", "it has an argument of its own")
        fields.update(properties)
    if delay_level:
        fields[DELAY] = str(delay_level)
    return fields
