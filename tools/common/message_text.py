"""How a message is shown, to people and to pipes.

The names of the JSON form are those of the Spark source's columns. People see control characters escaped: what a
producer sent must not steer the terminal that shows it.
"""

from __future__ import annotations

import base64
from typing import Any

from store.errors import MalformedData
from store.message.compression import body_of
from store.message.inner_batch import messages_in
from store.message.kinds import MessageKind, destination_of, kind_of
from store.message.record import Message, SysFlag
from tools.common.moments import time_text
from tools.common.output_form import json_text

BODY_BYTES_MAX = 16 << 20  # to which a body may inflate that a command or the console shows
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}


def as_json(message: Message) -> str:
    """Return a message as one JSON line. A body that is not UTF-8 is `bodyBase64`; compression is undone."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": f"{message.born_host.ip}:{message.born_host.port}",
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": f"{message.store_host.ip}:{message.store_host.port}",
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyLength": len(message.body),
    }
    kind = kind_of(message)
    if kind is not MessageKind.ORDINARY:
        fields["kind"] = kind.value
    if destination_of(message) != (message.topic, message.queue_id):
        fields["destination"] = "/".join(map(str, destination_of(message)))
    inner = inner_messages(message)
    if inner is not None:
        fields["messages"] = [{"queueOffset": each.queue_offset, **_body_fields(each)} for each in inner]
    else:
        fields |= _body_fields(message)
    return json_text("message", fields)


def _body_fields(message: Message) -> dict[str, Any]:
    body, problem = body_shown(message)
    fields: dict[str, Any] = {"tags": message.tags, "keys": message.keys, "properties": message.properties}
    if problem:
        return {**fields, "bodyBase64": base64.b64encode(body).decode(), "bodyProblem": problem}
    try:
        return {**fields, "body": body.decode()}
    except UnicodeDecodeError:
        return {**fields, "bodyBase64": base64.b64encode(body).decode()}


def inner_messages(message: Message) -> list[Message] | None:
    """Return the messages of an inner batch; None for any other record, and for an invalid batch."""
    if not message.sys_flag & SysFlag.INNER_BATCH:
        return None
    try:
        return list(messages_in(message, BODY_BYTES_MAX))
    except MalformedData:
        return None


def as_line(message: Message) -> str:
    """offset, store time, topic/queue#number, [tags] (keys), body; a line more for each message of an inner batch."""
    labels = "".join((f" [{message.tags}]" if message.tags else "", f" ({message.keys})" if message.keys else ""))
    head = (
        f"{message.physical_offset:>12}  {time_text(message.store_timestamp_ms)}"
        f"  {message.topic}/{message.queue_id}#{message.queue_offset}{labels}"
    )
    inner = inner_messages(message)
    if inner is not None:
        return "\n".join((escaped(f"{head}  <{len(inner)} messages>"), *map(as_line, inner)))
    body, problem = body_shown(message)
    if problem:
        return escaped(f"{head}  <{len(body)} bytes as stored: {problem}>")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = f"<{len(body)} bytes> {body[:32].hex()}{'…' if len(body) > 32 else ''}"
    return escaped(f"{head}  {text}")


def body_shown(message: Message) -> tuple[bytes, str]:
    """The body before compression; or, where that cannot be undone within BODY_BYTES_MAX, as stored, and why."""
    try:
        return bytes(body_of(message.body, message.sys_flag, BODY_BYTES_MAX)), ""
    except MalformedData as error:
        return bytes(message.body), f"{error.what}: {error.reason}"


def escaped(text: str) -> str:
    """Without characters that a terminal would obey."""
    return text if text.isprintable() else text.translate(_CONTROLS)
