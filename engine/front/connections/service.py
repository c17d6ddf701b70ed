"""What a front's services share, and what each is: some request codes, answered at once or when something has happened.

A service gets a request with the peer that sent it. It returns the answer, or None and answers later by
`FrontContext.answer`, or never. It never waits: what takes time is followed, or asked of the clients role.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from engine.front.connections.front_counts import FrontCounts
from engine.front.connections.peer import Peer
from engine.front.connections.relay import Relay
from engine.front.connections.tables import Tables
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand, encode
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, FrontCursors
from ipc.arrays import Bytes
from store.compat import Line, line_of
from store.put.events import MovedOffset

MOVED_MAX = 1000


@dataclass(frozen=True, slots=True)
class FrontContext:
    """Settings, tables and links that all services of one front share."""

    config: BrokerConfig
    counters: BrokerCounters
    words: FrontCursors
    loop: asyncio.AbstractEventLoop
    tables: Tables
    relay: Relay
    peers: Mapping[int, Peer]  # by number, those that are there
    number: int  # of the front
    counts: FrontCounts
    received: Bytes  # where the requests of all connections arrive
    moved: deque[MovedOffset] = field(default_factory=lambda: deque(maxlen=MOVED_MAX))  # noted, to be written

    @property
    def line(self) -> Line:
        """The release line whose broker this is."""
        return line_of(self.config.compat)

    def answer(self, peer: Peer, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Send an answer, unless nobody waits for it; it leaves when the turn ends."""
        if not request.is_oneway:
            peer.write(frame_of(request, answer))


def frame_of(request: RemotingCommand, answer: RemotingCommand) -> bytes:
    """The answer's frame, or that of a refusal where it fits none."""
    try:
        return encode(answer)
    except MalformedFrame as malformed:
        remark = f"the answer has no frame: {malformed}"
        return encode(request.answer(ResponseCode.SYSTEM_ERROR, remark, version=answer.version))


class Service(Protocol):
    """A part of a front that answers some request codes itself."""

    codes: frozenset[int]

    def begin(self, request: RemotingCommand, peer: Peer, now_ms: int) -> RemotingCommand | None:
        """A request; its answer, if there is one already. `now_ms` is wall time."""

    def turn(self, now_ms: int) -> None:
        """Look at the clock (monotonic), some times a second while something is under way."""

    def rest_ms(self, now_ms: int) -> int:
        """Return for how long no turn is needed, unless a request arrives; `now_ms` as in `turn`."""

    def peer_gone(self, peer: Peer) -> None:
        """A connection is gone: what was under way for it needs no answer."""

    def close(self) -> None:
        """Release what the service holds: maps, threads, descriptors."""
