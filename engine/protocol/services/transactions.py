"""Which half messages are asked about, put back, or given up: one round over the half queue and its op queue.

Implements: TransactionalMessageServiceImpl.check, fillOpRemoveMap, checkPrepareQueueOffset, needDiscard, needSkip
A round is a generator: it yields what it wants done and is sent what came of it. So the same lines run on a store and
in virtual time. A half message that nobody ended goes to the end of the half queue, and its producer is asked; op
messages say which are ended. Both queues' offsets move over what is done with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, NamedTuple

ROUND_MS_MAX = 60_000  # MAX_PROCESS_TIME_LIMIT
NULLS_MAX = 1  # MAX_RETRY_COUNT_WHEN_HALF_NULL
PAUSE_MS = 1000  # SLEEP_WHILE_NO_OP
HOUR_MS = 3_600_000
PASSED_MAX = 100_000
UNREADABLE = -1  # what getLong and getInt make of a text that is no number


class Pulled(Enum):
    """PullStatus, as far as it is distinguished."""

    MESSAGES = auto()
    NO_NEW = auto()
    ILLEGAL = auto()  # the offset is not in the queue: `next_offset` is


class Op(NamedTuple):
    """An op message. `offsets`: which half messages are done with; None where it is not said."""

    queue_offset: int
    born_ms: int
    offsets: tuple[int, ...] | None


class Ops(NamedTuple):
    """The answer to a ReadOps: op messages."""

    status: Pulled
    next_offset: int
    ops: tuple[Op, ...] = ()


class Half(NamedTuple):
    """What is decided by of a half message; `message` is the reader's own. Texts are properties, None without."""

    queue_offset: int
    born_ms: int
    stored_ms: int
    check_times: str | None
    immunity: str | None  # CHECK_IMMUNITY_TIME_IN_SECONDS
    prepared_offset: str | None  # TRAN_PREPARED_QUEUE_OFFSET
    message: Any = None


class HalfRead(NamedTuple):
    """The answer to a ReadHalf: a half message."""

    half: Half | None
    status: Pulled
    next_offset: int


class ReadOps(NamedTuple):
    """A wish to read up to 32 op messages from an offset. Answered by Ops."""

    offset: int


class ReadHalf(NamedTuple):
    """A wish to read the half message at an offset. Answered by HalfRead."""

    offset: int


class IsDecided(NamedTuple):
    """A wish to know whether this half message's transaction is decided, without an op message. Answered by a bool.

    RocketMQ does not look: it asks, and the message of a transaction that was committed meanwhile is written again.
    """

    half: Half


class PutBack(NamedTuple):
    """A wish to put the half message at its queue's end, with this property. Answered by whether it was put.

    With `asks` its producer is asked about it then; else its time to be asked has not come.
    """

    half: Half
    check_times: int
    asks: bool


class GiveUp(NamedTuple):
    """A wish to put the half message into TRANS_CHECK_MAX_TIME_TOPIC. Answered by whether it was put.

    RocketMQ passes one that is not, and nobody hears of it again.
    """

    half: Half
    check_times: int | None


class Pause(NamedTuple):
    """A wish to go on some time later."""

    milliseconds: int


class Commit(NamedTuple):
    """A wish to remember these offsets; None leaves one unchanged."""

    half_offset: int | None = None
    op_offset: int | None = None


Wanted = ReadOps | ReadHalf | IsDecided | PutBack | GiveUp | Pause | Commit
Round = Generator[Wanted, Any, None]


class CheckLimits(NamedTuple):
    """Limits from transactionTimeOut, transactionCheckMax and fileReservedTime."""

    timeout_ms: int
    checks_max: int
    reserved_hours: int


