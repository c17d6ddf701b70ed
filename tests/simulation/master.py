"""The thin shells of a master in virtual time: its listener, its group transfer, its flusher, and its producers.

They do what engine/replication/{ha_listener,group_transfer}.py and engine/producer/connection.py do, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.protocol.ha.callers import CallerLimits, Callers, Holder
from engine.protocol.ha.connection import is_of_a_slave
from engine.protocol.ha.group_transfer import (
    Claim,
    PutMessageStatus,
    Reached,
    SlaveAck,
    confirm_offset,
    identities,
    in_sync_slaves,
    put_status,
)
from engine.protocol.ha.hello import REPEATED
from engine.protocol.ha.policy import may_append, replicas_needed
from engine.protocol.ha.wire import REPORT, REPORT_BYTES, CloseReason
from tests.simulation.limits import CALLERS_MAX, SLOTS
from tests.simulation.logs import History, Log
from tests.simulation.network import Connection
from tests.simulation.sender import Sender, Slot, SlotState
from tests.simulation.settings import Settings
from tests.simulation.world import Actor, World

if TYPE_CHECKING:
    from tests.simulation.referee import Referee

LOOK_MS = 100


@dataclass
class Put:
    """A message that a producer waits for."""

    start: int
    end: int
    data: bytes
    in_sync_slaves: int
    began_ms: int


class SenderSeen:
    """What the listener sees of a sender (engine.replication.ha_senders.SenderProcess)."""

    def __init__(self, sender: Sender, crowd: int) -> None:
        self.sender, self.crowd, self.since_ms = sender, crowd, sender.world.now_ms
        self.heard, self.acknowledged = sender.slot.last_read_ms, sender.slot.slave_ack_offset
        self.heard_ms = self.acknowledged_ms = self.since_ms
        self.is_proven = False

    def look(self, now_ms: int) -> None:
        """Note when anything changed."""
        slot = self.sender.slot
        if slot.last_read_ms != self.heard:
            self.heard, self.heard_ms = slot.last_read_ms, now_ms
        is_owing = slot.next_transfer_offset > slot.slave_ack_offset or slot.state is not SlotState.TRANSFER
        if slot.slave_ack_offset != self.acknowledged or not is_owing:
            has_acknowledged = slot.slave_ack_offset > self.acknowledged >= 0 and self.heard_ms > self.since_ms
            self.is_proven = self.is_proven or has_acknowledged
            self.acknowledged, self.acknowledged_ms = slot.slave_ack_offset, now_ms

    def as_holder(self, slots: list[Slot]) -> Holder:
        """As the protocol sees it."""
        number = slots.index(self.sender.slot)
        return Holder(number, self.crowd, self.since_ms, self.heard_ms, self.acknowledged_ms, self.is_proven)


class Master(Actor):
    """A broker that is a master, from its start to its end. Its turn is the listener's."""

    def __init__(self, world: World, referee: Referee, settings: Settings, log: Log, history: History) -> None:
        super().__init__(world)
        self.referee, self.settings, self.log, self.history = referee, settings, log, history
        self.recovered_offset = log.end
        self.confirm_offset = self.in_sync = 0
        self.confirm_offsets: dict[int, int] = {}  # by number of replicas
        policy = settings.policy
        self.confirms = policy.in_sync_replicas == 2 and not policy.replicas_min and not settings.counts_flushed
        self.slots = [Slot() for _ in range(SLOTS)]
        self.senders: list[SenderSeen] = []
        self.puts: list[Put] = []
        limits = settings.client_limits
        self._callers = Callers(
            CallerLimits(CALLERS_MAX, limits.send_heartbeat_interval_ms, limits.housekeeping_interval_ms)
        )
        self._accepted: dict[int, Connection] = {}
        self._numbers = 0
        self.group_transfer = GroupTransfer(self)
        self._flusher = Flusher(self)

    def close(self, *, silently: bool) -> None:
        """The broker is gone: killed (its peers are told), or without power (they are not)."""
        self.is_gone = self.group_transfer.is_gone = self._flusher.is_gone = True
        for seen in self.senders:
            seen.sender.is_gone = True
        for link in [*self._accepted.values(), *(seen.sender.link for seen in self.senders)]:
            link.die() if silently else link.to_caller.end()
        self.puts.clear()

    # the counters

    @property
    def confirmed(self) -> int:
        """The end of what no put waits for any longer, whatever number of replicas it asked for."""
        policy = self.settings.policy
        if not policy.replicas_min:
            return self.confirm_offset
        return min((self.confirm_offsets.get(n, 0) for n in range(2, policy.in_sync_replicas + 1)), default=0)

    def raise_confirm(self, offset: int) -> None:
        """By an atomic maximum."""
        if offset > self.confirm_offset:
            self.confirm_offset = offset
            self.world.after(0, self.answer)

    def ring(self) -> None:
        """Wake who follows the acknowledgements."""
        self.group_transfer.wake(self.world.rng.choice((0, 0, 1, 5)))

    # the listener

    @property
    def callers(self) -> int:
        """How many wait for a slot, or have not said anything yet."""
        return len(self._accepted)

    def accept(self, link: Connection) -> None:
        """A connection came."""
        self._numbers += 1
        self._accepted[self._numbers] = link
        link.to_listener.reader = self
        leaves = self._callers.arrived(self._numbers, link.host, self.world.now_ms)
        if leaves is not None:
            self._forget(leaves, hangs_up=True)
        self.wake()

    def turn(self) -> None:
        """Hear callers, see who is overdue, give slots."""
        now_ms = self.world.now_ms
        for number in list(self._accepted):
            self._hear_caller(number)
        for seen in self.senders:
            seen.look(now_ms)
        for caller in self._callers.overdue(now_ms):
            self._forget(caller.number, hangs_up=True)
        self._serve()
        if self._accepted:
            self.wake(LOOK_MS)

    def _hear_caller(self, number: int) -> None:
        link, callers = self._accepted[number], self._callers
        pipe = link.to_listener
        if pipe.is_ended:
            self._forget(number, hangs_up=True)
            return
        missing = callers.missing(number)
        data = pipe.take(missing) if missing else b""
        if data and callers.heard(number, data, self.world.now_ms):
            (offset,) = REPORT.unpack(callers.report_of(number))
            if not is_of_a_slave(offset, self.log.end):
                self._forget(number, hangs_up=True)

    def _forget(self, number: int, *, hangs_up: bool) -> Connection:
        self._callers.left(number)
        link = self._accepted.pop(number)
        if hangs_up:
            link.to_caller.end()
        return link

    def _serve(self) -> None:
        while self._callers.is_waited_for:
            holders = [seen.as_holder(self.slots) for seen in self.senders]
            caller = self._callers.next(holders, self.world.now_ms)
            if caller is None:
                return
            slot = next((slot for slot in self.slots if all(slot is not s.sender.slot for s in self.senders)), None)
            if slot is None:
                victim = self._callers.gives_up(caller, holders, self.world.now_ms)
                if victim is not None:
                    seen = next(s for s in self.senders if s.sender.slot is self.slots[victim.slot])
                    seen.sender.end(CloseReason.GAVE_WAY)
                    self.wake()
                return
            self._callers.begun(caller.crowd, self.world.now_ms)
            link = self._forget(caller.number, hangs_up=False)
            sender = Sender(self, slot, link)
            self.senders.append(SenderSeen(sender, caller.crowd))
            sender.meet(caller.report + link.to_listener.take((REPEATED - 1) * REPORT_BYTES, whole=True))
            sender.wake()

    def ended(self, sender: Sender, reason: CloseReason) -> None:
        """A sender is over: its slot is free."""
        self.world.tell(f"master: connection of {sender.link.host}:{sender.link.port} ended: {reason.name}")
        self.senders = [seen for seen in self.senders if seen.sender is not sender]
        sender.slot.state = SlotState.FREE
        if self._accepted:
            self.wake()

    # puts

    def put(self) -> None:
        """A producer puts a message, and waits."""
        policy = self.settings.policy
        may = may_append(policy, self.in_sync)
        self.referee.appends(policy, self.in_sync, may)
        if not may:
            return
        in_sync, began_ms = self.in_sync, self.world.now_ms
        log_end = self.log.end
        start, end = self.history.append(self.world.rng, self.settings.segment_bytes, began_ms)
        self.log.write(log_end, self.history.data[log_end:end])
        self.puts.append(Put(start, end, bytes(self.history.data[start:end]), in_sync, began_ms))
        for seen in self.senders:
            seen.sender.wake(self.world.rng.choice((0, 0, 0, 2)))
        if policy.wait_for_flush:
            self._flusher.wake(self.world.rng.choice((1, 5)))
        for delay_ms in (0, self.settings.slave_timeout_ms, self.settings.flush_timeout_ms):
            self.world.after(delay_ms, self.answer)

    def answer(self) -> None:
        """Each producer looks whether its put is answered."""
        if self.is_gone:
            return
        settings, policy, waiting = self.settings, self.settings.policy, []
        for put in self.puts:
            needed = replicas_needed(policy, put.in_sync_slaves)
            confirmed = self.confirm_offsets.get(needed, 0) if policy.replicas_min else self.confirm_offset
            status = put_status(
                put.end,
                self.world.now_ms,
                put.began_ms + settings.flush_timeout_ms,
                put.began_ms + settings.slave_timeout_ms,
                Reached(self.log.flushed, confirmed),
                put.in_sync_slaves,
                policy,
            )
            if status is None:
                self.referee.waits(put, self.world.now_ms, max(settings.flush_timeout_ms, settings.slave_timeout_ms))
                waiting.append(put)
            elif status is PutMessageStatus.PUT_OK:
                self.referee.told_ok(self, put)
        self.puts = waiting


