"""The header of a sent message, in its long form (10, 324) and in its short one (310, 320, 325).

Implements: SendMessageRequestHeader, SendMessageRequestHeaderV2 (spec: remoting, 7 requests of clients)
Java reads the two in different ways: of the short form a field that is no number ends in an exception, of the long one
it is logged and left out. A missing one is null: who needs it later finds that.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import NamedTuple

from engine.protocol.remoting.answers import NULL_POINTER, Thrown, null_pointer
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from store.compat import Line
from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

NUMBER_FORMAT = "java.lang.NumberFormatException"
SHORT_FORMS = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
NAMES = (  # of the long form; a letter each in the short one
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "brokerName",
)  # fmt: skip
LETTERS = ascii_lowercase[: len(NAMES)]
ATTEMPTS_SAID_FROM = 121  # MQVersion V3_4_9: clients from it on say how often a message may be tried


class SendHeader(NamedTuple):
    """The fields of a client's send; None: not said. `queue_id` and its like are there once `checked`."""

    producer_group: str | None
    topic: str | None
    default_topic: str | None
    default_topic_queue_nums: int | None
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool
    lacks: str = ""  # a number that Java takes without a look: it throws where that is used


EMPTY = SendHeader(None, None, None, None, 0, 0, 0, 0, "", 0, False, None, False)


def send_header(request: RemotingCommand) -> SendHeader:
    """Parse the header of a send, field by field in Java's order. Raises Thrown where Java throws."""
    fields = request.ext_fields
    if fields is None:  # then it reads none
        return EMPTY
    is_short = request.code in SHORT_FORMS
    number = _whole if is_short else java_number
    said = (fields.get(name) for name in (LETTERS if is_short else NAMES))
    group, topic, default, nums, queue, flags, born_at, own, properties, times, unit, most, batch, _broker = said
    queue_nums, queue_id, sys_flag = number(nums), number(queue), number(flags)
    born, flag = number(born_at, is_long=True), number(own)
    reconsume, max_reconsume = number(times), number(most)
    return SendHeader(
        group,
        topic,
        default,
        queue_nums,
        queue_id or 0,
        sys_flag or 0,
        born or 0,
        flag or 0,
        properties or "",
        reconsume or 0,
        _is_true(unit),
        max_reconsume,
        _is_true(batch),
        _lacking(queue_id, born, sys_flag, flag),
    )


def _lacking(queue_id: int | None, born: int | None, sys_flag: int | None, flag: int | None) -> str:
    """The first that is used, of those that are not there."""
    needed = {"queueId": queue_id, "bornTimestamp": born, "sysFlag": sys_flag, "flag": flag}
    return next((name for name, number in needed.items() if number is None), "")


def _whole(text: str | None, *, is_long: bool = False) -> int | None:
    number = java_number(text, is_long=is_long)
    if number is None and text is not None:
        raise Thrown(f'{NUMBER_FORMAT}: For input string: "{text}"')
    return number


def java_number(text: str | None, *, is_long: bool = False) -> int | None:
    """Integer.parseInt or Long.parseLong; None where Java throws."""
    low, high = (INT64_MIN, INT64_MAX) if is_long else (INT32_MIN, INT32_MAX)
    try:
        return None if text is None else fastjson.whole_number(text, low, high)
    except ValueError:
        return None


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def attempts_max(request: RemotingCommand, header_max: int | None, group_max: int) -> int:
    """Return how often a message may be tried.

    The client says it, if it is of a version that may; else its group does.
    """
    if header_max is not None and request.version >= ATTEMPTS_SAID_FROM:
        return header_max
    return group_max


def lacking(line: Line, header: str, name: str, *, is_long: bool = False) -> Thrown:
    """Return what Java throws at a number of a header that is null where it is used."""
    getter = f"{line.remoting.java_package}.header.{header}.get{name[0].upper()}{name[1:]}()"
    kind = "Long.long" if is_long else "Integer.int"
    cannot = null_pointer(f"java.lang.{kind}Value()", f"the return value of {quoted(getter)}")
    return Thrown(f"{NULL_POINTER}: {cannot}")


def quoted(text: str) -> str:
    """Put a text in quotes, as Java's messages do."""
    return f'"{text}"'


NULL_KEY = Thrown(f"{NULL_POINTER}: {null_pointer('Object.hashCode()', quoted('key'))}")  # a map is asked for null
