"""Words and forms of answers that compiled pulls and Python share.

Implements: PullMessageResponseHeader as it looks in a frame (spec: remoting, 7)
What a pull asks, what is known of fast ones, why one is not; an answer cut into what never changes and what
does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from engine.front.frames.answer_forms import OPAQUE, OPAQUE_AT, AnswerForms, enter_form, parts_of_binary, parts_of_json
from engine.front.frames.answer_kernel import HEAD_BYTES
from engine.front.frames.header_kernel import FIELD_WORDS, HeaderWord
from engine.front.frames.send_words import FORM_WORDS
from engine.protocol.pulling.decision import Catch, QueueExtent, Status
from engine.protocol.remoting.frame import LENGTH_BYTES, RemotingCommand, Serialize
from ipc.arrays import Words

NAMES = (  # PullMessageRequestHeader's; those of the key first, in the order of PullField
    "consumerGroup", "topic", "queueId", "sysFlag", "subscription", "subVersion", "expressionType",
    "queueOffset", "maxMsgNums", "commitOffset", "suspendTimeoutMillis",
)  # fmt: skip
KEY_FIELDS = 7
KEY_BYTES_MAX = 2048  # of a longer one nobody knows anything
NO_OFFSET = -(1 << 62)
OF_A_KIND_MAX = 64  # pulls with the same key that compiled code holds: a group has as many members at a queue, or few
AT_FIRST = 64  # units looked at before the rest of what may be looked at


class PullField(IntEnum):
    """The fields that are looked at."""

    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    SYS_FLAG = 3
    SUBSCRIPTION = 4
    SUBSCRIPTION_VERSION = 5
    EXPRESSION_TYPE = 6
    QUEUE_OFFSET = 7
    MAX_MESSAGES = 8
    COMMIT_OFFSET = 9
    SUSPEND_MS = 10


HEADER_WORDS = HeaderWord.FIELDS + len(NAMES) * FIELD_WORDS


class PullFallback(IntEnum):
    """Reasons why the compiled way does not answer a pull. Nothing was changed; Python takes it."""

    HEADER = -1  # not as Java writes it, or no pull
    FIELDS = -2  # one is missing, or beyond what the fast path takes
    KEY = -3  # nobody knows such pulls: Python's checks have to say whether they are served
    STALE = -4  # what is known of its queue is not so any more
    FILE = -5  # of the queue or the log, that is not at hand
    OUTSIDE = -6  # its queue does not have that offset
    NOTHING = -7  # no message of those that were looked at
    NOT_YET = -8  # its queue ends there: it may be held
    ROOM = -9  # it is too large, or enough was answered in this turn
    NOT_ACCEPTING = -10  # the broker serves no pulls


LEARNED = frozenset(map(int, (PullFallback.KEY, PullFallback.STALE, PullFallback.FILE)))  # what Python's way can mend


class PullBlock(IntEnum):
    """The words of a block: where all lies that the kernels look at, how much of it there is, and what they say."""

    BUFFER_AT = 0  # what is received
    BUFFER_BYTES = 1
    COUNTERS_AT = 2
    COUNTERS = 3
    LOG_BEGINS = 4  # indices of counters
    LOG_ENDS = 5
    PERMISSION = 6
    ENDS_AT = 7  # where each queue ends, by slot
    ENDS = 8
    SERVED_AT = 9  # rows of ServedWord
    SERVED = 10
    INDEX_AT = 11  # an open-addressed table: row + 1, by the hash of a key
    INDEX = 12
    KEYS_AT = 13
    KEYS_BYTES = 14
    SEED = 15
    FILES_AT = 16  # of the log: rows of FileWord
    FILES = 17
    LIMITS_AT = 18
    UNITS_AT = 19
    UNITS = 20
    RANGES_AT = 21
    TAKEN_AT = 22
    HEADER_AT = 23
    KEY_AT = 24  # of the pull that is looked at
    VALUES_AT = 25
    FORMS_AT = 26
    FORMS_TEXT_AT = 27
    FORMS_TEXT_BYTES = 28
    HEAD_BYTES_MAX = 29
    OUT_AT = 30
    OUT_BYTES = 31
    CHANGED_AT = 32  # rows with counts, commits or offsets that Python has not seen
    CHANGED = 33
    COMMITS = 34  # whether this broker commits what pulls say
    REASON = 35  # why the last call ended: 0, no whole frame is left; else PullFallback
    ROW = 36  # what the pull asked that was looked at last
    OPAQUE = 37
    FORM = 38
    OFFSET = 39
    MOST = 40
    SUSPEND_MS = 41
    COMMIT = 42
    FD = 43  # the socket; NO_SOCKET: all stays in `out`
    WRITTEN = 44  # of `out`
    SENT = 45
    IS_BLOCKED = 46  # the socket takes no more: what is left is in `out`
    ERRNO = 47
    ANSWERED = 48  # bytes in this call
    PULLS = 49  # answered since Python looked last
    MESSAGES = 50
    BYTES = 51
    PEER = 52
    COMMITS_NOTED = 53  # ever
    HELD_AT = 54  # rows of HeldWord, those that are held first
    HELD = 55
    HELD_MAX = 56
    SHORT_MS = 57  # how long pulls are held, whatever they ask for; -1: as they ask
    NOTIFIED_AT = 58  # rows of HeldWord
    NOTIFIED = 59


class ServedWord(IntEnum):
    """Pulls that Python's way has served: what it found out about all that have the same key."""

    IS_LEARNED = 0
    KEY_AT = 1
    KEY_BYTES = 2
    SLOT = 3  # of the queue's end; NO_SLOT: it never had a message
    BEGINS = 4  # where the log began when the queue's minimum was looked at
    MINIMUM = 5
    FILE_FIRST = 6  # the file of the queue: its first unit, how many it has, where they lie
    FILE_UNITS = 7
    FILE_AT = 8
    TAKES_ALL = 9
    CODES_AT = 10
    CODES = 11
    SUGGESTED = 12  # the broker to ask next, and who is far behind
    SUGGESTED_BEHIND = 13
    GROUP_FLAG = 14
    TOPIC_FLAG = 15
    FLAGS = 16  # PullFlag
    IS_CHANGED = 17  # it is among those that have something new
    IS_PULLED = 18  # NEXT_OFFSET is new
    PULLS = 19
    MESSAGES = 20
    BYTES = 21
    NEXT_OFFSET = 22
    BEHIND_BYTES = 23
    COMMIT = 24
    COMMIT_PEER = 25
    COMMIT_NUMBER = 26  # among all that were noted; 0: it was reported
    HELD = 27  # how many are


