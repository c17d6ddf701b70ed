"""What a history must keep: decided from what producers were answered and consumers were given, and when.

Kinds of messages and what becomes of a transaction are java/History.java's; times are of one host's clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = ("plain", "order", "delay", "decide")
DELAY_MS = (1000, 2000, 3000)  # of n % 3
NUMBERS_A_THREAD = 1_000_000
LOCK_MS = 60_000  # REBALANCE_LOCK_MAX_LIVE_TIME of a broker
SHOWN = 5


class Sent(NamedTuple):
    """A message and its answer: no status where there was none."""

    kind: str
    n: int
    begun: int
    at: int
    status: str | None
    queue: int
    offset: int

    @property
    def is_acknowledged(self) -> bool:
        """Whether the broker said that it keeps it."""
        return self.status == "SEND_OK"


class Got(NamedTuple):
    """A message as a consumer was given it."""

    member: str
    kind: str
    n: int
    queue: int
    offset: int
    times: int
    at: int


class Span(NamedTuple):
    """A member had an orderly queue's messages in its hands."""

    member: str
    queue: int
    begun: int
    ended: int


class Offset(NamedTuple):
    """What the broker says how far a group is; how often the whole broker, and anything, had been killed by then."""

    group: str
    queue: int
    offset: int
    broker_life: int
    kills: int = 0


@dataclass
class History:
    """All that happened."""

    sent: dict[int, Sent] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    offsets: list[Offset] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)  # when the whole broker was killed
    _open: dict[tuple[str, int], int] = field(default_factory=dict)
    _first: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, member: str, event: dict[str, Any]) -> None:
        """A line of History.java, said by that JVM."""
        match event["e"]:
            case "sent":
                fields = {"status": None, "queue": -1, "offset": -1, **event}
                self.sent[event["n"]] = Sent(*(fields[name] for name in Sent._fields))
            case "got":
                self.got.append(Got(*({**event, "member": member}[name] for name in Got._fields)))
            case "in":
                self._open[member, event["queue"]] = event["at"]
            case "out":
                begun = self._open.pop((member, event["queue"]))
                self.spans.append(Span(member, event["queue"], begun, event["at"]))

    def member_ended(self, member: str) -> None:
        """A killed member holds nothing any more."""
        self._open = {key: at for key, at in self._open.items() if key[0] != member}

    def missing(self) -> list[Sent]:
        """What has to be seen and was not: all acknowledged, of transactions those that are committed."""
        seen = {one.n for one in self.got}
        due = (one for one in list(self.sent.values()) if one.is_acknowledged and not is_rolled_back(one.kind, one.n))
        return [one for one in due if one.n not in seen]

    def duplicates(self) -> int:
        """Deliveries of what a group had been given before, retries that it asked for left out."""
        times = Counter((one.kind, one.queue, one.offset) for one in self.got)
        return sum(times.values()) - len(times)

    def written_twice(self) -> int:
        """Messages that came into their topic more than once."""
        places = defaultdict(set)
        for one in self.got:
            places[one.n].add((one.queue, one.offset))
        return sum(len(of) - 1 for of in places.values())


def is_rolled_back(kind: str, n: int) -> bool:
    """Whether a transaction is decided so that nobody may see its message."""
    return kind == "decide" and n % 2 == 1


def faults(history: History) -> list[str]:
    """What is not as it must be, one line each."""
    lines = [
        _said("acknowledged and never seen", history.missing()),
        _said("seen and never sent", [one for one in history.got if one.n not in history.sent and not history.kills]),
        _said("rolled back and seen", [one for one in history.got if is_rolled_back(one.kind, one.n)]),
        _said("a transaction seen twice", sorted(_twice(history.got))),
        _said("delivered before its time", list(_early(history))),
        _said("not in order in its queue", list(_disordered(history.got))),
        _said("stored out of order", list(_stored_out_of_order(history.sent.values()))),
        _said("two members at one orderly queue", _together(history)),
        _said("an offset that went back", list(_gone_back(history.offsets))),
    ]
    if not history.kills:
        again = [kind for kind in (history.duplicates(), history.written_twice()) if kind]
        silent = [one for one in history.sent.values() if not one.is_acknowledged]
        lines.append(_said("delivered again or written twice, and nothing was killed", again))
        lines.append(_said("not acknowledged, and nothing was killed", silent))
    return [line for line in lines if line]


