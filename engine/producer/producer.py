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
from typing import Any, Literal, Self, overload

import numpy as np

from engine.errors import BatchIncomplete, BrokerGone, EngineError, MessageIllegal, MessagesRefused, SendTimeout
from engine.producer.answers import Answers
from engine.producer.argument_checks import body_bytes, fields_of, joined, store_path, text, whole
from engine.producer.batch import BatchResult, PlaceColumn, check_sizes, places_for, publish_batch
from engine.producer.broker_puts import BrokerPuts, SendResult, Sent
from engine.producer.columns import check_property, column_of
from engine.producer.connection import Connection
from engine.producer.first_run import make_batches_ready
from engine.producer.property_texts import PropertyTexts, rows_of
from engine.producer.put_kernel import Form, NotPut, form_of, put
from engine.protocol.ha.put_status import PutMessageStatus
from engine.rings import encode_kernel
from engine.rings.encode_kernel import Column
from ipc.clock import NS_PER_MS, monotonic_ms, wall_ms
from ipc.errors import RingFull
from ipc.ring import LocalWord
from store.errors import PropertiesTooLarge
from store.message.properties import (
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from store.message.record import SysFlag
from store.put.draft import Draft
from store.put.request import POLICY_PROPERTIES, SendRequest

__all__ = ["BatchResult", "Producer", "PutMessageStatus", "SendRequest", "SendResult"]

TIMEOUT_SECONDS = 3.0  # sendMsgTimeout


class Producer(BrokerPuts):
    """A connection to the broker that runs on `store` (its directory). Threads may share one, processes may not: in a
    forked child every call raises ForeignProducer, as does pickling one. Dropped without `close` its ring is free.
    A call after its broker's end goes to the one that was started since; where something that was put has no answer,
    the call raises BrokerGone first, once, and it is never put again. Raises NoBroker when none runs there.
    `timeout` (seconds) is the default of all calls: 3, or as long as the broker's settings have a put wait
    (syncFlushTimeout, slaveTimeout), if longer. A shorter one ends that wait early, with the same status.
    `unique_keys` gives every message a UNIQ_KEY, as Java clients do; with compat 5 every message has one anyway.
    """

    def __init__(
        self, store: str | os.PathLike[str], *, timeout: float | None = None, unique_keys: bool = False
    ) -> None:
        connection = Connection(store_path(store))
        super().__init__(connection, max(TIMEOUT_SECONDS, connection.answer_ms / 1000) if timeout is None else timeout)
        self._adds_keys = unique_keys
        self._forms: dict[tuple[str, int], Form] = {}
        self._templates: dict[tuple[str, int], encode_kernel.Template] = {}
        self._take_settings()
        self._answers: Answers | None = None
        self._closing = threading.Lock()  # taken once, for good

    def _take_settings(self) -> None:
        settings = self._connection.facts.settings
        self._appends_crc = settings.appends_crc
        self._texts = PropertyTexts(settings, self._unique_keys, unique_keys=self._adds_keys)

    def _attached(self, connection: Connection) -> None:
        super()._attached(connection)
        self._take_settings()

    @overload
    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = ...,
        keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ...,
        queue_id: int | None = ...,
        flag: int = ...,
        delay_level: int = ...,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> SendResult: ...

    @overload
    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = ...,
        keys: str | list[str] | None = ...,
        properties: Mapping[str, str] | None = ...,
        queue_id: int | None = ...,
        flag: int = ...,
        delay_level: int = ...,
        wait: bool,
        timeout: float | None = ...,
    ) -> SendResult | None: ...

    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        flag: int = 0,
        delay_level: int = 0,
        wait: bool = True,
        timeout: float | None = None,
    ) -> SendResult | None:
        """Put one message. With `wait=False` returns None once it is in the ring; `flush` tells what became of it.

        With a `delay_level` (1 to 18) it waits in the delay topic; levels above the last are the last.
        Raises MessageIllegal and RingFull (nothing sent), MessagesRefused (not in the log), SendTimeout, BrokerGone.
        """
        began_ns = time.monotonic_ns()
        deadline_ms = began_ns // NS_PER_MS + self._timeout_ms if timeout is None else self.deadline(timeout)
        fields = fields_of(tags, joined(keys), properties, delay_level)
        try:
            with self._lock:
                sent = self._put(topic, body, fields, queue_id, flag, deadline_ms)
                if wait:
                    sent.connection.places.expect(sent.number)
                self._is_unanswered |= not wait
        except BrokerGone:
            with self._lock:
                sent = self._put_again(topic, body, fields, queue_id, flag, deadline_ms)
                self._is_unanswered |= not wait
            if not wait:
                sent.connection.places.forget(sent.number)
        return self._answer_of(sent, deadline_ms, began_ns) if wait else None

    def send_async(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        flag: int = 0,
        delay_level: int = 0,
        timeout: float | None = None,
    ) -> Future[SendResult]:
        """Put one message; a future of its SendResult, or of what `send` would have raised behind the ring.

        `add_done_callback` of the future is the callback form; callbacks run in one thread of this producer.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self.deadline(timeout)
        fields = fields_of(tags, joined(keys), properties, delay_level)
        with self._lock:
            if self._answers is None:
                self._connection.require_owned()
                self._answers = Answers(self._connection.store)
                self._when_dropped(self._answers.end)
            self._answers.await_room(deadline_ms)
            sent = self._put_again(topic, body, fields, queue_id, flag, deadline_ms)
            return self._answers.add(
                lambda: self._answer_of(sent, deadline_ms, began_ns), lambda: sent.connection.places.forget(sent.number)
            )

    def send_half(
        self,
        topic: str,
        body: bytes | str,
        *,
        group: str,
        tags: str | None = None,
        keys: str | list[str] | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        flag: int = 0,
        timeout: float | None = None,
    ) -> SendResult:
        """Put the half message of a transaction of producer group `group`; `end_transaction` makes it seen, or not.

        Its result has the queue id where it will be, and the queue offset that it has among the half messages.
        """
        began_ns, deadline_ms = time.monotonic_ns(), self.deadline(timeout)
        fields = fields_of(tags, joined(keys), properties)
        fields.update({TRANSACTION_PREPARED: "true", PRODUCER_GROUP: text(group, "group")})
        with self._lock:
            sent = self._put_again(topic, body, fields, queue_id, flag, deadline_ms, SysFlag.TRANSACTION_PREPARED)
        return self._answer_of(sent, deadline_ms, began_ns)

    def send_batch(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any = None,
        keys: Any = None,
        properties: Mapping[str, Any] | None = None,
        queue_id: int | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> BatchResult | None:
        """Put many messages into one queue: a sequence of bytes, a numpy or an Arrow column (taken in place).

        `tags`, `keys` and each value of `properties` are one str for all, or a sequence with one for each message.
        Messages become visible in order, each whole; the batch as such is not one unit. Raises as `send`, and
        BatchIncomplete when only its beginning found room in the ring within the time.
        """
        self._connection.require_owned()
        make_batches_ready(self._connection.counters)
        began_ns, deadline_ms = time.monotonic_ns(), self.deadline(timeout)
        column, fields = column_of(bodies, "bodies"), fields_of(tags, keys, properties)
        count = len(column.ends) - 1
        with self._lock:
            self._require_attached()
        if self._policies_apply(fields):
            return self._send_each(topic, column, fields, queue_id, wait, deadline_ms)
        texts = self._texts.column(count, fields)
        check_sizes(self._connection, column, texts.column)
        with self._lock:
            connection = self._connection
            in_sync_slaves = connection.counters.in_sync_slaves.read()
            if connection.checks_replicas:
                connection.require_replicas(in_sync_slaves)
            sent_to, template = self._queue(topic, queue_id, deadline_ms)
            places = places_for(count if wait else 0)
            self._is_unanswered |= not wait
            publish_batch(connection, template, column, texts, places, deadline_ms)
        if not wait:
            return None
        physical_offsets, queue_offsets = places[:, PlaceColumn.PHYSICAL_OFFSET], places[:, PlaceColumn.QUEUE_OFFSET]
        refused = physical_offsets[physical_offsets < 0]
        if len(refused):
            raise MessagesRefused(connection.store, len(refused), -int(refused[-1]))
        status = PutMessageStatus.PUT_OK
        if count:
            bytes_of_last = np.diff(column.ends[-2:])[0] + np.diff(texts.column.ends[-2:])[0]
            end_offset = int(physical_offsets[-1]) + len(template.record) + int(bytes_of_last)
            status = connection.await_status_at(end_offset, in_sync_slaves, deadline_ms)
            connection.clock.stop(began_ns)
        return BatchResult(status, count, sent_to, queue_offsets, physical_offsets)

    def flush(self, timeout: float | None = None, *, appended_only: bool = False) -> None:
        """Wait until the broker's settings are met for everything sent so far, or only until it is appended.

        Raises MessagesRefused, SendTimeout, BrokerGone; EngineError when all is appended but the status is not PUT_OK.
        """
        deadline_ms = self.deadline(timeout)
        self._connection.require_owned()
        try:
            with self._lock:
                self._require_attached()
                connection, self._is_unanswered = self._connection, False
                connection.await_appended(int(connection.outlet.local[LocalWord.TAIL]) - 1, deadline_ms)
                connection.raise_refusals()
                end_offset = connection.counters.max_physical_offset.read()
            if appended_only:
                return
            in_sync_slaves = connection.counters.in_sync_slaves.read()
            status = connection.await_status_at(end_offset, in_sync_slaves, deadline_ms)
            if status is not PutMessageStatus.PUT_OK:
                raise EngineError(f"{connection.store}: everything sent is appended, but its status is {status.value}")
        except BrokerGone:  # that is the answer
            raise
        except BaseException:
            self._is_unanswered = True
            raise

    def close(self) -> None:
        """Answer the futures, write pending op messages, give the ring back. What was sent stays sent.

        Harmless when done already, and in a forked child, where nothing of it is the child's to give back.
        """
        if self._connection.is_foreign or not self._closing.acquire(blocking=False):
            return
        if self._answers is not None:
            self._answers.close()
        try:
            self._ops.write(self.deadline(None))
        finally:
            self._ops.end()
            self._ops.join()
            self._connection.refuse_use()  # who waits for room in the ring has the lock
            with self._lock:
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _queue(self, topic: str, queue_id: int | None, deadline_ms: int) -> tuple[int, encode_kernel.Template]:
        """The queue id, the next in turn when none is given, and its template. Raises what the topic's rules refuse."""
        connection = self._connection
        self._follow_topics()
        queue_id = self._queue_id(topic, queue_id)
        connection.rules.check(topic, queue_id)
        template = self._templates.get((topic, queue_id))
        if template is None:
            template = connection.template_of(topic, queue_id, lambda: self._slot((topic, queue_id), deadline_ms))
            self._forms[topic, queue_id] = form_of(template)
            self._templates[topic, queue_id] = template  # the last: an exception may come between any two lines
        return queue_id, template

    def _form(self, topic: str, asked: int | None, queue_id: int | None, deadline_ms: int) -> tuple[int, Form]:
        """A queue id and its form, where they are not known (any more); `queue_id` had its turn if none was `asked`."""
        if self._follow_topics():
            turn = self._turns.get(topic)
            if asked is None and queue_id is not None and turn is not None:
                turn[0] = queue_id  # once more: there may be fewer queues by now
            queue_id = asked
        queue_id, _template = self._queue(topic, queue_id, deadline_ms)
        return queue_id, self._forms[topic, queue_id]

    def _forget_topics(self) -> None:
        self._templates.clear()
        self._forms.clear()
        super()._forget_topics()

    def _queue_id(self, topic: str, queue_id: int | None) -> int:
        text(topic, "topic")
        return self._next_queue(topic) if queue_id is None else whole(queue_id, "queue id", 0)

    def _policies_apply(self, fields: Mapping[str, Any]) -> bool:
        """Whether a message is more than its template and a property string."""
        return self._appends_crc or not POLICY_PROPERTIES.isdisjoint(fields)

    def _put(
        self,
        topic: str,
        body: bytes | str,
        fields: Mapping[str, str],
        queue_id: int | None,
        flag: int,
        deadline_ms: int,
        sys_flag: int = 0,
    ) -> Sent:
        """Publish one message in the ring."""
        connection = self._connection
        if connection.is_gone:  # the kernel sees what its broker says; a killed one says nothing
            connection.require_running()
        data = body if type(body) is bytes else body_bytes(body)
        if flag or type(flag) is not int:
            flag = whole(flag, "flag")
        if type(topic) is not str or (queue_id is not None and type(queue_id) is not int):
            text(topic, "topic")
            queue_id = None if queue_id is None else whole(queue_id, "queue id", 0)
        if self._policies_apply(fields):
            queue_id = self._queue_id(topic, queue_id)
            draft, waits = self._draft(topic, data, fields, queue_id, flag, sys_flag)
            return self._publish(draft, waits, deadline_ms, queue_id)
        if len(data) > connection.body_bytes_max:
            raise MessageIllegal(f"body of {len(data)} bytes", f"maxMessageSize is {connection.body_bytes_max}")
        if not data and not connection.facts.settings.policy.stores_empty_bodies:
            raise MessageIllegal("body", "RocketMQ 5.x refuses an empty one")
        encoded = self._texts.of(fields)
        if len(encoded) > MAX_PROPERTIES_BYTES:
            raise PropertiesTooLarge(len(encoded), MAX_PROPERTIES_BYTES)
        asked = queue_id
        if queue_id is None and topic in self._turns:
            queue_id = self._next_queue(topic)
        if (form := self._forms.get((topic, queue_id))) is None:  # type: ignore[arg-type]
            queue_id, form = self._form(topic, asked, queue_id, deadline_ms)
        in_sync_slaves = connection.counters.in_sync_slaves.read() if connection.slaves_needed else 0
        if connection.checks_replicas:
            connection.require_replicas(in_sync_slaves)
        length = form.length + len(data) + len(encoded)
        if length > connection.record_bytes_max:
            connection.require_running()
            connection.check_record(length)
        began_ms = 0
        while (number := put(connection.block, form.words, data, encoded, flag)) < 0:
            if number == NotPut.LOOK:
                connection.require_running()
                connection.raise_refusals()
                if not connection.topics_are_seen:
                    queue_id, form = self._form(topic, asked, queue_id, deadline_ms)
                if connection.room_to_publish() > 0:
                    continue
            began_ms = began_ms or monotonic_ms()
            if not connection.await_room(deadline_ms):
                raise RingFull(connection.ring.path, length, monotonic_ms() - began_ms)
        return Sent(connection, number, queue_id, length, in_sync_slaves)  # type: ignore[arg-type]

    def _put_again(
        self,
        topic: str,
        body: bytes | str,
        fields: Mapping[str, str],
        queue_id: int | None,
        flag: int,
        deadline_ms: int,
        sys_flag: int = 0,
    ) -> Sent:
        """Put like `_put`, to the broker that was started again if this one is gone, and expect its place."""
        try:
            sent = self._put(topic, body, fields, queue_id, flag, deadline_ms, sys_flag)
        except BrokerGone as gone:
            self._attach_again(gone)
            sent = self._put(topic, body, fields, queue_id, flag, deadline_ms, sys_flag)
        sent.connection.places.expect(sent.number)
        return sent

    def _draft(
        self, topic: str, body: bytes, fields: Mapping[str, str], queue_id: int, flag: int, sys_flag: int = 0
    ) -> tuple[Draft, bool]:
        """Return what is stored for a message that needs the broker's rules, and whether it waits."""
        for name, value in fields.items():
            check_property(name, value)
        if self._adds_keys and UNIQ_KEY not in fields:
            fields = {**fields, UNIQ_KEY: self._unique_keys.new()}
        properties = PAIR_SEPARATOR.join(f"{name}{NAME_SEPARATOR}{value}" for name, value in fields.items())
        return self._draft_of(
            SendRequest(
                topic=topic,
                body=body,
                queue_id=queue_id,
                flag=flag,
                sys_flag=sys_flag,
                properties=properties,
                born_timestamp_ms=wall_ms(),
                born_host=self._connection.store_host,
            )
        )

    def _send_each(
        self, topic: str, column: Column, fields: Mapping[str, Any], queue_id: int | None, wait: bool, deadline_ms: int
    ) -> BatchResult | None:
        """A batch whose messages go through the broker's rules, one by one; all checked before the first is sent."""
        began_ns, results, count = time.monotonic_ns(), [], len(column.ends) - 1
        with self._lock:
            self._is_unanswered |= not wait
            sent_to, drafts = self._queue_id(topic, queue_id), []
            for number, row in enumerate(rows_of(count, fields)):
                body = column.data[column.ends[number] : column.ends[number + 1]].tobytes()
                drafts.append(self._draft(topic, body, row, sent_to, 0))
                self._connection.check_record(sum(map(len, drafts[-1][0].pieces)))
            for number, (draft, waits) in enumerate(drafts):
                try:
                    sent = self._publish(draft, waits, deadline_ms, sent_to)
                except (RingFull, SendTimeout) as late:
                    waited_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
                    raise BatchIncomplete(self._connection.store, number, count, waited_ms) from late
                if wait:
                    sent.connection.places.expect(sent.number)
                    results.append(self._answer_of(sent, deadline_ms, began_ns))
        if not wait:
            return None
        status = results[-1].status if results else PutMessageStatus.PUT_OK
        queue_offsets = np.array([one.queue_offset for one in results], np.int64)
        physical_offsets = np.array([one.physical_offset for one in results], np.int64)
        return BatchResult(status, count, sent_to, queue_offsets, physical_offsets)
