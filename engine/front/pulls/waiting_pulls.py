"""Pulls of a front that wait for messages: what holds them, what wakes them, who is answered when.

Implements: PullRequestHoldService, NotifyMessageArrivingListener, PullMessageProcessor.executeRequestWhenWakeup (spec:
    remoting, 7 and 10)
Follows:    reput_from_offset, while pulls are held: then the ends of the queues that are waited for are looked at
Publishes:  pulls_held of its front
Of those that can be answered now a part is in each turn: thousands that wake at once hold up nobody else. What is
answered to one connection beyond what it takes waits until it has taken it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic_ns
from typing import NamedTuple, Protocol

from engine.front.connections.bridge import Bridge
from engine.front.connections.pace import NEVER_MS
from engine.front.connections.peer import TURN_SECONDS, Peer
from engine.front.connections.service import FrontContext
from engine.front.frames.answer_forms import AnswerForms
from engine.front.pulls.compiled_pulls import Asked, CompiledPulls, HeldRow
from engine.front.pulls.log_view import HeldEnds, LogView, Queue
from engine.front.pulls.pull_kernel import NEVER
from engine.front.pulls.pull_words import PullAnswer
from engine.protocol.pulling.header import PullFlag
from engine.protocol.pulling.hold_list import SWEEP_MS, HeldPull, HoldLimits, HoldList
from engine.protocol.pulling.subscription import TagFilter
from ipc import waiting
from ipc.clock import monotonic_ms


class NotifiedPull(NamedTuple):
    """A pull; `is_first`: it was not looked at before."""

    asked: Asked
    is_first: bool
    came_ns: int = 0  # of one that was held, since when

    @property
    def peer(self) -> Peer:
        """Return the connection that sent the pull."""
        return self.asked.peer


class NotifiedPulls:
    """Pulls of one front that can be answered; `serve` answers one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Callable[[NotifiedPull], None]) -> None:
        self._loop, self._serve = loop, serve
        self._notified: deque[NotifiedPull] = deque()
        self._later: dict[int, deque[NotifiedPull]] = {}  # by connection, of those who have to read first
        self._is_due = False

    def add(self, pull: NotifiedPull) -> None:
        """Add a pull, which `go_on` answers."""
        self._notified.append(pull)

    def go_on(self) -> None:
        """Answer, until all are or others have to have their turn."""
        began = time.monotonic()
        while self._notified:
            pull = self._notified.popleft()
            later = self._later.get(pull.peer.number)
            if later is not None:
                later.append(pull)
            elif self._takes_more(pull.peer):
                self._serve(pull)
            elif pull.peer.is_open:
                self._later[pull.peer.number] = deque((pull,))
                pull.peer.when_taken = partial(self._taken, pull.peer.number)
            if self._notified and time.monotonic() - began > TURN_SECONDS:
                self._go_on_soon()
                return

    @staticmethod
    def _takes_more(peer: Peer) -> bool:
        if peer.room <= 0:
            peer.flush()
        return peer.is_open and peer.room > 0

    def _taken(self, number: int) -> None:
        """A connection has taken most of what was written."""
        later = self._later.pop(number, None)
        if later is not None:
            self._notified += later
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._on_due)

    def _on_due(self) -> None:
        self._is_due = False
        self.go_on()

    def peer_gone(self, number: int) -> None:
        """Forget the waiting pulls of a closed connection."""
        self._later.pop(number, None)


MAX_OF_ONE = 20_000  # a process of many consumers has one connection
BYTES_MAX, BYTES_MAX_OF_ONE = 128 << 20, 16 << 20  # of their requests
LONG_MAX = (1 << 62) - 1


class PullServer(Protocol):
    """The part of a front that answers pulls."""

    def serve(self, pull: NotifiedPull) -> None:
        """Serve a notified pull that the compiled way does not answer."""

    def was_held(self, came_ns: int) -> None:
        """The compiled way has answered one that came then."""

    def was_in_vain(self, pull: HeldRow) -> None:
        """The compiled way has answered one that nothing came for."""