class GroupTransfer(Actor):
    """Says what is confirmed, and how many slaves are in step."""

    def __init__(self, master: Master) -> None:
        super().__init__(master.world)
        self._master = master

    def turn(self) -> None:
        """As engine.replication.group_transfer.GroupTransfer.do_work."""
        master, policy = self._master, self._master.settings.policy
        connected = [slot for slot in master.slots if slot.state is SlotState.TRANSFER]
        names = identities([Claim(slot.address, slot.identity, slot.is_signed) for slot in connected])
        held = [SlaveAck(name, slot.held_offset) for name, slot in zip(names, connected, strict=True)]
        acks = [SlaveAck(name, slot.slave_ack_offset) for name, slot in zip(names, connected, strict=True)]
        end = master.log.end
        master.raise_confirm(confirm_offset(held, policy.replicas_least, end))
        if policy.replicas_min:
            for count in range(2, policy.in_sync_replicas + 1):
                confirmed = confirm_offset(held, count, end)
                if confirmed > master.confirm_offsets.get(count, 0):
                    master.confirm_offsets[count] = confirmed
        master.in_sync = in_sync_slaves(acks, end, master.settings.fallbehind_bytes_max)
        master.referee.counted(master)
        master.answer()


class Flusher(Actor):
    """Brings the log to the disk, now and then, or when a put waits for it."""

    def __init__(self, master: Master) -> None:
        super().__init__(master.world)
        self._master = master
        self.wake(master.settings.flush_every_ms)

    def turn(self) -> None:
        """What is in the log now is durable."""
        self._master.log.flush()
        self._master.answer()
        self.wake(self._master.settings.flush_every_ms)
