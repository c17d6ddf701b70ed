"""The thin shell of a sender in virtual time: what `engine.replication.sender` publishes, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import NOTHING, take_acks
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor
from engine.protocol.ha.group_transfer import slave_identity
from engine.protocol.ha.hello import NONCE_BYTES, Facts, Identity, MasterGreeting, refusal
from engine.protocol.ha.wire import FRAME_HEADER, REPORT_BYTES, CloseReason, PeerError
from tests.simulation.network import Connection
from tests.simulation.settings import BROKER, CLUSTER
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.master import Master

FRAMES_PER_TURN = 32
PROOF_LOOK_MS = 50
PORT_BITS = 16


class SlotState(IntEnum):
    """HaSlotState's, which lies with the counters."""

    FREE = 0
    CONNECTED = 1
    TRANSFER = 2


@dataclass
class Slot:
    """The words of a slot, which outlive its connections."""

    state: SlotState = SlotState.FREE
    host: int = 0
    port: int = 0
    next_transfer_offset: int = -1
    slave_ack_offset: int = -1
    held_offset: int = 0
    last_read_ms: int = 0
    connected_at_ms: int = 0

    identity: int = 0
    is_signed: bool = False

    @property
    def address(self) -> tuple[int, ...]:
        """As group_transfer tells slaves apart that say no name."""
        return slave_identity(self.host << PORT_BITS | self.port)


