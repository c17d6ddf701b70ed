"""What a producer is asked about a half message: request 39, whose body is the message as it will be.

Implements: AbstractTransactionalMessageCheckListener.sendCheckMessage, MessageDecoder.encode
"""

from __future__ import annotations

from typing import NamedTuple

from store.compat import BrokerRules
from store.message.host import offset_message_id
from store.message.properties import CHECK_TIMES, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY, WAIT, java_text
from store.message.record import Message, SysFlag, encode
from store.put.java_map import JavaMap
from store.put.policy import Facts, parse_properties, property_text, text_bytes
from store.put.request import INT_MAX, java_int

FIELDS_CAPACITY = 16  # of a new HashMap


class CheckRequest(NamedTuple):
    """Group that it goes to, fields in Java's order, body."""

    group: str
    fields: dict[str, str]
    body: bytes


def check_request(
    half: Message,
    check_times: int,
    physical_offset: int,
    queue_offset: int,
    facts: Facts,
    rules: BrokerRules,
    broker_name: str,
) -> CheckRequest:
    """The request for a half message that was put back there. Raises InvalidMessage."""
    fields = parse_properties(facts.policy, java_text(half.properties_raw))
    fields.put(CHECK_TIMES, str(check_times))
    fields.put(WAIT, "false")
    queue_id = java_int(fields.get(REAL_QUEUE_ID, ""), REAL_QUEUE_ID, 0, INT_MAX)
    body = encode(
        topic=fields.get(REAL_TOPIC, ""),
        body=half.body,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp_ms=half.born_timestamp_ms,
        born_host=half.born_host,
        store_timestamp_ms=half.store_timestamp_ms,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
        properties=text_bytes(property_text(facts.policy, fields)),
    )
    is_v6 = bool(half.sys_flag & SysFlag.STORE_HOST_V6)
    header = {"topic": half.topic} if rules.checks_name_broker else {}  # in the order in which the class has them
    header |= {"tranStateTableOffset": str(queue_offset), "commitLogOffset": str(physical_offset)}
    if (key := fields.get(UNIQ_KEY)) is not None:
        header |= {"msgId": key, "transactionId": key}
    header["offsetMsgId"] = offset_message_id(half.store_host, physical_offset, is_v6)
    if rules.checks_name_broker:
        header["bname"] = broker_name
    ordered = dict(JavaMap(FIELDS_CAPACITY, header.items()).ordered())
    return CheckRequest(fields.get(PRODUCER_GROUP, ""), ordered, body)