def java_number(text: str) -> int:
    """Long.parseLong, UNREADABLE where it throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return UNREADABLE
    return int(text)


class Passed:
    """Half messages that were ended after they had been put back: by their offsets as their producers know them.

    RocketMQ forgets these, and asks about the messages that it put back for them.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, None] = {}

    def add(self, half: int) -> None:
        """An op message names it, and the half queue is done with there."""
        self._offsets[half] = None
        if len(self._offsets) > PASSED_MAX:
            del self._offsets[next(iter(self._offsets))]

    def __contains__(self, half: object) -> bool:
        return half in self._offsets


class Removed:
    """removeMap, opMsgMap and doneOpOffset: which halves are done with, by which op messages, and those that are."""

    def __init__(self, passed: Passed) -> None:
        self.passed = passed
        self.by_half: dict[int, int] = {}
        self._left: dict[int, set[int]] = {}  # of an op message: the halves it names that were not passed
        self.done: list[int] = []

    def add(self, op: Op, half_offset: int) -> None:
        """Add an op message; the half queue is done with below `half_offset`."""
        if op.offsets is None:
            self.done.append(op.queue_offset)
            return
        ahead = {offset for offset in op.offsets if offset >= half_offset}
        for offset in op.offsets:
            if offset in ahead:
                self.by_half[offset] = op.queue_offset
            else:
                self.passed.add(offset)
        if ahead:
            self._left[op.queue_offset] = ahead
        else:
            self.done.append(op.queue_offset)

    def take(self, half: int) -> bool:
        """Whether this half message is done with; it is passed then."""
        op = self.by_half.pop(half, None)
        if op is None:
            return False
        left = self._left.get(op)
        if left is not None:
            left.discard(half)
            if not left:
                del self._left[op]
                self.done.append(op)
        return True

    def op_offset(self, before: int) -> int:
        """calculateOpOffset: how far op messages are done with, without a gap."""
        done, offset = set(self.done), before
        while offset in done:
            offset += 1
        return offset


class _Check:
    """State of one round over the half queue."""

    def __init__(
        self,
        half_offset: int,
        op_offset: int,
        limits: CheckLimits,
        clock_ms: Callable[[], int],
        passed: Passed,
        end: int,
    ) -> None:
        self.end = end
        self.half_offset, self.op_offset, self.limits, self.clock_ms = half_offset, op_offset, limits, clock_ms
        self.begun_ms, self.removed = clock_ms(), Removed(passed)
        self.ops = Ops(Pulled.NO_NEW, op_offset)
        self.next_op_offset = op_offset

    def read_ops(self) -> Round:
        """Read the next op messages, like fillOpRemoveMap."""
        self.ops = yield ReadOps(self.next_op_offset)
        if self.ops.status is Pulled.ILLEGAL:
            self.op_offset = self.ops.next_offset  # what the group's offset says from now on
            yield Commit(op_offset=self.op_offset)
        for op in self.ops.ops:
            self.removed.add(op, self.half_offset)
        self.next_op_offset = self.ops.next_offset

    def is_new(self, half: Half) -> bool:
        """Whether it came after the round's beginning: a later round's. The log's times do not go back with a clock
        that is: one that was there and has a time far ahead is old."""
        ahead_ms = half.stored_ms - self.begun_ms
        return ahead_ms >= 0 and (half.queue_offset >= self.end or ahead_ms <= ROUND_MS_MAX)

    def is_checked_too_often(self, half: Half) -> bool:
        """needDiscard, but for what it changes."""
        return half.check_times is not None and java_number(half.check_times) >= self.limits.checks_max

    def is_too_old(self, half: Half) -> bool:
        """Return whether the half message is older than fileReservedTime, like needSkip."""
        return self.clock_ms() - half.born_ms > self.limits.reserved_hours * HOUR_MS

    def age_ms(self, half: Half) -> int:
        """Return the time since the half message was born."""
        return self.clock_ms() - half.born_ms

    def immunity_ms(self, half: Half) -> int:
        """Return how old a half message has to be before its producer is asked, in ms."""
        seconds = UNREADABLE if half.immunity is None else java_number(half.immunity)
        return self.limits.timeout_ms if seconds == UNREADABLE else seconds * 1000

    def is_to_be_asked(self, half: Half) -> bool:
        """isNeedCheck: no op message is left to be read, and it is old enough."""
        age_ms = self.age_ms(half)
        if not self.ops.ops:
            return age_ms > self.immunity_ms(half) or age_ms <= -1
        return self.ops.ops[-1].born_ms - self.begun_ms > self.limits.timeout_ms or age_ms <= -1


