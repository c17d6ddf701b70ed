"""A front's side of what it and the clients role say to each other: requests handed on, questions, tables, pushes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.front.connections.late_heartbeats import LateHeartbeats
from engine.front.connections.peer import Peer
from engine.front.connections.tables import Tables
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, encode
from engine.remoting.links.exchange import Bells, Kind, Message
from engine.remoting.links.questions import Questions

log = logging.getLogger("slipstream.front")

Json = dict[str, Any]
HEARTBEAT_BYTES_MAX = 1 << 20  # of one that is kept
GOODBYES_MAX, GOODBYE_BYTES_MAX = 1024, 4096  # that are kept with it
KEPT_BYTES_MAX = 64 << 20  # of all connections; beyond it those that cost most are known by their next heartbeat only
WITHOUT_SUBSCRIPTIONS = b'"withoutSub":true'  # 5.x: it says only that nothing changed


class Relay(Questions):
    """The relay of one front. `peers` are its connections by number.

    `before_more` says what has to be said before anything that a client says; `on_asked` answers the clients role.
    """

    def __init__(
        self,
        directory: Path,
        front: int,
        bells: Bells,
        peers: dict[int, Peer],
        tables: Tables,
        late: LateHeartbeats,
        before_more: Callable[[], None],
        on_asked: Callable[[Json], None],
    ) -> None:
        super().__init__(directory, front, bells, log)
        self._peers, self._tables, self._late = peers, tables, late
        self._kept: dict[int, int] = {}  # bytes of heartbeats and goodbyes, by connection
        self._kept_bytes = 0
        self._before_more, self._on_asked = before_more, on_asked

    # up

    def forward(self, peer: Peer, command: RemotingCommand, frame: bytes) -> bool:
        """Hand a request on, or a client's answer to a push; False where there is no room for it now."""
        self._before_more()
        if not peer.is_announced:
            self._announce(peer)
        if command.code == RequestCode.HEART_BEAT and not command.is_response:
            self._note_heartbeat(peer, command, frame)
        elif command.code == RequestCode.UNREGISTER_CLIENT and not command.is_response:
            self._note_goodbye(peer, frame)
        is_sent = self._pipe.send(Kind.FRAME, peer.number, frame)
        if is_sent and command.code == RequestCode.HEART_BEAT and not command.is_response:
            self._late.note(peer, command, self._pipe.end)
        return is_sent

    def turn(self, now_ms: int) -> None:
        """Answer heartbeats that nobody takes."""
        for peer, busy in self._late.expired(self._pipe.taken, now_ms):
            peer.write(encode(busy))

    def _announce(self, peer: Peer) -> None:
        address = {"ip": peer.address.ip, "port": peer.address.port}
        peer.is_announced = self._pipe.send(Kind.OPENED, peer.number, address)

    def _note_heartbeat(self, peer: Peer, command: RemotingCommand, frame: bytes) -> None:
        if len(frame) <= HEARTBEAT_BYTES_MAX and WITHOUT_SUBSCRIPTIONS not in bytes(command.body):
            peer.heartbeat = frame
            peer.goodbyes.clear()
            self._note_kept(peer, len(frame))

    def _note_goodbye(self, peer: Peer, frame: bytes) -> None:
        """Note that a client leaves one group, perhaps one of several in its heartbeat."""
        if not peer.heartbeat:
            return
        if len(peer.goodbyes) < GOODBYES_MAX and len(frame) <= GOODBYE_BYTES_MAX:
            peer.goodbyes.append(frame)
            self._note_kept(peer, self._kept.get(peer.number, 0) + len(frame))
        else:  # its next heartbeat says it again
            self._forget(peer)

    def _note_kept(self, peer: Peer, count: int) -> None:
        """Note the bytes kept for a connection; above the limit, the connection with the most loses them."""
        self._kept_bytes += count - self._kept.get(peer.number, 0)
        self._kept[peer.number] = count
        while self._kept_bytes > KEPT_BYTES_MAX:
            self._forget(self._peers[max(self._kept, key=self._kept.__getitem__)])

    def _forget(self, peer: Peer) -> None:
        """Forget the last heartbeat of a connection."""
        self._kept_bytes -= self._kept.pop(peer.number, 0)
        peer.heartbeat = b""
        peer.goodbyes.clear()

    def peer_gone(self, peer: Peer) -> None:
        """Forget a closed connection, and report its end if it was announced."""
        self._forget(peer)
        self._before_more()
        if peer.is_announced:
            self._pipe.send(Kind.CLOSED, peer.number)

    # down

    def _take(self, message: Message) -> None:
        match message.kind:
            case Kind.FRAME:
                if (peer := self._peers.get(message.number)) is not None:
                    peer.write(message.body)
            case Kind.TABLE:
                self._tables.take(message.fields)
            case Kind.WORD:
                self._on_asked(message.fields)
            case Kind.HANG_UP:
                if (peer := self._peers.get(message.number)) is not None:
                    peer.close()
            case _:
                super()._take(message)

    def _begin_again(self) -> None:
        """Announce all connections to a new clients process, replay their heartbeats, repeat open questions."""
        for peer in self._peers.values():
            if peer.is_announced:
                self._announce(peer)
                for frame in (peer.heartbeat, *peer.goodbyes) if peer.heartbeat else ():
                    self._pipe.send(Kind.REPLAY, peer.number, frame)
        self._pipe.send(Kind.REPLAYED)
        super()._begin_again()
