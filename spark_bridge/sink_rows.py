"""Rows of a DataFrame as messages: Arrow batches to checked columns, and for each row a key that names it.

A row's key is a hash of query, epoch, partition and everything that the row says, so it does not depend on the order
in which Spark gives the rows of a repeated task. Equal rows of a task have equal keys: who compares has to count them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_bridge.sink_options import SinkColumns

# Names that clients and brokers keep for themselves; KEYS and TAGS have columns of their own, DELAY and TIMER_* would
# have the broker store a message elsewhere.
SYSTEM_PROPERTIES = frozenset(
    "1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG DELAY "
    "DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INNER_BASE INNER_MULTI_DISPATCH "
    "INNER_MULTI_QUEUE_OFFSET INNER_NUM INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION "
    "MSG_TYPE ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME "
    "RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY "
    "TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSACTION_CHECK_TIMES TRANSFER_FLAG "
    "TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET UNIQ_KEY WAIT __CRC32# __transactionId__".split()
)
RESERVED = (
    "RocketMQ keeps this name for itself; remove it from the map, or write with .option('systemProperties', 'drop')"
)
DIGEST_BYTES = 12
TIME_DIGITS = "0" * 8  # where RocketMQ's tools look for a time: the beginning of the month


class RowRefused(ValueError):
    """A row that no message can be made of; nothing of its batch was sent."""

    code = "ROW_REFUSED"

    def __init__(self, row: int, what: str, why: str) -> None:
        super().__init__(f"row {row} of this task: {what}: {why}; no row of its batch was sent")


@dataclass(frozen=True)
class Messages:
    """Some rows, a list for each part. `tags`, `keys` None: the row has none; `queue_ids` None: any queue will do."""

    topics: Sequence[str]
    tags: Sequence[str | None]
    keys: Sequence[str | None]
    properties: Sequence[dict[str, str]]
    bodies: Sequence[bytes]
    queue_ids: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.bodies)


class Rows:
    """Takes the batches of one task apart. `first_row` counts on, for errors."""

    def __init__(self, columns: SinkColumns, topic: str | None, *, drops_system_properties: bool) -> None:
        self._columns, self._topic, self._drops = columns, topic, drops_system_properties
        self._first_row = 0

    def messages(self, batch: pa.RecordBatch) -> Messages:
        """The batch's rows. Raises RowRefused for the first that is no message."""
        count, first = batch.num_rows, self._first_row
        self._first_row += count

        def part(name: str) -> list[Any]:
            place = self._columns.places.get(name)
            return [None] * count if place is None else batch.column(place).to_pylist()

        topics = [self._topic] * count if self._topic is not None else part("topic")
        return Messages(
            topics=[_required(first + n, "topic", value) for n, value in enumerate(topics)],
            tags=[value or None for value in part("tags")],
            keys=[_keys(first + n, value) for n, value in enumerate(part("keys"))],
            properties=[self._properties(first + n, value) for n, value in enumerate(part("properties"))],
            bodies=[_body(first + n, value) for n, value in enumerate(part("body"))],
            queue_ids=[_queue_id(first + n, value) for n, value in enumerate(part("queue_id"))],
        )

    def _properties(self, row: int, value: Any) -> dict[str, str]:
        """A map's, or a list's of headers. Raises RowRefused for what RocketMQ would drop in silence."""
        if not value:
            return {}
        pairs = value if isinstance(value[0], tuple) else [(header["key"], header["value"]) for header in value]
        found: dict[str, str] = {}
        for name, text in pairs:
            if name in SYSTEM_PROPERTIES:
                if self._drops:
                    continue
                raise RowRefused(row, f"property {name}", RESERVED)
            if name in found:
                raise RowRefused(row, f"header {name}", "a message has one value for a name")
            if not name or not text:
                raise RowRefused(row, f"property {name!r}", "RocketMQ drops those without a name or a value")
            found[name] = _decoded(row, f"property {name}", text)
        return found


def row_keys(scope: bytes, messages: Messages) -> list[str]:
    """A unique key of RocketMQ's form for each message; `scope` stands for query, epoch and partition."""
    base = hashlib.blake2b(scope, digest_size=DIGEST_BYTES)
    keys = []
    for topic, tags, names, properties, body, queue_id in _parts(messages):
        digest = base.copy()
        listed = sorted(properties.items()) if properties else ""
        digest.update(f"{topic!r}{tags!r}{names!r}{listed!r}{queue_id!r}\n".encode("utf-8", "surrogatepass"))
        digest.update(body)
        text = digest.hexdigest().upper()
        keys.append(f"{text[:-4]}{TIME_DIGITS}{text[-4:]}")
    return keys


def _parts(messages: Messages) -> Iterator[tuple[str, str | None, str | None, dict[str, str], bytes, int | None]]:
    return zip(
        messages.topics, messages.tags, messages.keys, messages.properties, messages.bodies, messages.queue_ids,
        strict=True,
    )  # fmt: skip


def queue_of_key(key: str, queues: int) -> int:
    """The queue of all messages with this key."""
    return zlib.crc32(key.encode()) % queues


def _required(row: int, what: str, value: Any) -> Any:
    if not value:
        raise RowRefused(row, what, "it is null or empty")
    return value


def _keys(row: int, value: Any) -> str | None:
    """KEYS: as given, several with a blank between them, or Kafka's bytes."""
    if isinstance(value, list):
        if not all(value):
            raise RowRefused(row, "keys", "one of them is null or empty")
        return " ".join(value) or None
    return _decoded(row, "key", value) or None if value is not None else None


def _decoded(row: int, what: str, value: str | bytes) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RowRefused(row, what, f"it is kept as text, and its bytes are not UTF-8 ({error.reason})") from error


def _body(row: int, value: Any) -> bytes:
    if value is None:
        raise RowRefused(row, "body", "it is null, and RocketMQ has no messages without one (Kafka's tombstones)")
    return value.encode() if isinstance(value, str) else bytes(value)


def _queue_id(row: int, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise RowRefused(row, f"queueId {value}", "queues are numbered from 0")
    return value
