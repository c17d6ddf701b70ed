"""Captured records back to what their clients asked for: what the broker added is taken off, and order is shuffled.

A golden store does not hold requests, but records say enough: properties that the broker adds are known by name,
messages that it wrote from others are found by their client id. Each yields the draft that our policies make of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from store.message.hash_map import spread
from store.message.properties import parse_text
from store.message.record import Message, SysFlag
from store.message.topics import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX
from store.put.batch import Item, batch_to_log, received_batch
from store.put.draft import Draft, draft_of, draft_of_batch
from store.put.java_map import JavaMap
from store.put.policy import Facts
from store.put.request import SendRequest, Stored, received, to_log
from store.put.resend import (
    SendBack,
    checked_half,
    committed,
    delivered,
    given_up_half,
    op_message,
    op_offsets,
    sent_back,
)
from tests.harness.batches import batch_body

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
ADDED = {"CLUSTER", "MSG_REGION", "TRACE_ON", "REAL_TOPIC", "REAL_QID", "__transactionId__", "__CRC32#"}
ADDED |= {"INNER_MULTI_QUEUE_OFFSET", "INNER_BASE", "INNER_NUM"}


class Requests:
    """Walks over a store's messages and makes each from its request, or from the message it was made of."""

    def __init__(self, facts: Facts, seed: int) -> None:
        self._facts, self._random = facts, random.Random(seed)
        self._by_client: dict[tuple[str, str | None, int], Message] = {}
        self._by_offset: dict[int, Message] = {}
        self.kinds: dict[str, int] = {}

    def drafts(self, messages: list[Message]) -> Iterator[tuple[Draft, int, list[Message]]]:
        """(draft, store time, the captured records it stands for), in the log's order."""
        at = 0
        while at < len(messages):
            message = messages[at]
            group = self._batch(messages, at) if "Batch" in message.topic else [message]
            kind, draft = self._batched(group) if "Batch" in message.topic else self._single(message)
            self.kinds[kind] = self.kinds.get(kind, 0) + len(group)
            for one in group:
                self._by_offset[one.physical_offset] = one
                self._by_client[one.topic, one.properties.get("UNIQ_KEY"), one.reconsume_times] = one
            yield draft, message.store_timestamp_ms, group
            at += len(group)

    def _single(self, message: Message) -> tuple[str, Draft]:
        kind, stored = self._stored(message)
        facts = replace(self._facts, store_host=message.store_host)
        return kind, draft_of(to_log(stored, facts), facts)

    def _stored(self, message: Message) -> tuple[str, Stored]:
        facts, properties = replace(self._facts, store_host=message.store_host), message.properties
        key = properties.get("UNIQ_KEY")
        if message.topic == OP_TOPIC:
            numbers = [int(number) for number in bytes(message.body).decode().split(",") if number]
            offsets = "".join(op_offsets(number, facts) for number in numbers)
            return "op", op_message(message.queue_id, offsets, facts, message.born_timestamp_ms)
        half = self._by_client.get((HALF_TOPIC, key, 0))
        if message.topic == CHECK_MAX_TOPIC:
            assert half is not None
            return "given up", given_up_half(half, facts)
        if message.topic == HALF_TOPIC and half is not None:
            return "half checked", checked_half(half, facts, int(properties["TRANSACTION_CHECK_TIMES"]))
        if message.sys_flag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_COMMIT:
            return "committed", committed(self._by_offset[message.prepared_transaction_offset], facts)
        if message.topic == SCHEDULE and properties.get("RETRY_TOPIC"):
            return "sent back", self._sent_back(message, facts)
        delayed = self._by_client.get((SCHEDULE, key, message.reconsume_times))
        if message.topic != SCHEDULE and delayed is not None and delayed.properties["REAL_TOPIC"] == message.topic:
            return "delivered", delivered(delayed, facts)
        return self._sent(message, facts)

    def _sent_back(self, message: Message, facts: Facts) -> Stored:
        properties = message.properties
        original = self._by_client[properties["RETRY_TOPIC"], properties["UNIQ_KEY"], message.reconsume_times - 1]
        group = properties["REAL_TOPIC"].removeprefix(RETRY_PREFIX)
        level, queue_id = int(properties["DELAY"]), int(properties["REAL_QID"])
        return sent_back(original, SendBack(group=group, delay_level=level, queue_id=queue_id), facts)

    def _sent(self, message: Message, facts: Facts) -> tuple[str, Stored]:
        properties, topic, queue_id = message.properties, message.topic, message.queue_id
        kind = {SCHEDULE: "delayed", HALF_TOPIC: "half"}.get(topic, "sent")
        if "REAL_TOPIC" in properties:
            topic, queue_id = properties["REAL_TOPIC"], int(properties["REAL_QID"])
        if message.topic == "OFFSET_MOVED_EVENT":  # the broker's own, made by a pull
            fields, text = JavaMap(16, properties.items()), message.properties_raw.decode()
            event = received(self._request(message, "any", queue_id), facts, "")
            return "event", replace(event, topic=topic, properties=text, fields=fields)
        request = self._request(message, topic, queue_id)
        if message.sys_flag & SysFlag.INNER_BATCH:
            inner = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
            return "inner batch", received_batch(replace(request, sys_flag=message.sys_flag & ~inner), facts)
        if "INNER_MULTI_DISPATCH" in properties:
            kind = "multi-dispatch"
        return kind, received(request, facts, "")

    def _request(self, message: Message, topic: str, queue_id: int) -> SendRequest:
        return SendRequest(
            topic=topic,
            queue_id=queue_id,
            body=bytes(message.body),
            sys_flag=message.sys_flag,
            flag=message.flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            properties=self._sent_properties(message.properties),
            reconsume_times=message.reconsume_times,
        )

    def _sent_properties(self, properties: dict[str, str]) -> str:
        """What the client sent: less the broker's own, WAIT first, in any order that keeps that of each bucket."""
        buckets: dict[int, list[tuple[str, str]]] = {}
        for name, value in {"WAIT": "true", **properties}.items():
            if name not in ADDED:
                buckets.setdefault(spread(name) & (self._facts.policy.map_capacity - 1), []).append((name, value))
        groups = list(buckets.values())
        self._random.shuffle(groups)
        return "\x02".join(f"{name}\x01{value}" for group in groups for name, value in group)

    def _batch(self, messages: list[Message], at: int) -> list[Message]:
        first = messages[at]
        end = at
        while (
            end < len(messages)
            and messages[end].topic == first.topic
            and (messages[end].born_timestamp_ms, messages[end].queue_id, messages[end].store_timestamp_ms)
            == (first.born_timestamp_ms, first.queue_id, first.store_timestamp_ms)
        ):
            end += 1
        return messages[at:end]

    def _batched(self, group: list[Message]) -> tuple[str, Draft]:
        facts, first = replace(self._facts, store_host=group[0].store_host), group[0]
        begin = b"MSG_REGION\x01" if facts.policy.adds_region else b"CLUSTER\x01"
        items, shared = [], b""
        for message in group:
            own, shared = (
                message.properties_raw[: (cut := message.properties_raw.rindex(begin))],
                message.properties_raw[cut:],
            )
            items.append(Item(message.flag, bytes(message.body), own.removesuffix(b"\x02")))
        asked = parse_text(shared.decode())
        request = replace(
            self._request(first, first.topic, first.queue_id),
            body=batch_body(items),
            batch=True,
            flag=0,
            properties=self._sent_properties(asked),
        )
        batch = received_batch(request, facts)
        return "batch", draft_of_batch(batch_to_log(batch, facts), facts)
