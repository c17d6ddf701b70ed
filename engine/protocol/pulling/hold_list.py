"""Pulls that wait for messages: held by queue, answered when a message comes that they want, or their time is over.

Implements: PullRequestHoldService, ManyPullRequest (spec: remoting, 7 and 10)
Bounded in all and for each connection, by number and by bytes. In virtual time: the caller passes the time and where
queues end. A sweep goes over all of them every now and then, and takes those whose time is over, and those whose queue
has grown, wanted or not: so a consumer whose tags do not arrive learns how far the queue is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.protocol.pulling.subscription import TagFilter

SWEEP_MS = 5000
SWEPT_AT_ONCE = 2000
Queue = tuple[str, int]  # topic, queue id


@dataclass(slots=True)
class HeldPull:
    """A pull that waits. `looked_to`: no message of the queue below that is one that it wants."""

    queue: Queue
    offset: int
    tags: TagFilter
    until_ms: int
    connection: int
    request: Any
    size: int = 0  # bytes that it costs, about
    came_ns: int = 0  # as of time.monotonic_ns
    looked_to: int = field(init=False)

    def __post_init__(self) -> None:
        self.looked_to = self.offset


@dataclass(slots=True)
class OfConnection:
    """The pulls of one connection."""

    pulls: dict[int, HeldPull] = field(default_factory=dict)  # by their ids
    bytes: int = 0


class HoldLimits(NamedTuple):
    """The bounds of what may be held."""

    pulls: int
    pulls_of_one: int
    bytes: int
    bytes_of_one: int


class HoldList:
    """Pulls that one front holds."""

    def __init__(self, limits: HoldLimits, *, sweep_ms: int = SWEEP_MS, now_ms: int = 0) -> None:
        self._limits, self._sweep_ms = limits, sweep_ms
        self._queues: dict[Queue, list[HeldPull]] = {}
        self._of_connection: dict[int, OfConnection] = {}  # by number
        self._sweep_at_ms = now_ms + sweep_ms
        self._to_sweep: Iterator[Queue] | None = None
        self.count = self.bytes = 0

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull; False where it is too much, in all or of its connection."""
        limits, own = self._limits, self._of_connection.get(pull.connection)
        if self.count >= limits.pulls or self.bytes + pull.size > limits.bytes or pull.size > limits.bytes_of_one:
            return False
        if own is None:
            own = self._of_connection[pull.connection] = OfConnection()
        elif len(own.pulls) >= limits.pulls_of_one or own.bytes + pull.size > limits.bytes_of_one:
            return False
        self._queues.setdefault(pull.queue, []).append(pull)
        own.pulls[id(pull)] = pull
        own.bytes += pull.size
        self.count += 1
        self.bytes += pull.size
        return True

    def __contains__(self, queue: Hashable) -> bool:
        return queue in self._queues

    def queues(self) -> Iterator[Queue]:
        """Return the queues that pulls wait for."""
        return iter(self._queues)

    def arrived(self, queue: Queue, end: int, is_matched: Callable[[TagFilter, int, int], bool]) -> list[HeldPull]:
        """The queue ends there now: the pulls for which `is_matched(tags, from, to)` something came, held no more."""

        def is_wanted(pull: HeldPull) -> bool:
            if end <= pull.looked_to:
                return False
            if pull.tags.takes_all or is_matched(pull.tags, pull.looked_to, end):
                return True
            pull.looked_to = end
            return False

        return self._take(queue, is_wanted)

    def due(self, now_ms: int, end_of: Callable[[Queue], int]) -> list[HeldPull]:
        """Take the pulls that the sweep finds due, a part of the queues a call; the list holds them no more."""
        if self._to_sweep is None:
            if now_ms < self._sweep_at_ms:
                return []
            self._sweep_at_ms = now_ms + self._sweep_ms
            self._to_sweep = iter(list(self._queues))
        taken: list[HeldPull] = []
        looked_at = 0
        for queue in self._to_sweep:
            end = end_of(queue)
            looked_at += len(self._queues.get(queue, ()))
            taken += self._take(queue, lambda pull, end=end: end > pull.offset or now_ms >= pull.until_ms)  # type: ignore[misc]
            if looked_at >= SWEPT_AT_ONCE:
                return taken
        self._to_sweep = None
        return taken

    @property
    def next_sweep_ms(self) -> int:
        """Return when `due` must be called next; 0 while it has more to say."""
        return self._sweep_at_ms if self._to_sweep is None else 0

    def peer_gone(self, connection: int) -> None:
        """A connection is gone, and its pulls with it."""
        own = self._of_connection.get(connection)
        for queue in {pull.queue for pull in own.pulls.values()} if own is not None else ():
            self._take(queue, lambda pull: pull.connection == connection)

    def all(self) -> list[HeldPull]:
        """Return all pulls, and hold them no more."""
        return [pull for queue in list(self._queues) for pull in self._take(queue, lambda _pull: True)]

    def _take(self, queue: Queue, is_taken: Callable[[HeldPull], bool]) -> list[HeldPull]:
        taken: list[HeldPull] = []
        kept: list[HeldPull] = []
        for pull in self._queues.get(queue, ()):
            (taken if is_taken(pull) else kept).append(pull)
        if not taken:
            return taken
        if kept:
            self._queues[queue] = kept
        else:
            del self._queues[queue]
        self.count -= len(taken)
        for pull in taken:
            own = self._of_connection[pull.connection]
            del own.pulls[id(pull)]
            own.bytes -= pull.size
            self.bytes -= pull.size
            if not own.pulls:
                del self._of_connection[pull.connection]
        return taken
