"""The thin shell of a slave's receiver in virtual time: what `engine.replication.receiver` does, in the same order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.protocol.ha.client import HaClient, HaClientState
from engine.protocol.ha.client_kernel import bytes_that_fit
from engine.protocol.ha.hello import NONCE_BYTES, Facts, Identity, SlaveGreeting, flushed_word
from engine.protocol.ha.opening import NO_TAIL
from engine.protocol.ha.wire import CloseReason, PeerError
from tests.simulation.logs import Log
from tests.simulation.master import Settings
from tests.simulation.network import Connection
from tests.simulation.referee import Broken
from tests.simulation.world import Actor, World

CONNECT_TIMEOUT_MS = 5000
FLUSH_EVERY_MS = 500
NOTE_LOOK_MS = 1000

# Asks the network for a connection to the master that this slave knows; it says later what came of it.
Connect = Callable[["Receiver", Callable[[Connection | CloseReason], None]], None]


class Receiver(Actor):
    """A broker that is a slave, from its start to its end; the only writer of its log."""

    def __init__(self, world: World, settings: Settings, log: Log, connect: Connect, name: str, broker_id: int) -> None:
        super().__init__(world)
        self.broker_id = broker_id
        self.log, self.name = log, name
        self.settings = settings
        is_as_rocketmq = not settings.whole_history
        self.client = HaClient(settings.client_limits, log.end, log.missing(), from_last_file=is_as_rocketmq)
        self.link: Connection | None = None
        self.reasons: set[CloseReason] = set()
        self.farthest = log.end
        self._flusher = Flusher(self)
        self.connects_by = connect
        self._is_connecting = False
        self.wake()

    def close(self, *, silently: bool) -> None:
        """The broker is gone: killed (its master is told), or without power (it is not)."""
        self.is_gone = self._flusher.is_gone = True
        if self.link is not None:
            self.link.die() if silently else self.link.to_listener.end()

    def turn(self) -> None:
        """Connect, or receive what is there and report."""
        now_ms = self.world.now_ms
        if self.client.state is not HaClientState.TRANSFER:
            if self.log.is_diverged:
                self.wake(NOTE_LOOK_MS)
                return
            if not self._is_connecting and self.client.may_connect(now_ms):
                self._is_connecting = True
                self.connects_by(self, self._connected)
            elif not self._is_connecting:
                self.wake(max(self.client.wait_ms(now_ms), 1))
            return
        try:
            self._receive()
        except PeerError as error:
            self.hang_up(error.reason)
            return
        if self.client.is_silent(now_ms):
            self.hang_up(CloseReason.HOUSEKEEPING)
            return
        if self.link is not None:
            self.wake(1 if self.link.to_caller.inbox else max(self.client.wait_ms(now_ms), 1))

    def _connected(self, outcome: Connection | CloseReason) -> None:
        self._is_connecting = False
        if isinstance(outcome, CloseReason):
            if not self.is_gone:
                self.hang_up(outcome)
            return
        if self.is_gone:
            outcome.to_listener.end()
            return
        self.link = outcome
        outcome.to_caller.reader = outcome.to_listener.writer = self
        settings, tail, greeting = self.settings, NO_TAIL, None
        if settings.are_ours:
            tail = self.log.tail(settings.overlap_bytes, settings.client_limits.segment_bytes)
            facts = Facts(Identity("cluster", "broker", self.broker_id), self.log.start, self.log.end)
            greeting = SlaveGreeting(facts, settings.secret, self.world.rng.randbytes(NONCE_BYTES))
        self.client.connected(self.world.now_ms, tail, greeting)
        self.turn()
        if not outcome.to_listener.has_been_sent:
            raise Broken("a slave reports at once", self.name)

    def hang_up(self, reason: CloseReason) -> None:
        """The connection ended, or was not to be had."""
        if reason is CloseReason.DIVERGED:
            self.log.is_diverged = True
        reason = self.client.seen_as(reason)
        self.reasons.add(reason)
        self.world.tell(f"{self.name}: {reason.name} at {self.log.end}")
        if self.link is not None:
            self.link.to_listener.end()
            self.link.to_caller.reader = self.link.to_listener.writer = None
        self.link = None
        self.client.closed(reason, self.world.now_ms)
        self.wake(max(self.client.wait_ms(self.world.now_ms), 1))

    def _receive(self) -> None:
        assert self.link is not None
        pipe = self.link.to_caller
        data = pipe.take(self.world.rng.randint(1, 40) if self.link.breaks_in_head else None)
        if data:
            self._take(data)
        self._report()
        if self.link is not None and self.link.breaks_in_head and self.client.max_physical_offset > self.client.end:
            self.link.reset()
        if pipe.is_ended and not pipe.inbox:
            self.hang_up(CloseReason.PEER_CLOSED)

    def _take(self, data: bytes) -> None:
        """Put bodies into the log up to a record that does not fit; the rest is the protocol's."""
        client, at = self.client, 0
        inbox = np.frombuffer(bytearray(data), np.uint8)
        while at < len(data):
            if client.is_opening:
                at += client.take(memoryview(data)[at:], self.world.now_ms)
                self._report()
                if not client.is_opening:
                    self._flusher.wake()
                continue
            due = min(client.body_left, len(data) - at)
            size = int(bytes_that_fit(client.words, inbox, at, due, client.limits.segment_bytes)) if due else 0
            if size:
                self.log.write(client.max_physical_offset, data[at : at + size])
                client.received(size, self.world.now_ms)
                at += size
                self._publish()
            if size < due:
                self._report()
                raise client.unfit()
            header = min(len(client.header_space), len(data) - at) if not client.body_left else 0
            if header:
                client.header_space[:header] = data[at : at + header]
                client.received(header, self.world.now_ms)
                at += header

    def _publish(self) -> None:
        if self.client.end > self.log.end:
            self.log.publish(self.client.end)
            self._flusher.wake(FLUSH_EVERY_MS)
        self.farthest = self.log.end

    def _report(self) -> None:
        if self.client.end != self.log.end or self.link is None:
            return  # never report what is not published
        report = self.client.report(self.world.now_ms)
        if report is not None and self.link.to_listener.send(report) != len(report):
            self.hang_up(CloseReason.PEER_CLOSED)


class Flusher(Actor):
    """Brings a slave's log to its disk, and says so to a master that waits for that."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver.world)
        self._receiver = receiver

    def turn(self) -> None:
        """What is in the log now is durable."""
        receiver = self._receiver
        receiver.log.flushed = receiver.log.end
        if receiver.link is not None and not receiver.client.is_opening and receiver.client.counts_flushed:
            receiver.link.to_listener.send(flushed_word(receiver.log.flushed))