def _said(what: str, cases: list[Any]) -> str:
    return f"{what}: {len(cases)}, as {cases[:SHOWN]}" if cases else ""


def _twice(got: Iterable[Got]) -> set[int]:
    """Messages of transactions that came into their topic more than once."""
    places = defaultdict(set)
    for one in got:
        if one.kind == "decide":
            places[one.n].add((one.queue, one.offset))
    return {n for n, of in places.items() if len(of) > 1}


def _early(history: History) -> Iterable[tuple[Sent, int]]:
    for one in history.got:
        sent = history.sent.get(one.n)
        if one.kind == "delay" and sent is not None and one.at < sent.begun + DELAY_MS[one.n % 3]:
            yield sent, one.at


def _disordered(got: Iterable[Got]) -> Iterable[tuple[Got, int]]:
    """Orderly: what is given for the first time lies behind all that was given."""
    last: dict[int, int] = {}
    for one in sorted((one for one in got if one.kind == "order"), key=lambda one: one.at):
        before = last.get(one.queue, -1)
        if one.offset > before + 1:
            yield one, before
        last[one.queue] = max(before, one.offset)


def _stored_out_of_order(sent: Iterable[Sent]) -> Iterable[tuple[Sent, Sent]]:
    """One thread's messages lie in a queue in the order in which they were sent."""
    last: dict[tuple[int, int], Sent] = {}
    for one in sorted(sent, key=lambda one: one.n):
        if one.is_acknowledged and one.kind in ("plain", "order"):
            key = one.n // NUMBERS_A_THREAD, one.queue
            if key in last and last[key].offset >= one.offset:
                yield last[key], one
            last[key] = one


def together_after_deaths(history: History) -> int:
    """Two members at one orderly queue after their broker was killed, who has its locks in memory as a real one has."""
    return sum(1 for _ in _overlapping(history.spans)) - len(_together(history))


def _together(history: History) -> list[tuple[Span, Span]]:
    """But for the time in which both may believe that they have the lock."""
    return [
        (before, span)
        for before, span in _overlapping(history.spans)
        if not any(0 <= span.ended - died < LOCK_MS for died in history.deaths)
    ]


def _overlapping(spans: Iterable[Span]) -> Iterable[tuple[Span, Span]]:
    last: dict[int, Span] = {}
    for span in sorted(spans, key=lambda span: (span.begun, span.ended)):
        before = last.get(span.queue)
        if before is not None and before.member != span.member and span.begun < before.ended:
            yield before, span
        if before is None or span.ended > before.ended:
            last[span.queue] = span


def _gone_back(offsets: Iterable[Offset]) -> Iterable[tuple[Offset, int]]:
    """Readings below an earlier one while the broker that began the history lives, whatever of it is killed.

    After its death, see `said_again`.
    """
    return _lower(one for one in offsets if not one.broker_life)


def said_again(offsets: Iterable[Offset]) -> int:
    """Readings below an earlier one of the same life of a broker that was killed before.

    The file is some seconds old, and a consumer that lived through the death goes on from where it was itself while
    another one has its queues: both say how far they are. At a real broker it is the same.
    """
    return sum(1 for _ in _lower(one for one in offsets if one.broker_life))


def _lower(offsets: Iterable[Offset]) -> Iterable[tuple[Offset, int]]:
    most: dict[tuple[str, int, int], int] = {}
    for one in offsets:
        key = one.group, one.queue, one.broker_life
        if one.offset < most.get(key, -1):
            yield one, most[key]
        most[key] = max(one.offset, most.get(key, -1))