class Sender(Actor):
    """One slave's connection: both halves."""

    def __init__(self, master: Master, slot: Slot, link: Connection) -> None:
        super().__init__(master.world)
        self.master, self.slot, self.link = master, slot, link
        self.since_ms = now_ms = self.world.now_ms
        self.reason = CloseReason.NONE
        self.wants = link.to_listener
        limit = master.settings.flow_limit or UNLIMITED
        self.connection = HaConnection(
            master.settings.connection_limits,
            FlowMonitor(now_ms, limit),
            now_ms,
            start_from_min=master.settings.whole_history,
            counts_flushed=master.settings.counts_flushed,
        )
        self._unsent = b""
        self._writes_from_ms = now_ms + self.world.rng.choice((0, 0, 3, 6000))  # the other thread begins when it can
        link.to_listener.reader = link.to_caller.writer = self
        self._attach()

    def _attach(self) -> None:
        slot, connection = self.slot, self.connection
        connection.recovered_offset = self.master.recovered_offset
        connection.known_offset = max(self.master.recovered_offset, self._sent_before())
        slot.host, slot.port = self.link.host, self.link.port
        slot.next_transfer_offset = connection.next_transfer_offset
        slot.slave_ack_offset = connection.slave_ack_offset
        slot.held_offset = connection.held_offset
        slot.last_read_ms = slot.connected_at_ms = self.world.now_ms
        slot.identity, slot.is_signed = 0, False
        slot.state = SlotState.CONNECTED

    def meet(self, reports: bytes) -> None:
        """Take the first reports; one of ours is asked who it is."""
        master, nonce = self.master, self.world.rng.randbytes(NONCE_BYTES)
        facts = Facts(Identity(CLUSTER, BROKER, 0), master.log.start, master.log.end)
        greeting = MasterGreeting(facts, master.settings.secret, nonce, counts_flushed=master.settings.counts_flushed)
        if self.connection.meet(reports, greeting, self.world.now_ms):
            self._send_control()
        else:
            self.take_reports(reports)

    def _send_control(self) -> None:
        self.link.to_caller.send(self.connection.outgoing)
        self.connection.outgoing = b""

    def _sent_before(self) -> int:
        sent, last_ms, own = 0, -1, Slot(host=self.link.host, port=self.link.port).address
        segment_bytes = self.connection.limits.segment_bytes
        for other in self.master.slots:
            is_over = other.state is SlotState.FREE
            is_own = other.host == self.link.host and (is_over or other.address == own)
            if is_own and other.connected_at_ms > last_ms:
                last_ms = other.connected_at_ms
                began_at_0 = other.slave_ack_offset == 0 and other.next_transfer_offset < segment_bytes
                counts = began_at_0 or other.held_offset >= other.slave_ack_offset > 0
                sent = other.next_transfer_offset if counts else other.held_offset
        return max(sent, 0)

    # turns

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent or believed."""
        return self.reason is not CloseReason.NONE

    def turn(self) -> None:
        """Hear what came, then write what the log has."""
        if not self.is_over:
            self._hear()
        if not self.is_over and self._writes_from_ms <= self.world.now_ms:
            self._transfer()
        if not self.is_over and self.connection.is_silent(self.world.now_ms):
            self.end(CloseReason.HOUSEKEEPING)
        if not self.is_over:
            self._sleep()

    def _sleep(self) -> None:
        connection, now_ms = self.connection, self.world.now_ms
        silent_ms = connection.last_read_ms + connection.limits.housekeeping_interval_ms + 1 - now_ms
        wait_ms = min(connection.wait_ms(now_ms), silent_ms)
        if self._unsent and not self.link.to_caller.room:
            wait_ms = silent_ms  # a reader that takes something wakes
        if connection.proof_is_due(now_ms):
            wait_ms = min(wait_ms, PROOF_LOOK_MS)
        if self._writes_from_ms > now_ms:
            wait_ms = min(wait_ms, self._writes_from_ms - now_ms)
        if self.link.to_listener.inbox:
            wait_ms = 1
        self.wake(max(wait_ms, 1))

    # the reading half

    def _hear(self) -> None:
        rest = len(self.connection.rest)
        while self.link.to_listener.inbox:
            data = self.link.to_listener.take(REPORT_BYTES - rest if rest else None)
            before, now_ms = self.connection.slave_ack_offset, self.world.now_ms
            heard = np.frombuffer(bytearray(data), np.uint8)
            acked = NOTHING if rest else int(take_acks(self.connection.words, heard, len(data), now_ms))
            if acked == NOTHING:
                self.take_reports(data)
            else:
                self._publish_acks(acked, before)
                self._look_at_proof()
            rest = len(self.connection.rest)
            if self.is_over:
                return
        if self.link.to_listener.is_ended:
            self.end(CloseReason.PEER_CLOSED)
        else:
            self._look_at_proof()

    def _publish_acks(self, acked: int, before: int) -> None:
        """What the compiled loop does with what it believes."""
        master = self.master
        if acked != before:
            self.slot.held_offset = acked
            self.slot.slave_ack_offset = acked
            if master.confirms:
                master.raise_confirm(acked)
            master.ring()
        self.slot.last_read_ms = self.world.now_ms

    def _look_at_proof(self) -> None:
        self.connection.look_at_proof(self.world.now_ms, self.master.confirmed)
        self._publish_held()

    def take_reports(self, data: bytes) -> None:
        """Judge what the slave sent, publish what it acknowledged, ring."""
        slot, connection, master = self.slot, self.connection, self.master
        acked_before = connection.slave_ack_offset
        try:
            connection.receive(data, self.world.now_ms, master.log.start, master.log.end, master.confirmed)
            greeting = connection.greeting
            if greeting is not None and greeting.replica is not None and connection.outgoing:
                slot.identity = greeting.replica.facts.identity.number
                slot.is_signed = greeting.replica.is_signed
                self._send_control()
                connection.serve(self.world.now_ms, master.log.start, master.log.end)
        except PeerError as error:
            if connection.greeting is not None and connection.next_transfer_offset < 0:
                connection.outgoing = refusal(error)
                self._send_control()
            self.end(error.reason)
            return
        self._publish_held()
        if connection.slave_ack_offset != acked_before:
            slot.slave_ack_offset = connection.slave_ack_offset
            if acked_before < 0:
                slot.state = SlotState.TRANSFER
            master.ring()
        slot.last_read_ms = self.world.now_ms

    def _publish_held(self) -> None:
        if self.connection.held_offset != self.slot.held_offset:
            self.slot.held_offset = self.connection.held_offset
            self.master.ring()

    # the writing half

    def _transfer(self) -> None:
        pipe, log = self.link.to_caller, self.master.log
        for _ in range(FRAMES_PER_TURN):
            if self._unsent:
                self._unsent = self._unsent[pipe.send(self._unsent) :]
                if self._unsent:
                    return
            frame = self.connection.next_frame(self.world.now_ms, log.end)
            if frame is None:
                return
            start, size = frame
            if start < log.start and size:
                self.end(CloseReason.GAP)
                return
            self.slot.next_transfer_offset = self.connection.next_transfer_offset
            body = log.read(start, start + size) if size else b""
            self._unsent = FRAME_HEADER.pack(start, size) + body
        self.wake()

    # the end

    def end(self, reason: CloseReason) -> None:
        """Hang up."""
        if self.is_over:
            return
        self.reason = reason
        self.master.referee.hung_up(self, reason)
        self.slot.state = SlotState.FREE
        self.master.ring()
        self.link.to_caller.end()
        self.is_gone = True
        self.master.ended(self, reason)

    def killed(self) -> None:
        """Its process is gone: the system tells the slave, and the listener finds its slot free."""
        self.reason = CloseReason.KILLED
        self.is_gone = True
        self.link.to_caller.end()
        self.world.after(1, lambda: self.master.ended(self, CloseReason.KILLED))
