"""What a client is answered about a put: the code and the remark of each status, the fields of a stored message.

Implements: SendMessageProcessor.handlePutMessageResult, SendMessageResponseHeader (spec: remoting, 7)
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.checks import SendingBroker
from store.message.properties import MSG_REGION, TRACE_ON
from store.tables.tables import hash_map_order

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"
UNTIL = "start flow control for a while, period in queue: {}ms, size of queue: {}"
TIMED_OUT, STORE_BUSY = f"[TIMEOUT_CLEAN_QUEUE]broker busy, {UNTIL}", f"[PCBUSY_CLEAN_QUEUE]broker busy, {UNTIL}"

# In the order in which they come into the map: those of any answer, then the header's.
_FIELDS = (MSG_REGION, TRACE_ON, "msgId", "queueId", "queueOffset", "transactionId", "batchUniqId")
CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}
_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit {}B, msg "
    "properties length limit 32KB."
)
_UNAVAILABLE = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[CL: {0:5.2f} CQ: {0:5.2f} INDEX: {0:5.2f}], messages are put to the slave, message store has been shut down, etc."
)

LIGHT_QUEUES = (
    "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
    "maxLmqConsumeQueueNum config num, default limit 2w."
)
NO_TIMERS = "accurate timer message is not enabled, timerWheelEnable is false"


class PutAnswer(NamedTuple):
    """The code and the remark; without a remark the message is stored."""

    code: int
    remark: str | None


def put_answer(status: PutMessageStatus, broker: SendingBroker, disk_used_percent: int) -> PutAnswer:
    """Return what a status is to the client that sent the message."""
    code = CODES.get(status, ResponseCode.SYSTEM_ERROR)
    match status:
        case PutMessageStatus.MESSAGE_ILLEGAL | PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
            return PutAnswer(code, _ILLEGAL.format(broker.max_message_bytes))
        case PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return PutAnswer(code, _UNAVAILABLE.format(disk_used_percent / 100))
        case PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return PutAnswer(code, "create mapped file failed, server is busy or broken.")
        case PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
            return PutAnswer(code, "in-sync replicas not enough")
        case PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
            return PutAnswer(code, LIGHT_QUEUES)
        case PutMessageStatus.WHEEL_TIMER_NOT_ENABLE:
            return PutAnswer(code, NO_TIMERS)
        case PutMessageStatus.UNKNOWN_ERROR:
            return PutAnswer(code, "UNKNOWN_ERROR")
    return PutAnswer(code, None)


def stored_fields(
    common: dict[str, str],
    message_id: str,
    queue_id: int,
    queue_offset: int,
    *,
    transaction_id: str | None = None,
    batch_key: str | None = None,
    capacity: int | None,
) -> dict[str, str]:
    """The fields of an answer about a stored message; `common`: those of any answer.

    In the order of a HashMap of that capacity; None: of a binary header, which is written field by field.
    """
    own = {
        "msgId": message_id, "queueId": str(queue_id), "queueOffset": str(queue_offset),
        "transactionId": transaction_id, "batchUniqId": batch_key,
    }  # fmt: skip
    fields = {name: value for name, value in own.items() if value is not None} | common
    return fields if capacity is None else {name: fields[name] for name in _order(capacity) if name in fields}


@cache
def _order(capacity: int) -> tuple[str, ...]:
    return tuple(hash_map_order(_FIELDS, capacity))
