"""A reply to a request message: what is pushed to the requester, and what the replier gets.

Implements: ReplyMessageProcessor, ReplyMessageRequestHeader (spec: remoting, 7)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.sending.headers import SendHeader
from store.message.properties import REPLY_TO_CLIENT
from store.tables.tables import hash_map_order

Json = dict[str, Any]


class PushResult(NamedTuple):
    """Outcome of the push to the requester."""

    code: int
    remark: str | None


PUSHED = PushResult(ResponseCode.SUCCESS, None)
NOT_TOLD_WHOM = PushResult(ResponseCode.SYSTEM_ERROR, f"reply message properties[{REPLY_TO_CLIENT}] is null")


def requester_missing(client_id: str) -> PushResult:
    """Nobody of that name is connected."""
    return PushResult(ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{client_id}> not found.")


def push_failed(client_id: str) -> PushResult:
    """Return the result for a requester that refused the push, or did not answer."""
    return PushResult(ResponseCode.SYSTEM_ERROR, f"push reply message to {client_id}fail.")


def push(header: SendHeader, properties: str, born_host: str, store_host: str, now_ms: int) -> Json:
    """PUSH_REPLY_MESSAGE_TO_CLIENT, but for its body: code and fields, in Java's order."""
    fields = {
        "producerGroup": header.producer_group, "topic": header.topic, "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": header.default_topic_queue_nums, "queueId": header.queue_id,
        "sysFlag": header.sys_flag, "bornTimestamp": header.born_timestamp_ms, "flag": header.flag,
        "properties": properties, "reconsumeTimes": header.reconsume_times,
        "unitMode": str(header.unit_mode).lower(), "bornHost": born_host, "storeHost": store_host,
        "storeTimestamp": now_ms,
    }  # fmt: skip
    said = hash_map_order(name for name, value in fields.items() if value is not None)
    ext_fields = {name: str(fields[name]) for name in said}
    return {"code": int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT), "extFields": ext_fields}
