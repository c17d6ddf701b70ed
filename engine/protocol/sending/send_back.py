"""A message that a consumer gives back: what the request says, what is looked at before, what it is answered.

Implements: AbstractSendMessageProcessor.consumerSendMsgBack, ConsumerSendMsgBackRequestHeader (spec: remoting, 7)
Looked at in this order: the group, the broker's permission, the group's retry queues, its retry topic and that one's
permission, the message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.answers import Refused, Thrown, given
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.checks import PERM_WRITE, UNIT_SUBSCRIPTION
from engine.protocol.sending.headers import NULL_KEY, java_number, lacking
from store.compat import Line, PutRules
from store.message.topics import RETRY_PREFIX

Json = dict[str, Any]


class SendBackHeader(NamedTuple):
    """The fields that a consumer says; None: it does not."""

    offset: int | None
    group: str
    delay_level: int | None
    unit_mode: bool
    max_reconsume_times: int | None


def send_back_header(request: RemotingCommand) -> SendBackHeader:
    """Parse the request's header. Raises Thrown where Java looks a null group up."""
    group = given(request, "group")
    if group is None:
        raise NULL_KEY
    return SendBackHeader(
        java_number(given(request, "offset"), is_long=True),
        group,
        java_number(given(request, "delayLevel")),
        (given(request, "unitMode") or "").lower() == "true",
        java_number(given(request, "maxReconsumeTimes")),
    )


def retry_topic(header: SendBackHeader, queues: int) -> Json:
    """The question for the topic of the group's retries."""
    sys_flag = UNIT_SUBSCRIPTION if header.unit_mode else 0
    return {"topic": RETRY_PREFIX + header.group, "queueNums": queues, "perm": 6, "sysFlag": sys_flag}


def dead_topic(topic: str, queues: int) -> Json:
    """The question for the topic of its dead letters."""
    return {"topic": topic, "queueNums": queues, "perm": 6, "sysFlag": 0}


def lacks(name: str, line: Line) -> Thrown:
    """Return the error for a number that the header lacks."""
    return lacking(line, "ConsumerSendMsgBackRequestHeader", name, is_long=name == "offset")


def check_retry_topic(topic: Json) -> None:
    """Check that the group's retry topic is writable. Raises Refused."""
    if not topic["perm"] & PERM_WRITE:
        remark = f"the topic[{topic['topicName']}] sending message is forbidden"
        raise Refused(ResponseCode.NO_PERMISSION, remark)


def topic_missing(topic: str) -> Refused:
    """Return the error for a topic that is missing and could not be made."""
    return Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")


def message_missing(offset: int) -> Refused:
    """Return the error for an offset without a message."""
    return Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


def status_name(status: PutMessageStatus, rules: PutRules) -> str:
    """Return the status as the line's brokers spell it."""
    is_file = status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    return rules.file_failure_name if is_file else status.value
