"""What becomes of a pull once its queue was looked at: status, where to go on, which broker to ask, the answer's code.

Implements: DefaultMessageStore.getMessage without its loop (which `select_kernel` is), GetMessageStatus,
            PullMessageProcessor.composeResponseHeader, DefaultPullMessageResultHandler
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Any, NamedTuple

from engine.protocol.pulling.select_kernel import Taken
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import LENGTH_BYTES, RESPONSE_FLAG
from ipc.arrays import Words
from store.compat import Line, PullRules

SCAN_BYTES = 16_000  # maxFilterMessageSize
MASTER_ID = 0
INT32 = 1 << 32
LENGTHS = Struct(">iI")  # JSON is form 0


class Status(Enum):
    """GetMessageStatus; its name is the answer's remark. A queue is there as soon as it is asked for: 7 is not used."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 10


CODES = {
    Status.FOUND: ResponseCode.SUCCESS,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    Status.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,  # for offset 0; else the offset is moved
}


class QueueExtent(NamedTuple):
    """Range of offsets that a queue has."""

    min_offset: int
    max_offset: int


class Catch(NamedTuple):
    """The messages that a pull gets; `ranges` of the log hold them."""

    status: Status
    next_offset: int
    extent: QueueExtent
    is_behind: bool = False  # so far that a slave should serve it
    messages: int = 0
    bytes: int = 0
    behind_bytes: int = -1  # how far before the log's end the last message lies that was looked at; -1: none was

    def removed(self) -> Catch:
        """The same without its messages, which are no longer in the log."""
        return self._replace(status=Status.MESSAGE_WAS_REMOVING, messages=0, bytes=0)


class PullBroker(NamedTuple):
    """The broker that answers pulls, as its settings say."""

    line: Line
    address: str  # brokerIP1
    is_slave: bool
    slave_read_enable: bool
    offset_check_in_slave: bool

    @property
    def corrects(self) -> bool:
        """Whether an offset that the queue does not have is corrected."""
        return not self.is_slave or self.offset_check_in_slave


def outside(offset: int, extent: QueueExtent, *, corrects: bool) -> Catch | None:
    """Return what a pull gets that asks for what the queue does not have; None where it has it."""
    low, high = extent
    if low <= offset < high:
        return None
    if high == 0:
        status, corrected = Status.NO_MESSAGE_IN_QUEUE, 0
    elif offset < low:
        status, corrected = Status.OFFSET_TOO_SMALL, low
    elif offset == high:
        status, corrected = Status.OFFSET_OVERFLOW_ONE, offset
    else:
        status, corrected = Status.OFFSET_OVERFLOW_BADLY, high
    return Catch(status, corrected if corrects else offset, extent)


def without_file(offset: int, extent: QueueExtent, units_a_file: int, *, corrects: bool) -> Catch:
    """Return what a pull gets whose part of the queue has no file: the next one's beginning."""
    following = offset + units_a_file - offset % units_a_file
    return Catch(Status.OFFSET_FOUND_NULL, following if corrects else offset, extent)


def scan_before(offset: int, max_messages: int, unit_bytes: int) -> int:
    """The queue offset at which the search for messages ends; the product is Java's."""
    product = (max_messages * unit_bytes + (INT32 >> 1)) % INT32 - (INT32 >> 1)
    return offset + max(1, -(-max(SCAN_BYTES, product) // unit_bytes))


def looked(offset: int, extent: QueueExtent, taken: Words, log_ends: int, memory_bytes: int) -> Catch:
    """Return what a pull gets after the search."""
    words: list[int] = taken.tolist()
    messages, size = words[Taken.MESSAGES], words[Taken.BYTES]
    if messages:
        status = Status.FOUND
    else:
        status = Status.MESSAGE_WAS_REMOVING if words[Taken.REMOVED] else Status.NO_MATCHED_MESSAGE
    reached = words[Taken.NEXT_OFFSET]
    behind = log_ends - words[Taken.FURTHEST]
    return Catch(status, reached if reached >= 0 else offset, extent, behind > memory_bytes, messages, size, behind)


class Verdict(NamedTuple):
    """The answer's code, and the broker that should be asked next."""

    code: int
    suggested_broker: int
    is_moved: bool = False  # the offset was corrected


def verdict(catch: Catch, offset: int, broker: PullBroker, group: dict[str, Any]) -> Verdict:
    """Return the answer's code and the broker to ask next."""
    code = _code_of(catch, offset)
    suggested = MASTER_ID
    if broker.slave_read_enable:
        suggested = int(group["whichBrokerWhenConsumeSlowly" if catch.is_behind else "brokerId"])
    if code != ResponseCode.PULL_OFFSET_MOVED:
        return Verdict(code, suggested)
    if broker.corrects:
        return Verdict(code, suggested, is_moved=True)
    return Verdict(ResponseCode.PULL_RETRY_IMMEDIATELY, int(group["brokerId"]))


def _code_of(catch: Catch, offset: int) -> int:
    if catch.status is Status.NO_MESSAGE_IN_QUEUE and offset:
        return ResponseCode.PULL_OFFSET_MOVED
    return CODES[catch.status]


def answer_fields(
    catch: Catch,
    suggested_broker: int,
    rules: PullRules,
    topic: dict[str, Any],
    group: dict[str, Any],
    *,
    in_json: bool,
) -> dict[str, str]:
    """The answer's fields, in the order in which Java's map of names has them; of a binary header, its class."""
    fields = {"suggestWhichBrokerId": str(suggested_broker)}
    if rules.sys_flags:
        fields["groupSysFlag"] = str(group.get("groupSysFlag", 0))
    ends = {"maxOffset": str(catch.extent.max_offset), "minOffset": str(catch.extent.min_offset)}
    fields["nextBeginOffset"] = str(catch.next_offset)
    fields |= ends if in_json else dict(reversed(ends.items()))
    if rules.sys_flags:
        fields["topicSysFlag"] = str(topic.get("topicSysFlag", 0))
    return fields


def head_in_json(fields: dict[str, str], opaque: int, version: int, body_bytes: int) -> bytes:
    """The frame of an answer with messages up to its body, as `frame.encode_head` makes it: no text needs an escape."""
    texts = ",".join([f'"{name}":"{value}"' for name, value in fields.items()])
    header = (
        f'{{"code":0,"extFields":{{{texts}}},"flag":{RESPONSE_FLAG},"language":"JAVA","opaque":{opaque},'
        f'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode()
    return LENGTHS.pack(LENGTH_BYTES + len(header) + body_bytes, len(header)) + header
