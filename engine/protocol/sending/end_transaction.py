"""The end of a transaction as its producer says it: what the request says, what is looked at, what it is answered.

Implements: EndTransactionProcessor, EndTransactionRequestHeader (spec: remoting, 7; store-formats, section 8)
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import NamedTuple

from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.answers import (
    NO_REMARK,
    NULL_POINTER,
    REMOTING_EXCEPTION,
    Refused,
    Thrown,
    given,
    null_pointer,
)
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.answers import NO_TIMERS, PutAnswer
from engine.protocol.sending.headers import java_number, quoted
from store.message.properties import IMMUNITY_SECONDS, PRODUCER_GROUP, UNIQ_KEY
from store.message.record import Message
from store.message.topics import HALF_TOPIC

_ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. msg body length limit {}B, msg "
    "properties length limit 32KB."
)
NO_HALF = "Find prepared transaction message failed"
ENDED = "The transaction has been decided otherwise"
ENDING = "The transaction is being ended"
KEY_BYTES = 16


class Decision(IntEnum):
    """MessageSysFlag's: what the producer decided."""

    PENDING = 0
    COMMIT = 8
    ROLLBACK = 12


class EndHeader(NamedTuple):
    """Fields of a producer's END_TRANSACTION request."""

    producer_group: str | None
    half_queue_offset: int | None  # tranStateTableOffset
    half_physical_offset: int | None  # commitLogOffset
    decision: Decision
    is_asked: bool  # fromTransactionCheck: the broker had asked


def end_header(request: RemotingCommand) -> EndHeader:
    """Parse the request's header. Raises Thrown where Java throws."""
    decision = java_number(given(request, "commitOrRollback"))
    if decision is None:
        raise Thrown(f"{NULL_POINTER}: {null_pointer('java.lang.Integer.intValue()', quoted('this.commitOrRollback'))}")
    if decision not in list(Decision):
        raise Thrown(f"{REMOTING_EXCEPTION}: commitOrRollback field wrong")
    return EndHeader(
        given(request, "producerGroup"),
        java_number(given(request, "tranStateTableOffset"), is_long=True),
        java_number(given(request, "commitLogOffset"), is_long=True),
        Decision(decision),
        (given(request, "fromTransactionCheck") or "").lower() == "true",
    )


def transaction_of(half: Message) -> bytes:
    """Return the key of a half message's transaction.

    All copies that a broker makes to ask about it have the same key; each message of a producer has another one, even
    if it is sent again.
    """
    own, host = half.properties.get(UNIQ_KEY, str(half.physical_offset)), half.born_host
    said = f"{own} {half.born_timestamp_ms} {host.ip} {host.port}"
    return hashlib.blake2b(said.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


def on_slave() -> Refused:
    """Return the refusal with which a slave answers."""
    return Refused(ResponseCode.SLAVE_NOT_AVAILABLE, NO_REMARK)


def check_half(half: Message | None, header: EndHeader, now_ms: int, *, timeout_ms: int, rejects_late: bool) -> Message:
    """Return the half message that is meant; beyond RocketMQ's checks it has to be one. Raises Refused, Thrown."""
    if half is None or half.topic != HALF_TOPIC:
        raise Refused(ResponseCode.SYSTEM_ERROR, NO_HALF)
    if rejects_late and not header.is_asked and _is_late(half, now_ms, timeout_ms):
        raise Refused(ResponseCode.ILLEGAL_OPERATION, NO_REMARK)
    group = half.properties.get(PRODUCER_GROUP)
    if group is None:
        raise Thrown(NULL_POINTER)
    if group != header.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if header.half_queue_offset is None or header.half_physical_offset is None:
        raise Thrown(NULL_POINTER)
    if half.queue_offset != header.half_queue_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _is_late(half: Message, now_ms: int, timeout_ms: int) -> bool:
    """rejectCommitOrRollback: the half is checked by now, and who was asked then has the word."""
    text = half.properties.get(IMMUNITY_SECONDS)
    if not text:
        return False
    seconds = java_number(text, is_long=True)
    return now_ms - half.born_timestamp_ms > max(timeout_ms, 0 if seconds is None else seconds * 1000)


def end_answer(status: PutMessageStatus, max_message_bytes: int) -> PutAnswer:
    """sendFinalMessage: what a status of the committed message is to its producer."""
    match status:
        case _ if status.is_stored:
            return PutAnswer(ResponseCode.SUCCESS, None)
        case PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return PutAnswer(ResponseCode.SYSTEM_ERROR, "Create mapped file failed.")
        case PutMessageStatus.MESSAGE_ILLEGAL | PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
            return PutAnswer(ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL.format(max_message_bytes))
        case PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return PutAnswer(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
        case PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
            return PutAnswer(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        case PutMessageStatus.WHEEL_TIMER_NOT_ENABLE:
            return PutAnswer(ResponseCode.SYSTEM_ERROR, NO_TIMERS)
    return PutAnswer(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")
