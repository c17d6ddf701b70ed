"""Messages as records, encoded but for what only the writer knows: a `Draft` says where that goes.

Implements: MessageExtEncoder, MultiDispatch.wrapMultiDispatch (4.9), LmqDispatch and handlePropertiesForLmqMsg (5.x),
BatchConsumeQueue.assignQueueOffset (spec: store-formats, sections 3, 5, 8)
The writer gives every record its offsets and its store time. Some records also have queue offsets as decimal text among
their properties, so that their length depends on them, or a CRC over all of it at their end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from store.errors import InvalidMessage
from store.message.delay import SCHEDULE_TOPIC
from store.message.properties import (
    CRC_PROPERTY_BYTES,
    INNER_BASE,
    INNER_NUM,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    WAIT,
)
from store.message.record import MAGIC_V1, MAGIC_V2, MAX_RECORD_OVERHEAD_BYTES, MAX_TOPIC_BYTES, SysFlag, encode
from store.message.topics import RETRY_PREFIX, SYSTEM_PREFIX, is_lmq
from store.put.java_map import JavaMap
from store.put.policy import Facts, text_bytes
from store.put.request import Stored, check_sizes, java_int

NAMES_SEPARATOR = ","
SHORT_MAX = (1 << 15) - 1
DISPATCHES_MAX = 4096  # queues that one message may name besides its own


class Hole(IntEnum):
    """The decimal text that the writer writes between two pieces of a draft."""

    OWN_OFFSET = -1  # the offset in its own queue
    OTHER_OFFSETS = -2  # those in `others`, with commas between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Records of one queue that go into the log together. With holes there is one record, and `properties_at` says
    where in the first piece the length of its properties lies."""

    topic: str
    queue_id: int
    pieces: tuple[bytes, ...]
    holes: tuple[Hole, ...] = ()
    others: tuple[tuple[str, int] | None, ...] = ()  # queues with offsets of their own; None: shown as nothing
    others_count: bool = True  # their offsets move on
    others_repeat: bool = False  # … as often as they are named
    is_counted: bool = True  # takes `step` offsets of its queue; else its offset is 0
    step: int = 1
    properties_at: int = 0
    has_crc: bool = False
    records: int = 1
    record_bytes_max: int

    @property
    def is_plain(self) -> bool:
        """Whether the writer has only to patch its fixed fields."""
        return self.records == 1 and self.step == 1 and self.is_counted and not self.holes and not self.has_crc


def draft_of(stored: Stored, facts: Facts) -> Draft:
    """The record of one message that `to_log` has passed. Raises InvalidMessage, PropertiesTooLarge."""
    others, wrapped = _dispatched(stored, facts)
    holes: dict[str, Hole] = {}
    if stored.is_counted and stored.sys_flag & SysFlag.INNER_BATCH and facts.policy.inner_batches:
        wrapped.fields.put(INNER_BASE, "")
        holes[INNER_BASE] = Hole.OWN_OFFSET
    if others:
        holes[MULTI_QUEUE_OFFSET] = Hole.OTHER_OFFSETS
    limit = facts.message_bytes_max
    if not (others and facts.policy.inner_batches):  # 5.x compares a record with others to maxMessageSize itself
        limit += MAX_RECORD_OVERHEAD_BYTES
    if not holes:
        return _without_holes([wrapped], facts, limit)
    texts, kinds = _split(wrapped.fields, holes, facts)
    if others and facts.policy.removes_wait:
        texts, kinds = _split(_without_wait(wrapped.fields), holes, facts)
    pieces = [text_bytes(text) for text in texts]
    if facts.appends_crc:
        pieces[-1] += bytes(CRC_PROPERTY_BYTES)
    check_sizes(len(stored.body), 0, sum(map(len, pieces)), facts)
    head = _record(replace(wrapped, raw_properties=b""))
    return Draft(
        topic=stored.topic,
        queue_id=stored.queue_id,
        pieces=(head + pieces[0], *pieces[1:]),
        holes=tuple(kinds),
        others=others,
        others_count=stored.is_counted or not facts.policy.multi_dispatch_of_all,
        others_repeat=facts.policy.multi_dispatch_repeats,
        is_counted=stored.is_counted,
        step=_step(stored, facts),
        properties_at=len(head) - 2,
        has_crc=facts.appends_crc,
        record_bytes_max=limit,
    )


