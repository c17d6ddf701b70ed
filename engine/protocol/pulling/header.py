"""A pull as it is asked: the fields of its header, bounded as Java's numbers are.

Implements: PullMessageRequestHeader, PullSysFlag, PullMessageResponseHeader (spec: remoting, 7)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from engine.protocol.remoting.answers import NULL_POINTER, Thrown, null_pointer
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, whole_number

NUMBER_FORMAT = "java.lang.NumberFormatException: For input string"


class PullFlag(IntEnum):
    """Bits of a pull's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullHeader(NamedTuple):
    """Fields of a pull request."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    flags: int
    commit_offset: int
    suspend_ms: int
    subscription: str | None
    subscription_version: int
    expression_type: str | None


def pull_header(fields: Mapping[str, str] | None) -> PullHeader:
    """The header of a pull. Raises Thrown where Java's would."""
    ext = fields or {}
    try:
        return PullHeader(
            ext["consumerGroup"],
            ext["topic"],
            _int(ext["queueId"]),
            _long(ext["queueOffset"]),
            _int(ext["maxMsgNums"]),
            _int(ext["sysFlag"]),
            _long(ext["commitOffset"]),
            _long(ext["suspendTimeoutMillis"]),
            ext.get("subscription"),
            _long(ext["subVersion"]),
            ext.get("expressionType"),
        )
    except KeyError as missing:
        getter = f'"PullMessageRequestHeader.{missing.args[0]}"'
        raise Thrown(f"{NULL_POINTER}: {null_pointer('java.lang.Number.intValue()', getter)}") from None


def _int(text: str) -> int:
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)
    return _bounded(text, INT32_MIN, INT32_MAX)


def _long(text: str) -> int:
    if len(text) < 19 and text.isdecimal() and text.isascii():
        return int(text)
    return _bounded(text, INT64_MIN, INT64_MAX)


def _bounded(text: str, low: int, high: int) -> int:
    try:
        number = whole_number(text, low, high)
    except ValueError:
        number = None
    if number is None:
        raise Thrown(f'{NUMBER_FORMAT}: "{text}"')
    return number
