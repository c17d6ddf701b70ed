"""One message: all that its record says, its body as text, JSON, hex or Avro, and its neighbours in queue and log."""

from __future__ import annotations

import json

from store.errors import StoreError
from store.message.kinds import destination_of, kind_of
from store.message.record import Kind, Message
from store.reading.log_reader import LogReader, open_log
from store.reading.search import finder_on
from store.reading.walk import walk
from tools.common.message_text import body_shown, inner_messages
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json
from tools.web.state.errors import Refused, Unknown
from tools.web.views.topics import queues_of

TEXT_BYTES_MAX, HEX_BYTES_MAX = 64 * 1024, 4 * 1024
PREVIEW_BYTES, PREVIEW_CHARACTERS = 400, 160
INNER_MAX, INNER_NUMBER_MAX = 200, 1_000_000
LOOK_BACK_BYTES = (64 << 10, 1 << 20, 8 << 20)
HEX_COLUMNS = 16


def view(_console: Console, asked: Asked) -> Json:
    """The message at an offset; of an inner batch one of its messages, where `inner` says which. Raises Unknown."""
    store = asked.store
    reader = open_log(store.path)
    record, inner, number = record_of(store, reader, asked)
    shown = record if inner is None or number is None else inner[number]
    return {
        "message": _fields(shown),
        "size": record.size,
        "body": _forms(shown),
        "inner": number,
        "batch": None if inner is None else [head(one) for one in inner[:INNER_MAX]],
        "batchCount": None if inner is None else len(inner),
        "neighbours": _neighbours(store, reader, record),
    }


def record_of(store: Watched, reader: LogReader, asked: Asked) -> tuple[Message, list[Message] | None, int | None]:
    """The record that is asked for, the messages in it where it is a batch, and which of them. Raises Unknown."""
    offset, number = asked.whole("offset", 0), asked.whole("inner", 0, INNER_NUMBER_MAX)
    if offset is None:
        raise Refused("no message chosen: give an offset")
    record = finder_on(store.path, reader).at(offset)
    if record is None:
        raise Unknown(f"no message begins at offset {offset} of {store.label}: it expired or never existed")
    inner = inner_messages(record)
    if number is not None and (inner is None or number >= len(inner)):
        raise Unknown(f"the record has no message {number} in it")
    return record, inner, number


def head(message: Message) -> Json:
    """A line of a list."""
    return {
        "topic": message.topic, "queueId": message.queue_id, "queueOffset": message.queue_offset,
        "offset": message.physical_offset, "msgId": message.message_id, "tags": message.tags, "keys": message.keys,
        "storedMs": message.store_timestamp_ms, "bodyBytes": len(message.body), "preview": _preview(message),
    }  # fmt: skip


def _preview(message: Message) -> str:
    start = body_shown(message)[0][:PREVIEW_BYTES]
    text = start.decode("utf-8", "replace")
    if text.count("\ufffd") > 1:
        return start[:32].hex(" ")
    return "".join(one if one.isprintable() else " " for one in text)[:PREVIEW_CHARACTERS]


def _fields(message: Message) -> Json:
    destination = destination_of(message)
    return {
        **head(message),
        "kind": kind_of(message).value,
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornMs": message.born_timestamp_ms,
        "bornHost": f"{message.born_host.ip}:{message.born_host.port}",
        "storeHost": f"{message.store_host.ip}:{message.store_host.port}",
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "destination": None if destination == (message.topic, message.queue_id) else "/".join(map(str, destination)),
    }


def _forms(message: Message) -> Json:
    """The body in every form that it has."""
    body, problem = body_shown(message)
    shown = body[:TEXT_BYTES_MAX]
    text, parsed = _text_of(shown, is_whole=len(body) <= TEXT_BYTES_MAX), None
    if text is not None and len(body) <= TEXT_BYTES_MAX:
        parsed = _json_of(text)
    return {
        "bytes": len(body),
        "storedBytes": len(message.body),
        "problem": problem,
        "text": text,
        "json": parsed,
        "hex": hex_of(body[:HEX_BYTES_MAX]),
        "textCut": len(body) > TEXT_BYTES_MAX,
        "hexCut": len(body) > HEX_BYTES_MAX,
    }


def _text_of(body: bytes, *, is_whole: bool) -> str | None:
    for cut in range(1 if is_whole else 4):  # a character may be cut at the end
        try:
            return body[: len(body) - cut].decode()
        except UnicodeDecodeError:
            continue
    return None


def _json_of(text: str) -> str | None:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) if _is_plain(text) else None
    except (ValueError, RecursionError):
        return None


def _is_plain(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def hex_of(body: bytes) -> str:
    """Offset, sixteen bytes, and what of them can be printed."""
    lines = []
    for at in range(0, len(body), HEX_COLUMNS):
        part = body[at : at + HEX_COLUMNS]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {shown}")
    return "\n".join(lines)


def _neighbours(store: Watched, reader: LogReader, record: Message) -> Json:
    """Return the offsets of the records before and behind, in the log and in the queue; None without one."""
    following = record.physical_offset + record.size
    try:
        after = reader.boundary_at(following) if following < reader.max_offset else None
        queue = queues_of(store, reader).view(record.topic, record.queue_id)
        entries = (queue.entry(record.queue_offset - 1), queue.entry(record.queue_offset + 1))
    except (StoreError, OSError):
        return {"logBefore": None, "logAfter": None, "queueBefore": None, "queueAfter": None}
    is_there = after is not None and after < reader.max_offset
    return {
        "logBefore": offset_before(reader, record.physical_offset),
        "logAfter": after if is_there else None,
        "queueBefore": entries[0].physical_offset if entries[0] else None,
        "queueAfter": entries[1].physical_offset if entries[1] else None,
    }


def offset_before(reader: LogReader, offset: int) -> int | None:
    """Return where the record before the one at `offset` begins.

    It is looked for behind some point before, ever further back.
    """
    for far in LOOK_BACK_BYTES:
        start = max(reader.min_offset, offset - far)
        if reader.files is None or start >= offset:
            return None
        last = None
        for step in walk(reader.files, reader.boundary_at(start), offset):
            if step.inspection.kind is Kind.MESSAGE and step.physical_offset < offset:
                last = step.physical_offset
        if last is not None or start == reader.min_offset:
            return last
    return None