def draft_of_batch(messages: list[Stored], facts: Facts) -> Draft:
    """The records of a classic batch, all of one queue. Raises InvalidMessage, PropertiesTooLarge."""
    return _without_holes(messages, facts, facts.message_bytes_max + MAX_RECORD_OVERHEAD_BYTES)


def _without_holes(messages: list[Stored], facts: Facts, limit: int) -> Draft:
    records = []
    for message in messages:
        raw = message.raw_properties if message.raw_properties is not None else text_bytes(message.properties)
        if facts.appends_crc:
            between = PAIR_SEPARATOR.encode() if raw and not raw.endswith(PAIR_SEPARATOR.encode()) else b""
            raw += between + bytes(CRC_PROPERTY_BYTES)
        check_sizes(len(message.body), 0, len(raw), facts)
        record = _record(replace(message, raw_properties=raw))
        check_sizes(len(message.body), len(record), len(raw), facts)
        records.append(record)
    first = messages[0]
    return Draft(
        topic=first.topic,
        queue_id=first.queue_id,
        pieces=(b"".join(records),),
        is_counted=first.is_counted,
        step=_step(first, facts),
        has_crc=facts.appends_crc,
        records=len(records),
        record_bytes_max=limit,
    )


def _record(stored: Stored) -> bytes:
    assert stored.raw_properties is not None
    return encode(
        topic=stored.topic,
        body=stored.body,
        queue_id=stored.queue_id,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        properties=stored.raw_properties,
        prepared_transaction_offset=stored.prepared_transaction_offset,
        magic=MAGIC_V2 if len(stored.topic) > MAX_TOPIC_BYTES else MAGIC_V1,
    )


def _step(stored: Stored, facts: Facts) -> int:
    """Return how many offsets of its queue the message takes."""
    if not (facts.policy.inner_batches and stored.sys_flag & SysFlag.INNER_BATCH and INNER_NUM in stored.fields):
        return 1
    return max(1, java_int(stored.fields[INNER_NUM], INNER_NUM, -SHORT_MAX - 1, SHORT_MAX))


def _dispatched(stored: Stored, facts: Facts) -> tuple[tuple[tuple[str, int] | None, ...], Stored]:
    """The queues that a message names besides its own, and the message with room for their offsets."""
    named, policy = stored.fields.get(MULTI_DISPATCH, ""), facts.policy
    if not named.strip() or not (facts.enable_multi_dispatch if policy.multi_dispatch_of_all else facts.enable_lmq):
        return (), replace(stored, fields=stored.fields.copy())
    if not policy.multi_dispatch_of_all and (
        stored.topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or stored.topic == SCHEDULE_TOPIC
    ):
        return (), replace(stored, fields=stored.fields.copy())
    others: list[tuple[str, int] | None] = []
    for name in named.rstrip(NAMES_SEPARATOR).split(NAMES_SEPARATOR):
        is_named = is_lmq(name) and facts.enable_lmq
        if not is_named and policy.multi_dispatch_of_all and not name:
            raise InvalidMessage(f"property {MULTI_DISPATCH}", f"{named!r} names a queue without a name")
        others.append((name, 0 if is_named else stored.queue_id) if is_named or policy.multi_dispatch_of_all else None)
    if len(others) > DISPATCHES_MAX:
        raise InvalidMessage(f"property {MULTI_DISPATCH}", f"it names {len(others)} queues, at most {DISPATCHES_MAX}")
    fields = stored.fields.copy()
    fields.put(MULTI_QUEUE_OFFSET, "")
    if WAIT in fields:
        fields.put(WAIT, fields.pop(WAIT))
    return tuple(others), replace(stored, fields=fields)


def _without_wait(fields: JavaMap) -> JavaMap:
    kept = fields.copy()
    kept.pop(WAIT, None)
    return kept


def _split(fields: JavaMap, holes: dict[str, Hole], facts: Facts) -> tuple[list[str], list[Hole]]:
    """The property string, cut where a hole's value belongs; the holes in order."""
    texts, kinds, text = [], [], ""
    for number, (name, value) in enumerate(fields.ordered()):
        text += f"{PAIR_SEPARATOR if number else ''}{name}{NAME_SEPARATOR}"
        if name in holes:
            texts.append(text)
            kinds.append(holes[name])
            text = ""
        else:
            text += value
    return [*texts, text + (PAIR_SEPARATOR if facts.policy.trailing_separator else "")], kinds


def starts_of(records: bytes) -> Iterator[int]:
    """Yield the position of each of several records."""
    at = 0
    while at < len(records):
        yield at
        at += int.from_bytes(records[at : at + 4], "big")