def check_times_of(half: Half) -> int:
    """Return the value of TRANSACTION_CHECK_TIMES once its producer is asked."""
    return 1 if half.check_times is None else java_number(half.check_times) + 1


def _times_asked(half: Half) -> int:
    """Return the value of TRANSACTION_CHECK_TIMES that a message keeps while it waits.

    RocketMQ counts a wait as a check, and so drops unasked what waits through all of them.
    """
    return 0 if half.check_times is None else max(0, java_number(half.check_times))


def _is_ended(check: _Check, half: Half) -> bool:
    """Whether it was ended by the offset that it had before it was put back."""
    prepared = UNREADABLE if half.prepared_offset is None else java_number(half.prepared_offset)
    return prepared != UNREADABLE and (check.removed.take(prepared) or prepared in check.removed.passed)


def _is_waited_for(check: _Check, half: Half) -> Generator[Wanted, Any, bool]:
    """checkPrepareQueueOffset: of a half message that has a time of its own, which is not over. True: go on with the
    next one."""
    if half.prepared_offset is not None and java_number(half.prepared_offset) == UNREADABLE:
        return False
    return bool((yield PutBack(half, _times_asked(half), asks=False)))


def _pass(check: _Check, half: Half) -> Generator[Wanted, Any, bool | None]:
    """Handle a half message without an op message. True: go on; False: look again; None: the round ends."""
    if _is_ended(check, half):
        return True
    if (too_often := check.is_checked_too_often(half)) or check.is_too_old(half):
        if (yield IsDecided(half)):
            return True
        if (yield GiveUp(half, None if too_often else check_times_of(half))):
            return True
        yield Pause(PAUSE_MS)
        return False
    if check.is_new(half):
        return None
    if half.immunity is not None:
        if check.age_ms(half) < check.immunity_ms(half) and (yield from _is_waited_for(check, half)):
            return True
    elif 0 <= check.age_ms(half) < check.limits.timeout_ms:
        return None
    if check.is_to_be_asked(half):
        if (yield IsDecided(half)) or (yield PutBack(half, check_times_of(half), asks=True)):
            return True
        yield Pause(PAUSE_MS)
        return False
    yield from check.read_ops()
    if not check.ops.ops:
        yield Pause(PAUSE_MS)
    return False


def check_round(
    half_offset: int, op_offset: int, limits: CheckLimits, clock_ms: Callable[[], int], passed: Passed, end: int
) -> Round:
    """TransactionalMessageServiceImpl.check of one half queue, from these offsets on. `clock_ms` is wall time, `end`
    where the queue ends now.

    The half queue's offset is committed with every message that was put somewhere: who dies goes on behind it. `passed`
    is kept from round to round.
    """
    check, nulls, at = _Check(half_offset, op_offset, limits, clock_ms, passed, end), 0, half_offset
    yield from check.read_ops()
    while 0 <= clock_ms() - check.begun_ms <= ROUND_MS_MAX:  # one in which the clock is set back is over
        if not check.removed.take(at):
            read = yield ReadHalf(at)
            if read.half is None:
                nulls += 1
                if nulls > NULLS_MAX or read.status is Pulled.NO_NEW:
                    break
                at = read.next_offset
                continue
            goes_on = yield from _pass(check, read.half)
            if goes_on is None:
                break
            if not goes_on:
                continue
            yield Commit(half_offset=at + 1)
        at += 1
    op_end = check.removed.op_offset(check.op_offset)
    yield Commit(at if at != half_offset else None, op_end if op_end != op_offset else None)
