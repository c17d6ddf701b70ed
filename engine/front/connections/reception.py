"""The two remoting ports of a front: who may connect, TLS, the table of connections, what each may cost.

Implements: NettyRemotingServer (spec: remoting, 3 server behaviour)
The other half of what `engine.remoting.sockets.server` is for a name server: connections are `Peer`s here, read without
tasks.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from engine.front.connections.peer import Peer, PeerHost
from engine.net.listeners import listen
from engine.net.log_lines import Seldom
from engine.net.tls import ServerTls
from engine.protocol.access.allow_list import plain
from engine.protocol.access.rights import CONNECT_KEY, Rules
from engine.remoting.sockets.acceptor import Acceptor
from engine.remoting.sockets.connections import Bounds, Connections, allowed_connections
from engine.remoting.sockets.opening import Arrival, Opening
from engine.shared_memory.cursors import TlsOutcome
from store.message.host import Host

log = logging.getLogger("slipstream.remoting")

IDLE_SECONDS = 120.0  # serverChannelMaxIdleTimeSeconds
FRAME_SECONDS = 60.0  # from a frame's first byte to its last
WRITE_SECONDS = 10.0  # one that takes nothing of its answers for so long is hung up on


class Reception:
    """Listens and lets in; `host` has the peers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: PeerHost,
        rules: Rules,
        how: ServerTls,
        on_tls: Callable[[TlsOutcome], None],
        connections: int,
    ) -> None:
        self._loop = loop
        self._host, self._rules, self._is_tls_served = host, rules, how.context is not None
        # An answer that was meant for a connection of the front before this one must reach no connection of this one.
        first_number = time.monotonic_ns() // 1000
        self.connections = Connections(Bounds(allowed_connections(connections)), lambda _number: False, first_number)
        self.opening = Opening(how, on_tls)
        self.peers: dict[int, Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptors: dict[int, Acceptor] = {}
        self._seldom = Seldom(log)

    def listen(self, address: str, port: int, *, is_without_pulls: bool, is_shared: bool) -> int:
        """Serve one port; the one that was bound. Raises OSError."""
        listening = listen(address, port, is_shared=is_shared)
        bound: int = listening.getsockname()[1]

        def arrived(sock: socket.socket) -> None:
            self._arrived(sock, is_without_pulls)

        self._acceptors[port] = Acceptor(self._loop, listening, arrived, self.connections.make_room)
        return bound

    @property
    def ports(self) -> set[int]:
        """Return the ports that accept connections now."""
        return set(self._acceptors)

    def stop(self) -> None:
        """Listen no more; hang up after what was written."""
        for acceptor in self._acceptors.values():
            acceptor.stop()
        for connection in self.connections.all():
            connection.transport.close()

    def _arrived(self, sock: socket.socket, is_without_pulls: bool) -> None:
        try:
            peer, own = sock.getpeername(), sock.getsockname()
        except OSError:  # it is gone
            sock.close()
            return
        allowed = self._rules.rights_of(peer[0], own[0])
        if not allowed.may_connect:
            self._seldom.tell("%s may not connect: %s does not list its address", peer, CONNECT_KEY)
            sock.close()
            return
        arrival = Arrival(sock)
        connection = self.connections.admit(arrival, peer)
        if connection is None:
            sock.close()
            return
        connection.rights = allowed
        address = Host(str(plain(peer[0])), peer[1])
        one = Peer(self._host, connection, address, is_without_pulls=is_without_pulls, is_tls=self._is_tls_served)
        task = self._loop.create_task(self._open(arrival, one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, arrival: Arrival, peer: Peer) -> None:
        is_in = False
        try:
            self.peers[peer.number] = peer
            await self.opening.connect(arrival, peer.connection.peer, IDLE_SECONDS, peer)
            is_in = True
        except TimeoutError:
            self._seldom.tell("%s: closed, it sent nothing", peer.connection.peer, level=logging.INFO)
        except OSError as error:  # the connection's, TLS's included
            log.debug("%s: %s", peer.connection.peer, error)
        except Exception:
            self._seldom.tell(
                "%s: failed to serve this connection", peer.connection.peer, level=logging.ERROR, error=True
            )
        finally:
            if not is_in:
                self.connections.hang_up(peer.connection)
                self.peer_gone(peer)

    def peer_gone(self, peer: Peer) -> None:
        """Remove a closed connection from the tables."""
        self.peers.pop(peer.number, None)
        self.connections.leave(peer.connection)

    def sweep(self) -> None:
        """Hang up on those that are silent, or do not get on with a frame, or with taking their answers."""
        now = time.monotonic()
        for peer in list(self.peers.values()):
            peer.tell_held()
            if peer.stuck_since is not None and now - peer.stuck_since > WRITE_SECONDS:
                self._seldom.tell("%s: closed, it stopped reading responses", peer.connection.peer, level=logging.INFO)
                peer.abort()
            elif peer.frame_since is not None and now - peer.frame_since > FRAME_SECONDS:
                self._seldom.tell("%s: closed, it sent an incomplete frame", peer.connection.peer, level=logging.INFO)
                peer.abort()
            elif now - peer.connection.heard_at > IDLE_SECONDS and peer.is_open:
                peer.close()