class HeldPulls:
    """Pulls of one front that wait for messages."""

    def __init__(
        self, context: FrontContext, view: LogView, forms: AnswerForms, server: PullServer, commits: bool
    ) -> None:
        config, counters = context.config, context.counters
        self._context, self._view, self._server, self._most = context, view, server, config.pull_queue_capacity
        sweep_ms = SWEEP_MS if config.long_polling_enable else config.short_polling_time_ms
        self._short_ms = None if config.long_polling_enable else config.short_polling_time_ms
        limits = HoldLimits(self._most, MAX_OF_ONE, BYTES_MAX, BYTES_MAX_OF_ONE)
        self._held = HoldList(limits, sweep_ms=sweep_ms, now_ms=monotonic_ms())
        self._ends = HeldEnds(view)
        self.notified = NotifiedPulls(context.loop, server.serve)
        self.compiled = CompiledPulls(
            view,
            counters,
            forms,
            context.received,
            commits=commits,
            short_ms=self._short_ms,
            sweep_ms=sweep_ms,
            holder=self,
        )
        self.compiled.held_max = self._most
        dispatched = counters.reput_from_offset
        self._over_ms = NEVER  # pulls whose time was over then are answered by the round that goes on
        self._bridge = Bridge(dispatched.words, dispatched.index, rests=True)
        context.loop.add_reader(self._bridge.fd, self.wake_moved)

    @property
    def count(self) -> int:
        """Return how many pulls wait, held in either way."""
        return self._held.count + self.compiled.held

    @property
    def bytes(self) -> int:
        """Return what the held requests cost in bytes."""
        return self._held.bytes

    # what a front's pulls call

    def turn(self, now_ms: int) -> None:
        """Wake what waited long enough, and answer a part of what woke."""
        if not self.count and not self._bridge.rests:
            self._bridge.rest()
        for pull in self._held.due(now_ms, self._view.end_of):
            self._wake(pull)
        if self.compiled.sweeps(now_ms):
            self._over_ms = now_ms
            self._notify_compiled()
        self.notified.go_on()
        self._note()

    def rest_ms(self, now_ms: int) -> int:
        """Return how long it is until a sweep has something to look at."""
        if not self.count:
            return NEVER_MS
        by_python = self._held.next_sweep_ms if self._held.count else self.compiled.next_sweep_ms
        compiled = self.compiled.next_sweep_ms if self.compiled.held else by_python
        return min(by_python, compiled) - now_ms

    def peer_gone(self, number: int) -> None:
        """A connection is gone, and its pulls with it."""
        self._held.peer_gone(number)
        self.compiled.release_of(number)
        self.notified.peer_gone(number)
        self._note()

    def close(self) -> None:
        """Stop without answering the held pulls: their connections end."""
        self._context.loop.remove_reader(self._bridge.fd)
        self._bridge.close()

    # what is held

    def hold(self, queue: Queue, tags: TagFilter, offset: int, end: int, suspend_ms: int, asked: Asked) -> bool:
        """Keep a pull from that offset of a queue that ends there; False where it is too much."""
        if self.count >= self._most:
            return False
        timeout_ms = suspend_ms if self._short_ms is None else self._short_ms
        until_ms = min(monotonic_ms() + timeout_ms, LONG_MAX)
        pull = HeldPull(queue, offset, tags, until_ms, asked.peer.number, asked, asked.cost, came_ns=monotonic_ns())
        if not self._held.hold(pull):
            return False
        self._ends.follow(queue, end)
        if self._bridge.rests:
            self._bridge.go_on()
        self._note()
        return True

    def hold_fast(self, asked: Asked, suspend_ms: int) -> bool:
        """Hold a fast pull that asks for what comes next in its queue; False where it may not be suspended."""
        served = self.compiled.served[asked.row]
        if not served.flags & PullFlag.SUSPEND:
            return False
        return self.hold(served.queue, served.tags, asked.offset, asked.offset, suspend_ms, asked)

    def _note(self) -> None:
        self.compiled.held_max = self._most - self._held.count
        waiting.note(self._context.words.pulls_held, self.count)

    def held_changed(self) -> None:
        """Follow the ends of queues again, and count what is held."""
        if self._bridge.rests:
            self._bridge.go_on()
        self._note()

    def _hold_here(self, rows: Iterable[HeldRow]) -> None:
        """Hold here what the compiled way held."""
        for held in rows:
            asked, served = self._asked_again(held), self.compiled.served[held.row]
            if asked is None:
                continue
            pull = HeldPull(
                served.queue, held.offset, served.tags, held.until_ms, held.peer, asked, asked.cost, held.came_ns
            )
            if self._held.hold(pull):
                self._ends.follow(served.queue, held.offset)
            else:
                self._wake(pull)

    def forget_compiled(self) -> None:
        """Forget all fast pulls, and hold theirs here."""
        self._hold_here(self.compiled.release_all())
        self.compiled.clear()

    # what wakes

    def wake_moved(self) -> None:
        """Wake pulls whose queues have moved."""
        self._bridge.heard()
        self._notify_compiled()
        for queue, end in self._ends.moved() if self._held.count else ():
            if queue in self._held:
                for pull in self._held.arrived(queue, end, partial(self._view.any_matched, queue)):
                    self._wake(pull)
            if queue not in self._held:
                self._ends.forget(queue)
        self.notified.go_on()
        self._note()

    def _wake(self, pull: HeldPull) -> None:
        self.notified.add(NotifiedPull(pull.request, is_first=False, came_ns=pull.came_ns))

    def _notify_compiled(self) -> None:
        """Answer those that the compiled way holds, until all are or others have to have their turn."""
        self.compiled.note_born()
        began, place = time.monotonic(), 0
        while place < self.compiled.held:
            place, notified = self.compiled.wake(place, self._over_ms)
            for number, rows in groupby(notified, attrgetter("peer")):
                if self._answer(number, list(rows)):
                    place = 0  # others have moved
            if place < self.compiled.held and time.monotonic() - began > TURN_SECONDS:
                self._context.loop.call_soon(self.wake_moved)
                return
        self._over_ms = NEVER

    def _answer(self, number: int, notified: list[HeldRow]) -> bool:
        """Answer a connection's notified pulls in one write; return whether its others are held here from now on."""
        answered = [held for held in notified if held.end > held.begin]
        for held in notified:
            if held.end == held.begin:
                self._wake_row(held)
        peer = self._context.peers.get(number)
        if peer is None or not answered:
            return False
        self.compiled.send(peer, answered[0].begin, answered[-1].end)
        for held in answered:
            if held.answer == PullAnswer.FOUND:
                self._server.was_held(held.came_ns)
            else:
                self._server.was_in_vain(held)
        return self._spares(peer)

    def _wake_row(self, held: HeldRow) -> None:
        """Wake a pull that the compiled way held, to be answered here."""
        asked = self._asked_again(held)
        if asked is not None:
            self.notified.add(NotifiedPull(asked, is_first=False, came_ns=held.came_ns))

    def _asked_again(self, held: HeldRow) -> Asked | None:
        """Return a pull that the compiled way held; None where its connection is gone."""
        peer = self._context.peers.get(held.peer)
        return Asked(peer, b"", self.compiled.request_of(held)) if peer is not None else None

    def _spares(self, peer: Peer) -> bool:
        """Return whether a connection does not take its answers; `NotifiedPulls` then waits for it."""
        if peer.room <= 0:
            peer.flush()
        if peer.room > 0:
            return False
        self._hold_here(self.compiled.release_of(peer.number))
        return True
