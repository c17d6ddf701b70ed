"""Rows of a DataFrame as messages: Arrow batches to checked columns, and for each row a key that names it.

A row's key is a hash of query, epoch, partition and everything that the row says, so it does not depend on the order
in which Spark gives the rows of a repeated task. Equal rows of a task have equal keys: who compares has to count them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from spark_bridge.sink.options import SinkColumns
from store.errors import InvalidMessage
from store.message.properties import KEYS, MAX_PROPERTIES_BYTES, NAME_SEPARATOR, PAIR_SEPARATOR, RESERVED_NAMES, TAGS
from store.put.request import check_topic

RESERVED = (
    "RocketMQ keeps this name for itself; remove it from the map, or write with .option('systemProperties', 'drop')"
)
DIGEST_BYTES = 12
REFUSALS_TOLD_MAX, TEXT_TOLD_MAX = 10, 40
TOPICS_REMEMBERED_MAX, UTF8_BYTES_MAX = 1024, 4
BODY_BYTES_MAX, QUEUE_ID_MAX = 2**31 - 1, 2**31 - 1
TIME_DIGITS = "0" * 8  # where RocketMQ's tools look for a time: the beginning of the month


class Refusal(NamedTuple):
    """Reason why no message can be made of a row."""

    row: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"row {self.row} of this task: {self.what}: {self.why}"


class RowRefused(ValueError):
    """Raised for rows that cannot become messages; nothing of their batch was sent.

    Next: change or leave out the rows that the error names; `docs/examples/kafka.ipynb` says why each is refused.
    """

    code = "ROW_REFUSED"

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        text = "; ".join(map(str, refusals[:REFUSALS_TOLD_MAX]))
        more = len(refusals) - REFUSALS_TOLD_MAX
        super().__init__(text + (f"; and {more} more" if more > 0 else "") + "; no row of this batch was sent")
        self.refusals = list(refusals)


class _Refused(Exception):
    """A value that is refused: what, and why."""


@dataclass(frozen=True)
class Messages:
    """Rows as one list for each part. `tags`, `keys` None: the row has none; `queue_ids` None: any queue will do."""

    topics: Sequence[str]
    tags: Sequence[str | None]
    keys: Sequence[str | None]
    properties: Sequence[dict[str, str]]
    bodies: Sequence[bytes]
    queue_ids: Sequence[int | None]
    first_row: int = 0  # of the task, which is the first of these

    def __len__(self) -> int:
        return len(self.bodies)


class Rows:
    """Takes the batches of one task apart. `first_row` counts on, for errors."""

    def __init__(
        self,
        columns: SinkColumns,
        topic: str | None,
        *,
        drops_system_properties: bool | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._columns, self._topic, self._body_bytes_max = columns, topic, body_bytes_max
        # Headers that were read from a topic have what RocketMQ put there, and none of it was asked for by name.
        self._drops = columns.has_headers if drops_system_properties is None else drops_system_properties
        self._first_row = 0

    def messages(self, batch: pa.RecordBatch) -> Messages:
        """The batch's rows. Raises RowRefused with all that are no message, and why."""
        count, first = batch.num_rows, self._first_row
        self._first_row += count
        refusals: list[Refusal] = []

        def part(name: str) -> list[Any]:
            place = self._columns.places.get(name)
            return [None] * count if place is None else batch.column(place).to_pylist()

        def made(values: list[Any], make: Callable[[Any], Any]) -> list[Any]:
            try:
                return list(map(make, values))
            except _Refused:
                refusals.extend(_refusals_of(values, make, first))
                return [None] * count

        topics = made([self._topic] * count if self._topic is not None else part("topic"), _topic)
        properties = made(part("properties"), self._properties)
        tags, keys = made(part("tags"), _tags), made(part("keys"), _keys)
        if self._columns.has_headers:
            tags = self._from_headers("tags", TAGS, tags, properties)
            keys = self._from_headers("keys", KEYS, keys, properties)
        bodies, queue_ids = made(part("body"), self._body), made(part("queue_id"), _queue_id)
        if refusals:
            raise RowRefused(sorted(refusals))
        return Messages(topics, tags, keys, properties, bodies, queue_ids, first)

    def _properties(self, value: Any) -> dict[str, str]:
        """A map's, or a list's of headers. Refuses what RocketMQ would drop in silence."""
        if not value:
            return {}
        headers = not isinstance(value[0], tuple)
        pairs = [(header["key"], header["value"]) for header in value] if headers else value
        fields: dict[str, str] = {}
        for name, text in pairs:
            if name in RESERVED_NAMES and not (headers and name in (TAGS, KEYS) and self._drops):
                if self._drops:
                    continue
                raise _Refused(f"property {name}", RESERVED)
            if name in fields:
                raise _Refused(f"header {name}", "a message has one value for a name")
            if not name or not text:
                raise _Refused(f"property {name!r}", "RocketMQ drops those without a name or a value")
            fields[_storable("property's name", name)] = _decoded(f"property {name}", text)
        if _is_long(fields):
            raise _Refused("properties", f"they are longer than {MAX_PROPERTIES_BYTES} bytes together")
        return fields

    def _from_headers(
        self, part: str, name: str, values: list[str | None], properties: Sequence[dict[str, str] | None]
    ) -> list[str | None]:
        """The tags (keys) of rows; those among the headers where the rows have no such column."""
        own = [(fields or {}).pop(name, None) for fields in properties]
        return values if part in self._columns.places else own

    def _body(self, value: Any) -> bytes:
        if value is None:
            raise _Refused("body", "it is null, and RocketMQ has no messages without one (Kafka's tombstones)")
        body = value.encode() if isinstance(value, str) else bytes(value)
        if len(body) > self._body_bytes_max:
            raise _Refused("body", f"{len(body)} bytes, maxMessageSize is {self._body_bytes_max}")
        return body


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
        messages.topics,
        messages.tags,
        messages.keys,
        messages.properties,
        messages.bodies,
        messages.queue_ids,
        strict=True,
    )


