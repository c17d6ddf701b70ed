"""The levels of delayed messages: which entries of a level's queue are due, how far a level is done with.

Implements: ScheduleMessageService.DeliverDelayedMessageTimerTask, correctDelayOffset; for correctDeliverTimestamp a
    message waits as long as it should by the monotonic clock
Entries say when they are due by the wall clock. That may be set back: an entry is due, too, once it has been there for
the level's delay, by the monotonic clock; RocketMQ delivers one whose time is too far ahead at once, long before.
A level's queue is read in order. `offset` is what delayOffset.json says: all below is delivered, or is not to be. It
moves once the puts of all below are acknowledged; a message whose put was refused is put again, and nothing behind it
goes before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ipc.arrays import Words

AGAIN_MS = 100  # DELAY_FOR_A_WHILE
NEVER_MS = 1 << 62
MARK_MS, MARKS = 100, 256  # of a level's arrivals: how far apart at least, and how many about
SLEWED = 500  # a wall clock that is set right little by little gains less than this part of the time


def due_count(deliver_ms: Words, now_ms: int, ripe: int) -> tuple[int, int]:
    """Return how many of these entries, from the first on, are due, and when the next one is, by the wall clock.

    The first `ripe` are due in any case; the time is NEVER_MS when all are due.
    """
    is_late = deliver_ms > now_ms
    is_late[:ripe] = False
    if not is_late.any():
        return len(deliver_ms), NEVER_MS
    first = int(is_late.argmax())
    return first, int(deliver_ms[first])


class Arrivals:
    """Since when a level's entries have been there, as far as that matters: monotonic time, marks some time apart."""

    def __init__(self, delay_ms: int) -> None:
        self._apart_ms = max(MARK_MS, delay_ms // MARKS)
        self._wait_ms = delay_ms + MARK_MS + delay_ms // SLEWED  # else the wall clock, slewed, would come after it
        self._marks: deque[tuple[int, int]] = deque()  # end of the queue, when it was seen to end there

    def __len__(self) -> int:
        return len(self._marks)

    def note(self, end: int, clock_ms: int) -> None:
        """The queue ends there now."""
        marks = self._marks
        if not marks or (end > marks[-1][0] and clock_ms - marks[-1][1] >= self._apart_ms):
            marks.append((end, clock_ms))
        while len(marks) > 1 and marks[1][1] + self._wait_ms <= clock_ms:
            marks.popleft()

    def ripe_end(self, clock_ms: int) -> int:
        """Entries below this have waited for long enough."""
        end, seen_ms = self._marks[0] if self._marks else (0, clock_ms)
        return end if seen_ms + self._wait_ms <= clock_ms else 0

    def ripe_in_ms(self, offset: int, clock_ms: int) -> int:
        """Return how long the entry there has to wait at most."""
        seen_ms = next((seen_ms for end, seen_ms in self._marks if end > offset), clock_ms)
        return max(0, seen_ms + self._wait_ms - clock_ms)


class Level:
    """One level, whose delay is `delay_ms`. Entries below `offset` are done with when it begins."""

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number, self.delay_ms = number, delay_ms
        self.next_offset = offset  # of the first entry that was not taken
        self.look_at_ms = 0  # wall time: nothing is due before, but for what is new
        self.arrivals = Arrivals(delay_ms)
        self._again_at_ms = 0  # monotonic
        self._under_way: dict[int, None] = {}  # ascending
        self._refused: list[int] = []  # ascending

    @property
    def offset(self) -> int:
        """Return the queue offset below which every entry is done with."""
        first = next(iter(self._under_way), self.next_offset)
        return min(first, self._refused[0]) if self._refused else first

    @property
    def under_way(self) -> int:
        """Messages put whose answers are not there."""
        return len(self._under_way)

    def correct(self, min_offset: int, max_offset: int) -> int | None:
        """The queue is from `min_offset` to `max_offset`: an offset outside of it is moved to its nearer end.

        The offset as it was, where it was wrong. Only while nothing is under way.
        """
        was = self.next_offset
        right = min(max(was, min_offset), max(min_offset, max_offset))
        if right == was or self._under_way or self._refused:
            return None
        self.next_offset, self.look_at_ms = right, 0
        return was

    def to_put_again(self, clock_ms: int) -> list[int]:
        """Refused entries whose time has come again. While there are refused ones, no others are taken."""
        return list(self._refused) if self._refused and clock_ms >= self._again_at_ms else []

    @property
    def is_held_up(self) -> bool:
        """Whether refused ones go first."""
        return bool(self._refused)

    def take(self, deliver_ms: Words, now_ms: int, clock_ms: int) -> int:
        """Return how many of the entries from `next_offset` on, with these times, are due and are to be put now.

        `now_ms` is wall time, `clock_ms` monotonic.
        """
        if self._refused:
            return 0
        ripe = max(0, self.arrivals.ripe_end(clock_ms) - self.next_offset)
        count, self.look_at_ms = due_count(deliver_ms, now_ms, ripe)
        return count

    def passed(self, count: int) -> None:
        """Move on by entries from `next_offset` that were put, or are not to be (`put` says which)."""
        self.next_offset += count

    def put(self, queue_offsets: Iterable[int]) -> None:
        """These are on their way into the log."""
        for queue_offset in queue_offsets:
            self._under_way[queue_offset] = None
        if self._refused:
            self._refused = [one for one in self._refused if one not in self._under_way]
            self._under_way = dict.fromkeys(sorted(self._under_way))

    def dropped(self, queue_offset: int) -> None:
        """A refused one that can never be put."""
        self._refused = [one for one in self._refused if one != queue_offset]

    def acknowledged(self, queue_offsets: Iterable[int]) -> None:
        """These are in the log."""
        for queue_offset in queue_offsets:
            self._under_way.pop(queue_offset, None)

    def refused(self, queue_offsets: Iterable[int], clock_ms: int) -> None:
        """The broker did not take these: they are put again after AGAIN_MS, in order."""
        for queue_offset in queue_offsets:
            if self._under_way.pop(queue_offset, queue_offset) is None:
                self._refused.append(queue_offset)
        self._refused.sort()
        self._again_at_ms = clock_ms + AGAIN_MS

    def resume(self, under_way: Iterable[int], refused: Iterable[int], next_offset: int) -> None:
        """Go on where a process that died was."""
        self.next_offset = next_offset
        self._under_way = dict.fromkeys(under_way)
        self._refused = sorted(refused)

    def wait_ms(self, now_ms: int, clock_ms: int) -> int:
        """Return how long nothing is to be done for what is known, NEVER_MS at most."""
        if self._refused:
            return max(0, self._again_at_ms - clock_ms)
        if self.look_at_ms == NEVER_MS:
            return NEVER_MS
        return min(max(0, self.look_at_ms - now_ms), self.arrivals.ripe_in_ms(self.next_offset, clock_ms))


def version_steps(before: int, after: int, step: int) -> int:
    """Return how often 5.x counts its table's version up while so many offsets were passed: each `step` updates."""
    return max(0, after // step - before // step)
