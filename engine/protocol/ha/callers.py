"""Who waits for a place as a slave, who gets one, and who gives one up for that: bounded, fair among addresses.

spec: ha-protocol, 1 roles and wiring (nothing checks who a peer is), 14 traps (a 4.9 slave says nothing for 5 s)

    arrives -> silent -- whole first report --> waits -- a slot is free --> holds the slot until its connection ends

The protocol has no names and no secrets, so a caller that sends eight bytes is served like a slave. A stranger cannot
take what others need: callers of one IPv4 address or IPv6 network (`crowd`) make room for each other before anybody
else makes room for them; slots (HA_CONNECTIONS_MAX) go to the crowd that holds the fewest, and to its caller that waits
longest. A caller that holds a slot without being a slave (it says nothing, or acknowledges nothing) gives the slot up
as soon as another one waits.
Pure: a caller is a number that the listener knows, time is passed in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.protocol.ha.hello import REPEATED
from engine.protocol.ha.wire import REPORT_BYTES

# Of a crowd that is too large goes neither who has just come, and may speak the next moment, nor who has waited long.
NEWCOMERS = 64
# A sender is a process: of one crowd so many may be begun at once, then so many a second.
BEGUN_AT_ONCE, BEGUN_IN_A_SECOND = 16, 4
CROWDS_REMEMBERED = 1024


class CallerLimits(NamedTuple):
    """The settings of callers: how many there may be, and how patient a master is."""

    callers_max: int
    send_heartbeat_interval_ms: int
    housekeeping_interval_ms: int

    @property
    def patience_ms(self) -> int:
        """Return how long a slave may be silent when others want its place: its heartbeats come twice as often."""
        return min(2 * self.send_heartbeat_interval_ms, self.housekeeping_interval_ms)

    @property
    def proof_ms(self) -> int:
        """Return how long a slave may take to its first acknowledgement, due at once, when others want its place."""
        return self.patience_ms // 4


@dataclass(slots=True)
class Caller:
    """A connection that has no slot yet."""

    number: int
    crowd: Hashable
    since_ms: int  # silent, or once `report` is whole: waiting
    reports: bytes = b""  # the first one; and what came with it, as all that a Slipstream slave repeats

    @property
    def has_reported(self) -> bool:
        """Whether its first report is whole."""
        return len(self.reports) >= REPORT_BYTES


class Holder(NamedTuple):
    """A slot that is taken: whose it is, since when; when its slave was last heard, and when it last acknowledged what
    it was sent, or there was nothing to acknowledge; whether it ever did."""

    slot: int
    crowd: Hashable
    since_ms: int
    heard_ms: int
    acknowledged_ms: int
    is_proven: bool


class Callers:
    """Callers that want to be slaves of one master."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        self._callers: dict[int, Caller] = {}  # in the order of their coming
        self._crowds: dict[Hashable, dict[int, Caller]] = {}
        self._waiting: dict[int, Caller] = {}  # in the order of their reports
        self._allowances: dict[Hashable, tuple[float, int]] = {}  # of crowds served lately: senders, and at what time

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for a slot."""
        return bool(self._waiting)

    # coming and going

    def arrived(self, number: int, crowd: Hashable, now_ms: int) -> int | None:
        """A connection came; the caller who has to leave for it, if there are too many now."""
        caller = self._callers[number] = Caller(number, crowd, now_ms)
        self._crowds.setdefault(crowd, {})[number] = caller
        return self._most_dispensable(caller, now_ms) if len(self._callers) > self._limits.callers_max else None

    def dispensable(self, now_ms: int) -> int | None:
        """Return the caller that must leave if there is no room for all; None without callers."""
        if not self._callers:
            return None
        return self._most_dispensable(next(reversed(self._callers.values())), now_ms)

    def _most_dispensable(self, last: Caller, now_ms: int) -> int:
        largest = max(map(len, self._crowds.values()))
        of_last = self._crowds[last.crowd]
        crowd = of_last if len(of_last) == largest else next(c for c in self._crowds.values() if len(c) == largest)
        silent = [caller for caller in crowd.values() if not caller.has_reported] or list(crowd.values())
        if now_ms - silent[0].since_ms > self._limits.patience_ms or len(silent) <= NEWCOMERS:
            return silent[0].number
        return silent[-NEWCOMERS - 1].number

    def heard(self, number: int, data: bytes, now_ms: int) -> bool:
        """A part of the first reports came, no more than was missing of them; whether the first one is whole now."""
        caller = self._callers[number]
        caller.reports += data
        assert len(caller.reports) <= REPEATED * REPORT_BYTES
        if caller.has_reported:
            caller.since_ms = now_ms
            self._waiting[number] = caller
        return caller.has_reported

    def missing(self, number: int) -> int:
        """Return how many bytes may be read of a caller, 0 once its first report is whole.

        A RocketMQ slave repeats its report while it waits; what it says then is not read here, or it would be taken for
        a Slipstream slave, which repeats it at once.
        """
        caller = self._callers[number]
        return 0 if caller.has_reported else REPEATED * REPORT_BYTES - len(caller.reports)

    def report_of(self, number: int) -> bytes:
        """Return the first report of a caller, as far as it has arrived."""
        return self._callers[number].reports[:REPORT_BYTES]

    def left(self, number: int) -> Caller:
        """A caller has gone, or has its slot."""
        caller = self._callers.pop(number)
        self._waiting.pop(number, None)
        crowd = self._crowds[caller.crowd]
        del crowd[number]
        if not crowd:
            del self._crowds[caller.crowd]
        return caller

    def overdue(self, now_ms: int) -> list[Caller]:
        """Return the callers that were silent, or waited, for longer than haHousekeepingInterval."""
        oldest_ms = now_ms - self._limits.housekeeping_interval_ms
        return [caller for caller in self._callers.values() if caller.since_ms < oldest_ms]

    # slots

    def next(self, holders: Sequence[Holder], now_ms: int) -> Caller | None:
        """Return the caller that gets the next slot: who waited longest, of the crowd with the fewest slots."""
        held = _counts(holder.crowd for holder in holders)
        firsts: dict[Hashable, Caller] = {}
        for caller in self._waiting.values():
            firsts.setdefault(caller.crowd, caller)
        served = [caller for crowd, caller in firsts.items() if self._allowance(crowd, now_ms) >= 1]
        return min(served, key=lambda caller: held.get(caller.crowd, 0), default=None)

    def begun(self, crowd: Hashable, now_ms: int) -> None:
        """A caller of this crowd got its slot, and with it a process."""
        self._allowances[crowd] = self._allowance(crowd, now_ms) - 1, now_ms
        if len(self._allowances) > CROWDS_REMEMBERED:
            del self._allowances[next(iter(self._allowances))]

    def _allowance(self, crowd: Hashable, now_ms: int) -> float:
        senders, at_ms = self._allowances.get(crowd, (float(BEGUN_AT_ONCE), now_ms))
        return min(BEGUN_AT_ONCE, senders + (now_ms - at_ms) * BEGUN_IN_A_SECOND / 1000)

    def gives_up(self, caller: Caller, holders: Sequence[Holder], now_ms: int) -> Holder | None:
        """Return whose slot goes to `caller` when all are taken: no real slave's, or one of a large crowd; or None."""
        overdue = {holder: self._overdue_ms(holder, now_ms) for holder in holders}
        mute = max(holders, key=lambda holder: overdue[holder])
        if overdue[mute] > 0:
            return mute
        held = _counts(holder.crowd for holder in holders)
        largest = max(held, key=lambda crowd: held[crowd])
        if held[largest] < held.get(caller.crowd, 0) + 2:
            return None
        return max((holder for holder in holders if holder.crowd == largest), key=lambda holder: holder.since_ms)

    def _overdue_ms(self, holder: Holder, now_ms: int) -> int:
        """Return by how many ms the holder of a slot was silent, or acknowledged nothing, beyond a slave's patience."""
        patience_ms = self._limits.patience_ms
        owing_ms = patience_ms if holder.is_proven else self._limits.proof_ms
        return max(now_ms - holder.heard_ms - patience_ms, now_ms - holder.acknowledged_ms - owing_ms)


def _counts(crowds: Iterable[Hashable]) -> dict[Hashable, int]:
    counts: dict[Hashable, int] = {}
    for crowd in crowds:
        counts[crowd] = counts.get(crowd, 0) + 1
    return counts
