"""The connections of a serving process: how many, what they have in flight, and which are closed above the limits.

Above the limit of connections, one that never sent a whole frame is closed first, then the one that was silent longest;
those that the server wants to keep are closed last. Above the limit of bytes in flight, one that holds a quarter of the
limit is closed, or else the one whose bytes have waited longest: a frame that does not end, or answers that are not
read. So strangers who fill the tables push out one another.
"""

from __future__ import annotations

import itertools
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.net.log_lines import Seldom
from engine.protocol.access.rights import ALL, Rights
from engine.remoting.sockets.opening import Hangable
from engine.settings.keys import REMOTING_CONNECTIONS

log = logging.getLogger("slipstream.remoting")

CONNECTIONS_MIN = 8
DESCRIPTORS_WANTED, DESCRIPTORS_RESERVED = 16_384, 128  # for files, links, other servers
SERVERS_OF_A_PROCESS = 2
BYTES_IN_FLIGHT_MAX = 64 * 1024 * 1024
SMALL_BYTES = 64 * 1024  # what one connection may hold without being looked at first
SHARE_OF_ONE = 4  # one that holds such a part of what all may is looked at before all others


@dataclass(eq=False, slots=True)
class Connection:
    """One peer. `waits_since` is when we began to wait for it: for the rest of a frame, or until it reads."""

    number: int
    transport: Hangable
    peer: object
    heard_at: float = field(default_factory=time.monotonic)
    bytes_held: int = 0
    waits_since: float | None = None
    rights: Rights = ALL


class Bounds(NamedTuple):
    """The bounds of what all connections of a server may cost together."""

    connections: int = REMOTING_CONNECTIONS
    bytes_in_flight: int = BYTES_IN_FLIGHT_MAX


class Connections:
    """The table; `is_kept(number)` names those that go last."""

    def __init__(self, bounds: Bounds, is_kept: Callable[[int], bool], first_number: int = 1) -> None:
        self._bounds, self._is_kept = bounds, is_kept
        self._numbers = itertools.count(first_number)
        self._table: dict[int, Connection] = {}
        self._silent: dict[int, Connection] = {}  # sent no whole frame yet; the oldest first
        self._spoken: dict[int, Connection] = {}  # the one silent longest first
        self._bytes = 0
        self._seldom = Seldom(log)

    def admit(self, transport: Hangable, peer: object) -> Connection | None:
        """Enter a new one; None where nobody may go for it."""
        if len(self._table) >= self._bounds.connections:
            goes = self._who_goes()
            if goes is None:
                self._seldom.tell("%s: refused, all %d connections are in use", peer, len(self._table))
                return None
            self._seldom.tell(
                "%d connections, the limit: closed %s, silent for %.0f s, to admit %s",
                len(self._table),
                goes.peer,
                time.monotonic() - goes.heard_at,
                peer,
            )
            self.hang_up(goes)
        connection = Connection(next(self._numbers), transport, peer)
        self._table[connection.number] = self._silent[connection.number] = connection
        return connection

    def _who_goes(self) -> Connection | None:
        for connection in self._silent.values():
            return connection
        return next((each for each in self._spoken.values() if not self._is_kept(each.number)), None)

    def make_room(self) -> None:
        """Somebody goes, if anybody may."""
        goes = self._who_goes()
        if goes is not None:
            self.hang_up(goes)

    def spoke(self, connection: Connection) -> None:
        """Note that a connection sent a whole frame."""
        number, connection.heard_at = connection.number, time.monotonic()
        if number in self._table:
            self._silent.pop(number, None)
            self._spoken.pop(number, None)
            self._spoken[number] = connection

    def hold(self, connection: Connection, count: int, *, for_peer: bool) -> None:
        """Note that it has so many bytes in flight, because of us or `for_peer`; hang up where all have too many."""
        if connection.number not in self._table:
            return
        self._bytes += count - connection.bytes_held
        connection.bytes_held = count
        if not for_peer or not count:
            connection.waits_since = None
        elif connection.waits_since is None:
            connection.waits_since = time.monotonic()
        while self._bytes > self._bounds.bytes_in_flight and connection.number in self._table:
            goes = self._slowest() or connection
            self._seldom.tell(
                "%d bytes are in flight, %d are allowed: closed %s, which holds %d of them",
                self._bytes,
                self._bounds.bytes_in_flight,
                goes.peer,
                goes.bytes_held,
            )
            self.hang_up(goes)

    def _slowest(self) -> Connection | None:
        waited = [each for each in self._table.values() if each.waits_since is not None]
        most = max(waited, key=lambda each: each.bytes_held, default=None)
        if most is not None and most.bytes_held > self._bounds.bytes_in_flight // SHARE_OF_ONE:
            return most
        large = [each for each in waited if each.bytes_held > SMALL_BYTES]
        return min(large or waited, key=lambda each: each.waits_since or 0.0, default=None)

    def hang_up(self, connection: Connection) -> None:
        """Close a connection at once; what it has not read is lost."""
        self.leave(connection)
        connection.transport.abort()

    def leave(self, connection: Connection) -> None:
        """Remove a connection, and the bytes that it held."""
        if self._table.pop(connection.number, None) is not None:
            self._silent.pop(connection.number, None)
            self._spoken.pop(connection.number, None)
            self._bytes -= connection.bytes_held
            connection.bytes_held = 0

    def find(self, number: int) -> Connection | None:
        """The connection of that number, if it is still there."""
        return self._table.get(number)

    def all(self) -> list[Connection]:
        """Return all connections as a list."""
        return list(self._table.values())


def allowed_connections(wanted: int = REMOTING_CONNECTIONS) -> int:
    """Return how many connections a server of this process may have.

    The limit of descriptors is raised first, as far as that is allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    free = DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft - DESCRIPTORS_RESERVED
    return min(wanted, max(CONNECTIONS_MIN, free // SERVERS_OF_A_PROCESS))
