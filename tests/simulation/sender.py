"""A sender in virtual time: the real one on the master's real log, whose two halves take turns in one actor."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from engine.protocol.ha.hello import NONCE_BYTES, REPEATED
from engine.protocol.ha.wire import REPORT_BYTES, CloseReason
from engine.replication import replica_words
from engine.replication.sender import PROOF_LOOK_MS, greeting_of, sender_of
from engine.shared_memory.cursors import HaSlotState
from tests.simulation.network import Connection
from tests.simulation.plug import Plug
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.master import Master


class Sending(Actor):
    """The sender of one slave, from its start to its end."""

    def __init__(self, master: Master, slot: int, link: Connection, report: bytes) -> None:
        super().__init__(master.world)
        self.master, self.link, now_ms = master, link, self.world.now_ms
        config, counters, rng = master.config, master.log.counters, self.world.rng
        self.words = counters.ha[slot]
        self._places = [word.index for word in (self.words.state, self.words.slave_ack_offset, self.words.held_offset)]
        self._sender = sender_of(config, counters, slot, now_ms, is_told=False)
        self.connection = self._sender.connection
        self._writes_from_ms = now_ms + rng.choice((0, 0, 3, 6000))  # the other thread begins when it can
        self._plug = Plug(link.to_listener, link.to_caller, self)
        sock = self._plug.socket
        self._sender.attach(sock, (socket.inet_ntoa(link.host.to_bytes(4, "big")), link.port), now_ms)
        sock.setblocking(False)
        self._plug.deliver((REPEATED - 1) * REPORT_BYTES, whole=True)
        reports = report + replica_words.more_reports(sock, 0, patience_ms=0)
        self._sender.meet(reports, greeting_of(config, counters, rng.randbytes(NONCE_BYTES)), now_ms)
        self.wake()

    def published(self) -> tuple[bool, int, int]:
        """Return whether it is served, what it has acknowledged, and what of that counts."""
        state, acknowledged, held = (self.master.words[place] for place in self._places)
        return state == HaSlotState.TRANSFER, acknowledged, held

    def turn(self) -> None:
        """Hear what came, then write what the log has."""
        sender, now_ms = self._sender, self.world.now_ms
        has_more = True
        while has_more and not sender.ended:
            self._plug.deliver()
            while sender.hear(lambda: now_ms, now_ms) and not sender.ended:
                pass
            has_more = bool(self.link.to_listener.inbox)
        moved = sender.do_work(now_ms) if self._writes_from_ms <= now_ms else 0
        self._plug.collect()
        self.master.follow()
        if sender.ended:
            self._over(sender.reason)
        else:
            self._sleep(is_behind=moved > 0)

    def _sleep(self, *, is_behind: bool) -> None:
        connection, now_ms = self.connection, self.world.now_ms
        silent_ms = connection.last_read_ms + connection.limits.housekeeping_interval_ms + 1 - now_ms
        wait_ms = min(connection.wait_ms(now_ms), silent_ms)
        if not self.link.to_caller.room:
            wait_ms = silent_ms  # a reader that takes something wakes
        if connection.proof_is_due(now_ms):
            wait_ms = min(wait_ms, PROOF_LOOK_MS)
        if self._writes_from_ms > now_ms:
            wait_ms = min(wait_ms, self._writes_from_ms - now_ms)
        self.wake(0 if is_behind else max(wait_ms, 1))

    def _over(self, reason: CloseReason) -> None:
        self.is_gone = True
        self.master.referee.hung_up(self, reason)
        self._plug.collect()
        self._sender.close()
        self._plug.finish()
        self.master.ended(self, reason)

    def killed(self, reason: CloseReason = CloseReason.KILLED) -> None:
        """Its process is gone: the system tells the slave, and the listener finds its slot free."""
        self.close()
        self.world.after(1, lambda: self.master.ended(self, reason))

    def close(self) -> None:
        """It is gone, and cannot say so."""
        self.is_gone = True
        with self.master.log.unsaid():
            self._sender.close()
        self._plug.finish()
