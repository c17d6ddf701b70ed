"""Which of two masters of one name must step down, and what a claim to be the newer one has to prove. No I/O.

A master whose epoch is above ours has taken our place. Of two that began one epoch at the same time, exactly one goes
on: the one that takes messages already; else the one whose log was longer when it was promoted; else the smaller
NAME:ID. Both come to the same answer from the same facts.

A claim is believed with a proof only. With a secret (haSecretFile) that is a signature over a number that the asker has
just made up. Without one it is the log: histories that fit, and digests of ranges that the asker chooses by chance.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from store.epochs import Epoch

RANGES, RANGE_BYTES_MAX = 4, 64 * 1024
LOOK_MS, SOON_MS, LONE_LOOK_MS = 1000, 100, 10_000
GAP_MS = 3000  # a loop that turns once a second at least has stood still
HOLD_MS = 10_000  # how long a promoted master waits for one that must step down, a woken one until it has asked


class Verdict(StrEnum):
    """The relation of another broker of our name to this master."""

    NOBODY = ""  # no master, or ourselves at another address
    YIELD = "YIELD"  # it is the master, and has proved it: this one becomes its slave
    UNPROVEN = "UNPROVEN"  # it says that it is the newer master and proves nothing: a person decides
    OLDER = "OLDER"  # it must step down, not we
    EQUAL = "EQUAL"  # both say the same epoch of the same broker: a copy of a whole disk, or two without any epoch
    UNREACHED = "UNREACHED"  # a name server calls it the master, after it called us so, and it does not answer us


class Standing(NamedTuple):
    """The words of a broker on itself: the entries of its epochs, and which run of it speaks ("": it does not say)."""

    entries: tuple[Epoch, ...]
    is_master: bool
    is_confirmed: bool  # it takes messages: it has asked who else is a master since it was promoted
    run: str = ""

    @property
    def epoch(self) -> int:
        """The last one; 0 before the first promotion."""
        return self.entries[-1].epoch if self.entries else 0


class Extent(NamedTuple):
    """Range of offsets that a log holds."""

    low: int
    high: int


def judge(own: Standing, other: Standing, *, is_proved: bool) -> Verdict:
    """Return what that broker is to us, a master."""
    if not other.is_master or (own.run and other.run == own.run):
        return Verdict.NOBODY
    if (own.epoch, own.entries[-1:]) == (other.epoch, other.entries[-1:]):
        return Verdict.EQUAL
    if not _takes_precedence(other, own):
        return Verdict.OLDER
    return Verdict.YIELD if is_proved else Verdict.UNPROVEN


def _takes_precedence(one: Standing, other: Standing) -> bool:
    if one.epoch != other.epoch or not one.epoch:
        return one.epoch > other.epoch
    if one.is_confirmed != other.is_confirmed:
        return one.is_confirmed
    mine, its = one.entries[-1], other.entries[-1]
    if mine.start_offset != its.start_offset:
        return mine.start_offset > its.start_offset
    return mine.broker < its.broker


def fits(own: tuple[Epoch, ...], other: tuple[Epoch, ...]) -> bool:
    """Whether the other history may go on from ours: it has all our reigns but the last, which it may not know of.

    Those that it has forgotten, the oldest, count as had.
    """
    first = other[0].epoch if other else 0
    return all(one in other for one in own[:-1] if one.epoch >= first)


def common_range(own: tuple[Epoch, ...], other: tuple[Epoch, ...], own_log: Extent, its_log: Extent) -> Extent:
    """Return the offsets that both logs share if one history continues the other: up to a reign known to one only.
    Empty (`low` == `high`) where they share none.
    """
    known = set(own) & set(other)
    apart = [one.start_offset for one in (*own, *other) if one not in known]
    low = max(own_log.low, its_log.low)
    return Extent(low, max(low, min([own_log.high, its_log.high, *apart])))


def chosen_ranges(common: Extent, dice: random.Random) -> list[Extent]:
    """Ranges of which digests are asked, chosen so that nobody can have prepared them; one of them ends at the end."""
    size = common.high - common.low
    if size <= 0:
        return []
    chosen = []
    for number in range(RANGES):
        length = dice.randint(1, min(size, RANGE_BYTES_MAX))
        low = common.high - length if number == 0 else dice.randint(common.low, common.high - length)
        chosen.append(Extent(low, low + length))
    return chosen


class Step(StrEnum):
    """The next step of a master that has answers."""

    STAY = ""
    SERVE = "SERVE"  # it was promoted, has asked, and nobody takes precedence: from now on it takes messages
    STEP_DOWN = "STEP_DOWN"


class Watch:
    """Decides when a master asks for other masters, and what follows from the answers. Times are monotonic, in ms.

    `may_step_down`: whether there is a name server or a secret; else a person decides.
    """

    def __init__(self, now_ms: int, *, may_step_down: bool) -> None:
        self._may_step_down, self._turned_ms, self._due_ms = may_step_down, now_ms, now_ms
        self._hold_until_ms = now_ms + HOLD_MS
        self._most_seen = 0
        self._is_unsure = True  # it has just begun, has stood still, or knows of another master

    def is_due(self, now_ms: int, connected: int, met: int, *, asks_first: bool) -> bool:
        """Whether to ask now: fewer slaves are connected than once were, or than brokers of its name it has ever met
        (`met`), or none; or this master has stood still. One that has met nobody asks seldom. `asks_first`: it takes no
        message before it has asked. To be called often."""
        self._is_unsure |= asks_first or now_ms - self._turned_ms > GAP_MS
        self._turned_ms, self._most_seen = now_ms, max(self._most_seen, connected)
        sees_all = connected >= max(self._most_seen, met) > 0
        if now_ms < self._due_ms and not (self._is_unsure and self._due_ms - now_ms > LOOK_MS):
            return False
        seldom = not met and not self._most_seen and not self._is_unsure
        self._due_ms = now_ms + (LONE_LOOK_MS if seldom else LOOK_MS)
        return not sees_all or self._is_unsure or asks_first

    def step(self, now_ms: int, verdicts: Collection[Verdict], *, asks_first: bool) -> Step:
        """Return what to do, all that could be asked having answered."""
        self._is_unsure = bool(verdicts)
        if Verdict.YIELD in verdicts and self._may_step_down:
            return Step.STEP_DOWN
        if not asks_first:
            return Step.STAY
        if {Verdict.OLDER, Verdict.UNPROVEN} & set(verdicts) and now_ms < self._hold_until_ms:
            self._due_ms = now_ms + SOON_MS
            return Step.STAY
        return Step.SERVE


class Hold:
    """Keeps a master that has stood still from taking messages until it has asked who else is one; HOLD_MS at most
    where nobody asks, unless it is fenced. Times are monotonic, in ms."""

    def __init__(self) -> None:
        self.since_ms, self._turned_ms = 0, 1 << 62

    def begins(self, now_ms: int) -> bool:
        """Whether it has stood still since its last turn; to be called at least once a second."""
        gap_ms, self._turned_ms = now_ms - self._turned_ms, now_ms
        if gap_ms > GAP_MS:
            self.since_ms = now_ms
        return gap_ms > GAP_MS

    def lasts(self, now_ms: int, asked_ms: int, *, is_fenced: bool) -> bool:
        """Whether it still holds, the last question that is answered having begun at `asked_ms`."""
        if asked_ms >= self.since_ms or (now_ms - self.since_ms >= HOLD_MS and not is_fenced):
            self.since_ms = 0
        return self.since_ms > 0
