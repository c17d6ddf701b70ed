"""Heartbeats that were handed on and not taken yet: a client that waits too long hears that the broker is busy.

Implements: BrokerFastFailure's look at the heartbeat queue (waitTimeMillsInHeartbeatQueue)
A heartbeat is taken once the clients role's ring was read beyond it, whatever that role answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from engine.front.connections.peer import Peer
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.answers import TIMED_OUT
from ipc.clock import monotonic_ms

KEPT_MAX = 100_000


class Waiting(NamedTuple):
    """A heartbeat, where in the ring it ends, since when it is there."""

    peer: Peer
    request: RemotingCommand
    end: int
    since_ms: int


class LateHeartbeats:
    """Heartbeats that one front handed on. `limit_ms`: how long each may wait; None: without limit."""

    def __init__(self, limit_ms: int | None, version: int) -> None:
        self._limit_ms, self._version = limit_ms, version
        self._waiting: deque[Waiting] = deque()

    def note(self, peer: Peer, request: RemotingCommand, end: int) -> None:
        """Note a heartbeat that was handed on and ends at `end` in the clients role's ring."""
        if self._limit_ms is not None and not request.is_oneway and len(self._waiting) < KEPT_MAX:
            self._waiting.append(Waiting(peer, replace(request, body=b""), end, monotonic_ms()))

    def expired(self, taken: int, now_ms: int) -> Iterator[tuple[Peer, RemotingCommand]]:
        """Yield the heartbeats that wait too long, each with its answer; `taken` is how far the ring was read."""
        waiting = self._waiting
        while waiting and waiting[0].end <= taken:
            waiting.popleft()
        while waiting and self._limit_ms is not None and now_ms - waiting[0].since_ms >= self._limit_ms:
            one = waiting.popleft()
            remark = TIMED_OUT.format(now_ms - one.since_ms, len(waiting))
            if one.peer.is_open:
                busy = one.request.answer(ResponseCode.SYSTEM_BUSY, remark, version=self._version)
                yield one.peer, busy
