"""What RocketMQ's own classes read from a store, line by line as its reference program `Manifest` prints it.

Implements: MessageDecoder.decode, CommitLog.checkMessageAndReturnSize, ConsumeQueue.getIndexBuffer,
    IndexService.queryOffset, printed as JSON
Message and blank lines come in log order, then the queues, then a sample of the index. The spelling (spaces, escapes,
the order of names) is the reference's, so that two manifests can be compared with `diff`; texts are escaped UTF-16.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from store.compat import Line
from store.errors import CorruptRecord, MalformedData
from store.files.segment import Segment
from store.manifest.queue import LoadedQueue
from store.manifest.store import LoadedStore, load
from store.message import properties as property_string
from store.message.compression import body_of
from store.message.delay import queue_tags_code
from store.message.properties import keys_of, utf16_sort_key, utf16_units
from store.message.record import BLANK_BYTES, Inspection, Kind, Message, decode, inspect, shape_at

PORT_MAX = 65535
INDEX_SAMPLE = 400
CACHED = 10_000


def lines(store_root: Path | str, *, line: Line | None = None, limit: int | None = None) -> Iterator[str]:
    """The manifest of a store; `line` chooses who would load it (by default what made it).

    `limit` ends the log of a store that is in use. Raises StoreError.
    """
    store = load(store_root, line=line, limit=limit)
    keyed = array("q")
    yield from _log_lines(store, keyed)
    for key in store.keys():  # noqa: SIM118 - not a mapping
        yield from _queue_lines(store, *key)
    yield from _index_lines(store, keyed)


def _log_lines(store: LoadedStore, keyed: array[int]) -> Iterator[str]:
    """Yield the log's lines as the reference does: by the sizes that it reads; one that leads nowhere ends it.

    `keyed` gets each record's offset, once for each of its keys.
    """
    offset: int | None = store.min_offset
    while offset is not None and 0 <= offset < store.max_offset:
        base = offset - offset % store.segment_bytes
        path = store.segments.get(base)
        if path is None:
            offset = base + store.segment_bytes
            continue
        with Segment.open(path) as segment:
            end = min(store.max_offset - base, segment.size_bytes)
            offset = yield from _segment_lines(segment, offset - base, end, keyed, check=base < store.checked_from)


def _segment_lines(
    segment: Segment, position: int, end: int, keyed: array[int], *, check: bool
) -> Generator[str, None, int | None]:
    """Yield one segment's lines; return the log offset at which to go on, None at the log's end."""
    view, base = segment.view, segment.base_offset
    while position < end:
        inspection = inspect(view, position, None, check_body_crc=check)
        if segment.size_bytes - position < BLANK_BYTES:
            return None
        size, magic = shape_at(view, position)
        if inspection.kind is Kind.BLANK:
            left = segment.size_bytes - position
            yield f'{{"kind": "blank", "physicalOffset": {base + position}, "size": {size}, "toEndOfFile": {left}}}'
            return base + segment.size_bytes
        if inspection.size <= 0:
            yield _undecoded(base + position, size, magic, checked=False)
        else:
            yield _record_line(view, position, base + position, inspection, keyed)
        if size <= 0:
            return None
        position += size
    return base + position


def _record_line(
    view: memoryview, position: int, physical_offset: int, inspection: Inspection, keyed: array[int]
) -> str:
    raw = view[position : position + inspection.size]
    checked = inspection.kind is Kind.MESSAGE
    try:
        message = decode(raw, check_body_crc=False)
        code = _tags_code(message)
        body = body_of(message.body, message.sys_flag)
        if not (0 <= message.born_host.port <= PORT_MAX and 0 <= message.store_host.port <= PORT_MAX):
            raise MalformedData("host", "Java knows no such port")
    except (CorruptRecord, MalformedData):
        return _undecoded(physical_offset, *shape_at(view, position), checked=checked)
    if checked and code is not None and message.properties_raw:
        keyed.extend([physical_offset] * sum(map(len, keys_of(message.properties))))
    return _message_line(message, body, raw, code if checked else None)


def _undecoded(physical_offset: int, size: int, magic: int, *, checked: bool) -> str:
    return (
        f'{{"kind": "undecoded", "physicalOffset": {physical_offset}, "size": {size},'
        f' "magic": "{magic:08x}", "checked": {_java(checked)}}}'
    )


def _tags_code(message: Message) -> int | None:
    """Return what the queue entry says; None when RocketMQ fails to read the delay level, and so the record."""
    try:
        delay = message.properties.get(property_string.DELAY)
        return queue_tags_code(message.topic, delay, message.store_timestamp_ms, message.tags_code)
    except ValueError:
        return None


def _message_line(m: Message, body: bytes | memoryview, raw: memoryview, tags_code: int | None) -> str:
    """Return a message's line. `tags_code` is None for a record that fails RocketMQ's check."""
    texts = m.properties
    tags, keys = quote(texts.get(property_string.TAGS)), quote(texts.get(property_string.KEYS))
    stored_sha = sha256(m.body).hexdigest()
    body_sha = stored_sha if body is m.body else sha256(body).hexdigest()
    born, stored = m.born_host, m.store_host
    return (
        f'{{"kind": "message", "physicalOffset": {m.physical_offset}, "size": {m.total_size},'
        f' "magic": "{m.magic_code:08x}", "checked": {_java(tags_code is not None)}, "topic": {_known(m.topic)},'
        f' "queueId": {m.queue_id}, "queueOffset": {m.queue_offset}, "flag": {m.flag}, "sysFlag": {m.sys_flag},'
        f' "bodyCRC": {m.body_crc}, "bornTimestamp": {m.born_timestamp_ms}, "bornHost": "{born.ip}|{born.port}",'
        f' "storeTimestamp": {m.store_timestamp_ms}, "storeHost": "{stored.ip}|{stored.port}",'
        f' "reconsumeTimes": {m.reconsume_times}, "preparedTransactionOffset": {m.prepared_transaction_offset},'
        f' "storedBodyLength": {len(m.body)}, "storedBodySha256": "{stored_sha}", "bodyLength": {len(body)},'
        f' "bodySha256": "{body_sha}", "tags": {tags}, "keys": {keys},'
        f' "properties": {_sorted_object(texts)}, "offsetMsgId": "{m.message_id}",'
        f' "dispatch": {_dispatch(m, tags_code, keys)},'
        f' "recordSha256": "{sha256(raw).hexdigest()}"}}'
    )


def _dispatch(m: Message, tags_code: int | None, keys: str) -> str:
    """Return what goes to the consume queue and the index."""
    if tags_code is None:
        return '{"tagsCode": 0, "keys": "", "uniqKey": null, "storeTimestamp": 0, "msgSize": -1}'
    if not m.properties_raw:
        keys = '""'
    uniq_key = quote(m.properties.get(property_string.UNIQ_KEY))
    return (
        f'{{"tagsCode": {tags_code}, "keys": {keys}, "uniqKey": {uniq_key},'
        f' "storeTimestamp": {m.store_timestamp_ms}, "msgSize": {m.total_size}}}'
    )


def _queue_lines(store: LoadedStore, topic: str, queue_id: int) -> Iterator[str]:
    head = f'{{"kind": "queue", "topic": {quote(topic)}, "queueId": {queue_id}'
    if topic in store.batch_topics:
        yield head + ', "class": "BatchConsumeQueue"}'
        return
    queue = store.queues[topic, queue_id]
    yield (
        f'{head}, "minOffset": {queue.min_offset}, "maxOffset": {queue.max_offset},'
        f' "minLogicOffset": {queue.min_logic_offset}, "maxPhysicOffset": {queue.max_physical_offset},'
        f' "entries": [{_entries(queue)}]}}'
    )


def _entries(queue: LoadedQueue) -> str:
    parts = [str(part.tolist())[1:-1].replace("(", "[").replace(")", "]") for part in queue.entries()]
    return ", ".join(parts)


def _index_lines(store: LoadedStore, keyed: array[int]) -> Iterator[str]:
    """A sample of the log's keys, and which records the index names for each."""
    if store.index is None:
        return
    for number in range(0, len(keyed), max(1, len(keyed) // INDEX_SAMPLE)):
        offset = keyed[number]
        first = number
        while first and keyed[first - 1] == offset:
            first -= 1
        base = offset - offset % store.segment_bytes
        with Segment.open(store.segments[base]) as segment:
            message = decode(segment.view, offset - base, check_body_crc=False)
            unique, parts = keys_of(message.properties)
        key = [*parts, *unique][number - first]
        yield (
            f'{{"kind": "index", "topic": {quote(message.topic)}, "key": {quote(key)},'
            f' "physicalOffsets": {store.index.query(message.topic, key)}}}'
        )


def quote(text: str | None) -> str:
    """A Java text as the reference prints it: every UTF-16 unit outside printable ASCII escaped."""
    if text is None:
        return "null"
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escape, utf16_units(text))) + '"'


def _escape(unit: int) -> str:
    if 32 <= unit <= 126:
        return "\\" + chr(unit) if unit in b'"\\' else chr(unit)
    return f"\\u{unit:04x}"


_known = lru_cache(CACHED)(quote)  # for texts that come again and again


@lru_cache(CACHED)
def _in_order(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """(name, its beginning in the object) as Java's TreeMap sorts the names."""
    return [(name, f"{quote(name)}: ") for name in sorted(names, key=utf16_sort_key)]


def _sorted_object(texts: dict[str, str]) -> str:
    object_text = ", ".join([head + quote(texts[name]) for name, head in _in_order(tuple(texts))])
    return f"{{{object_text}}}"


def _java(flag: bool) -> str:
    return "true" if flag else "false"