class HeldWord(IntEnum):
    """A pull that waits for its queue to end behind OFFSET."""

    OFFSET = 0
    ROW = 1  # of what is known of such pulls
    PEER = 2
    MOST = 3
    OPAQUE = 4
    FORM = 5
    COMMIT = 6
    SUSPEND_MS = 7
    UNTIL_MS = 8
    BEGIN = 9  # of a notified one: where its answer lies in `out`; none there: Python has to look
    END = 10
    ANSWER = 11  # a PullAnswer
    CAME_NS = 12


class PullAnswer(IntEnum):
    """Answers that compiled code writes."""

    FOUND = 0
    NOTHING_MORE = 1  # the queue ends there
    NOTHING_EVER = 2  # it never had a message


class FileWord(IntEnum):
    """An open file of the log."""

    BASE = 0
    FD = 1
    ADDRESS = 2


class PullHole(IntEnum):
    """Values that follow a part of an answer, and where each is."""

    END = 0
    FIELDS_BYTES = 1  # of all that follows, as i32
    OPAQUE = 2
    OPAQUE_32 = 3
    SUGGESTED = 4
    GROUP_FLAG = 5
    TOPIC_FLAG = 6
    NEXT_OFFSET = 7
    MINIMUM = 8
    MAXIMUM = 9


SERVED_WORDS, FILE_WORDS, HOLES, HELD_WORDS = len(ServedWord), len(FileWord), len(PullHole), len(HeldWord)
SERIALIZE_KINDS = len(Serialize)
FORMS = len(PullAnswer) * SERIALIZE_KINDS  # a form for each answer in each kind
NO_SOCKET, NO_LOG_FILE = -1, -1


MARKED: dict[PullHole, int] = {hole: 900_000_000_000_000_000 + hole for hole in PullHole if hole >= PullHole.SUGGESTED}
STATUSES = {
    PullAnswer.FOUND: Status.FOUND,
    PullAnswer.NOTHING_MORE: Status.OFFSET_OVERFLOW_ONE,
    PullAnswer.NOTHING_EVER: Status.NO_MESSAGE_IN_QUEUE,
}
VALUES_BYTES_MAX = 256
INT_BYTES, REMARK_AT = 4, 13


class HeadValues(NamedTuple):
    """Values in a head beside those of the selection."""

    suggested: int
    topic_flag: int
    group_flag: int


MakeHead = Callable[[RemotingCommand, Catch, HeadValues], bytes]


def forms_of(make: MakeHead) -> AnswerForms:
    """Return the forms of answers; `make` is Python's way to write one up to its body."""
    words, text, longest = np.zeros(FORMS * FORM_WORDS, np.int64), bytearray(), 0
    extent = QueueExtent(MARKED[PullHole.MINIMUM], MARKED[PullHole.MAXIMUM])
    values = HeadValues(*(MARKED[hole] for hole in (PullHole.SUGGESTED, PullHole.TOPIC_FLAG, PullHole.GROUP_FLAG)))
    for answer, status in STATUSES.items():
        caught = Catch(status, MARKED[PullHole.NEXT_OFFSET], extent)
        for form in Serialize:
            begin = len(text)
            head = make(RemotingCommand(0, OPAQUE, serialize=form), caught, values)
            _enter(words, answer * SERIALIZE_KINDS + form, head, text)
            longest = max(longest, len(text) - begin)
    return AnswerForms(words, np.frombuffer(bytes(text), np.uint8).copy(), longest + VALUES_BYTES_MAX)


def _enter(words: Words, form: int, head: bytes, text: bytearray) -> None:
    """Cut one answer's head into fixed parts and holes, and enter it as `form`."""
    marks = {str(number): int(hole) for hole, number in MARKED.items()}
    kind, header = Serialize(head[LENGTH_BYTES:HEAD_BYTES][0]), head[HEAD_BYTES:]
    if kind is Serialize.JSON:
        parts = parts_of_json(header, {f'"opaque":{OPAQUE}': int(PullHole.OPAQUE)}, marks)
    else:
        remark_bytes = int.from_bytes(header[REMARK_AT : REMARK_AT + INT_BYTES])
        fields_at = REMARK_AT + INT_BYTES + remark_bytes
        fixed = (OPAQUE_AT, PullHole.OPAQUE_32), (fields_at, PullHole.FIELDS_BYTES)
        parts = parts_of_binary(header, [(at, at + INT_BYTES, int(hole)) for at, hole in fixed], marks)
    enter_form(words, form, parts, kind, text)