def queue_of_key(key: str, queues: int) -> int:
    """The queue of all messages with this key."""
    return zlib.crc32(key.encode()) % queues


def _refusals_of(values: Iterable[Any], make: Callable[[Any], Any], first: int) -> Iterator[Refusal]:
    """Yield every value that is refused, and why."""
    for row, value in enumerate(values, first):
        try:
            make(value)
        except _Refused as refused:
            yield Refusal(row, *refused.args)


def _is_long(properties: dict[str, str]) -> bool:
    """Whether they are more than a record holds; their characters tell it of almost all."""
    characters = sum(map(len, properties)) + sum(map(len, properties.values())) + 2 * len(properties)
    if characters * UTF8_BYTES_MAX <= MAX_PROPERTIES_BYTES:
        return False
    return sum(len(f"{name}{text}".encode()) + 2 for name, text in properties.items()) > MAX_PROPERTIES_BYTES


@lru_cache(maxsize=TOPICS_REMEMBERED_MAX)
def _topic(value: str | None) -> str:
    if not value:
        raise _Refused("topic", "it is null or empty")
    try:
        check_topic(value)
    except InvalidMessage as error:
        raise _Refused(error.field, error.reason) from error
    return value


def _tags(value: str | None) -> str | None:
    return _storable("tags", value) if value else None


def _keys(value: Any) -> str | None:
    """KEYS: as given, several with a blank between them, or Kafka's bytes."""
    if isinstance(value, list):
        if not all(value):
            raise _Refused("keys", "one of them is null or empty")
        value = " ".join(value)
    return _decoded("key", value) or None if value is not None else None


def _decoded(what: str, value: str | bytes) -> str:
    try:
        return _storable(what, value if isinstance(value, str) else value.decode())
    except UnicodeDecodeError as error:
        raise _Refused(what, f"it is kept as text, and its bytes are not UTF-8 ({error.reason})") from error


def _storable(what: str, text: str) -> str:
    if NAME_SEPARATOR in text or PAIR_SEPARATOR in text:
        raise _Refused(what, f"{text[:TEXT_TOLD_MAX]!r}: 0x01 and 0x02 separate properties")
    return text


def _queue_id(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= QUEUE_ID_MAX:
        raise _Refused(f"queueId {value}", f"queues are numbered from 0 to {QUEUE_ID_MAX}")
    return value
