"""Pulls of a front that wait for messages: what holds them, what wakes them, who is answered when.

Implements: PullRequestHoldService, NotifyMessageArrivingListener (spec: remoting, 7 and 10)
Follows:    reput_from_offset, while pulls are held: then the ends of the queues that are waited for are looked at
Publishes:  pulls_held of its front
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic_ns
from typing import Protocol

from engine.front.connections.bridge import Bridge
from engine.front.connections.pace import NEVER_MS
from engine.front.connections.peer import TURN_SECONDS, Peer
from engine.front.connections.service import FrontContext
from engine.front.frames.answer_forms import AnswerForms
from engine.front.pulls.held_ends import HeldEnds
from engine.front.pulls.held_pull_kernel import NEVER
from engine.front.pulls.log_view import LogView, Queue
from engine.front.pulls.pull_words import PullAnswer
from engine.front.pulls.usual_pulls import Asked, HeldRow, UsualPulls
from engine.front.pulls.woken_pulls import Woken, WokenPulls
from engine.protocol.pulling.header import PullFlag
from engine.protocol.pulling.hold_list import SWEEP_MS, HeldPull, HoldList, Most
from engine.protocol.pulling.subscription import TagFilter
from ipc import waiting
from ipc.clock import monotonic_ms

MAX_OF_ONE = 20_000  # a process of many consumers has one connection
BYTES_MAX, BYTES_MAX_OF_ONE = 128 << 20, 16 << 20  # of their requests
LONG_MAX = (1 << 62) - 1


class Server(Protocol):
    """The part of a front that answers pulls."""

    def serve(self, pull: Woken) -> None:
        """Serve a woken pull that the compiled way does not answer."""

    def was_held(self, came_ns: int) -> None:
        """The compiled way has answered one that came then."""

    def was_in_vain(self, pull: HeldRow) -> None:
        """The compiled way has answered one that nothing came for."""


class HeldPulls:
    """Pulls of one front that wait for messages."""

    def __init__(self, context: FrontContext, view: LogView, forms: AnswerForms, server: Server, commits: bool) -> None:
        config, board = context.config, context.board
        self._context, self._view, self._server, self._most = context, view, server, config.pull_queue_capacity
        sweep_ms = SWEEP_MS if config.long_polling_enable else config.short_polling_time_ms
        self._short_ms = None if config.long_polling_enable else config.short_polling_time_ms
        most = Most(self._most, MAX_OF_ONE, BYTES_MAX, BYTES_MAX_OF_ONE)
        self._held = HoldList(most, sweep_ms=sweep_ms, now_ms=monotonic_ms())
        self._ends = HeldEnds(view)
        self.woken = WokenPulls(context.loop, server.serve)
        self.usual = UsualPulls(
            view,
            board,
            forms,
            commits=commits,
            short_ms=self._short_ms,
            sweep_ms=sweep_ms,
            holds=self._hold_usual,
            holds_more=self._holds_more,
        )
        self.usual.held_max = self._most
        dispatched = board.reput_from_offset
        self._over_ms = NEVER  # pulls whose time was over then are answered by the round that goes on
        self._bridge = Bridge(dispatched.words, dispatched.index, rests=True)
        context.loop.add_reader(self._bridge.fd, self.look)

    @property
    def count(self) -> int:
        """Return how many pulls wait, held in either way."""
        return self._held.count + self.usual.held

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
        if self.usual.sweeps(now_ms):
            self._over_ms = now_ms
            self._wake_usual()
        self.woken.go_on()
        self._note()

    def rest_ms(self, now_ms: int) -> int:
        """Return how long it is until a sweep has something to look at."""
        if not self.count:
            return NEVER_MS
        by_python = self._held.next_sweep_ms if self._held.count else self.usual.next_sweep_ms
        compiled = self.usual.next_sweep_ms if self.usual.held else by_python
        return min(by_python, compiled) - now_ms

    def left(self, number: int) -> None:
        """A connection is gone, and its pulls with it."""
        self._held.left(number)
        self.usual.left(number)
        self.woken.left(number)
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

    def _hold_usual(self, asked: Asked, suspend_ms: int) -> bool:
        """Hold a usual pull that asks for what comes next in its queue; False where it may not be suspended."""
        known = self.usual.known[asked.row]
        if not known.flags & PullFlag.SUSPEND:
            return False
        return self.hold(known.queue, known.tags, asked.offset, asked.offset, suspend_ms, asked)

    def _note(self) -> None:
        self.usual.held_max = self._most - self._held.count
        waiting.note(self._context.words.pulls_held, self.count)

    def _holds_more(self) -> None:
        """Follow the ends of queues again, and count what is held."""
        if self._bridge.rests:
            self._bridge.go_on()
        self._note()

    def _hold_here(self, rows: Iterable[HeldRow]) -> None:
        """Hold here what the compiled way held."""
        for held in rows:
            asked, known = self._asked_again(held), self.usual.known[held.row]
            if asked is None:
                continue
            pull = HeldPull(
                known.queue, held.offset, known.tags, held.until_ms, held.peer, asked, asked.cost, held.came_ns
            )
            if self._held.hold(pull):
                self._ends.follow(known.queue, held.offset)
            else:
                self._wake(pull)

    def forget_usual(self) -> None:
        """Forget all usual pulls, and hold theirs here."""
        self._hold_here(self.usual.release_all())
        self.usual.clear()

    # what wakes

    def look(self) -> None:
        """Wake pulls whose queues have moved."""
        self._bridge.heard()
        self._wake_usual()
        for queue, end in self._ends.moved() if self._held.count else ():
            if queue in self._held:
                for pull in self._held.arrived(queue, end, partial(self._view.any_matched, queue)):
                    self._wake(pull)
            if queue not in self._held:
                self._ends.forget(queue)
        self.woken.go_on()
        self._note()

    def _wake(self, pull: HeldPull) -> None:
        self.woken.add(Woken(pull.request, is_first=False, came_ns=pull.came_ns))

    def _wake_usual(self) -> None:
        """Answer those that the compiled way holds, until all are or others have to have their turn."""
        self.usual.note_born()
        began, place = time.monotonic(), 0
        while place < self.usual.held:
            place, woken = self.usual.wake(place, self._over_ms)
            for number, rows in groupby(woken, attrgetter("peer")):
                if self._answer(number, list(rows)):
                    place = 0  # others have moved
            if place < self.usual.held and time.monotonic() - began > TURN_SECONDS:
                self._context.loop.call_soon(self.look)
                return
        self._over_ms = NEVER

    def _answer(self, number: int, woken: list[HeldRow]) -> bool:
        """Answer a connection's woken pulls in one write; return whether its others are held here from now on."""
        answered = [held for held in woken if held.end > held.begin]
        for held in woken:
            if held.end == held.begin:
                self._wake_row(held)
        peer = self._context.peers.get(number)
        if peer is None or not answered:
            return False
        self.usual.send(peer, answered[0].begin, answered[-1].end)
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
            self.woken.add(Woken(asked, is_first=False, came_ns=held.came_ns))

    def _asked_again(self, held: HeldRow) -> Asked | None:
        """Return a pull that the compiled way held; None where its connection is gone."""
        peer = self._context.peers.get(held.peer)
        return Asked(peer, b"", self.usual.request_of(held)) if peer is not None else None

    def _spares(self, peer: Peer) -> bool:
        """Return whether a connection does not take its answers; `WokenPulls` then waits for it."""
        if peer.room <= 0:
            peer.flush()
        if peer.room > 0:
            return False
        self._hold_here(self.usual.left(peer.number))
        return True
