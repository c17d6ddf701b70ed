"""A sender in virtual time: the real one on the master's real log, whose two halves take turns in one actor."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.protocol.ha.hello import NONCE_BYTES
from engine.protocol.ha.wire import CloseReason
from engine.replication.ha_senders import Beginning
from engine.replication.sender import PROOF_LOOK_MS, greeting_of, sender_of
from engine.shared_memory.cursors import HaSlotState
from tests.simulation.plug import Plug
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.master import Master


class Sending(Actor):
    """The sender of one slave, from its fork to its end. `ended`: tells the listener."""

    def __init__(self, master: Master, plug: Plug, begins_with: Beginning, ended: Callable[[], None]) -> None:
        super().__init__(master.world)
        self.master, self.plug, self.link, self._begins_with = master, plug, plug.link, begins_with
        self._ended, self.status = ended, 0
        self.words = master.log.counters.ha[begins_with.slot]
        self._places = [word.index for word in (self.words.state, self.words.slave_ack_offset, self.words.held_offset)]
        now_ms = self.world.now_ms
        self._sender = sender_of(master.config, master.log.counters, begins_with.slot, now_ms, is_told=False)
        self.connection, self.has_begun = self._sender.connection, False
        self._writes_from_ms = now_ms + self.world.rng.choice((0, 0, 3, 6000))  # the other thread begins when it can
        plug.follow(self)
        self.wake(self.world.rng.choice((0, 0, 1, 30)))

    def _begin(self, now_ms: int) -> None:
        _slot, accepted, reports, _is_told = self._begins_with
        config, counters, sock = self.master.config, self.master.log.counters, self.plug.socket
        self.has_begun = True
        self._sender.attach(sock, accepted.peer, now_ms)
        sock.setblocking(False)
        self._sender.meet(reports, greeting_of(config, counters, self.world.rng.randbytes(NONCE_BYTES)), now_ms)

    def published(self) -> tuple[bool, int, int]:
        """Return whether it is served, what it has acknowledged, and what of that counts."""
        state, acknowledged, held = (self.master.words[place] for place in self._places)
        return state == HaSlotState.TRANSFER, acknowledged, held

    def turn(self) -> None:
        """Hear what came, then write what the log has."""
        sender, now_ms = self._sender, self.world.now_ms
        if not self.has_begun:
            self._begin(now_ms)
        has_more = True
        while has_more and not sender.ended:
            self.plug.deliver()
            while sender.hear(lambda: now_ms, now_ms) and not sender.ended:
                pass
            has_more = self.plug.has_more
        moved = sender.do_work(now_ms) if self._writes_from_ms <= now_ms else 0
        self.plug.collect()
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
        self.plug.collect()
        self._sender.close()
        self.plug.finish()
        self.world.tell(f"master: connection of {self.link.host}:{self.link.port} ended: {reason.name}")
        self._ended()

    def killed(self, known_in_ms: int = 1) -> None:
        """Its process is gone: the system tells the slave at once, and the listener a little later."""
        if not self.is_gone:
            self.close()
            self.world.tell(f"master: sender of {self.link.host}:{self.link.port} is killed")
            self.world.after(known_in_ms, self._ended)

    def close(self) -> None:
        """It is gone, and cannot say so."""
        if not self.is_gone:
            self.is_gone, self.status = True, signal.SIGKILL
            with self.master.log.unsaid():
                self._sender.close()
            self.plug.finish()
