"""A master in virtual time: its listener is not real, its other processes are.

It does what engine/replication/ha_listener.py does, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.producer.pipeline import NS_PER_MS, Busy
from engine.protocol.ha.callers import CallerLimits, Callers
from engine.protocol.ha.connection import is_of_a_slave
from engine.protocol.ha.policy import put_policy
from engine.protocol.ha.wire import REPORT, CloseReason
from engine.replication import group_transfer
from engine.replication.ha_senders import SenderProcess
from engine.settings import replication
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import HaSlotState
from ipc import waiting
from store.put.draft import Draft
from tests.simulation.flusher import Flushing
from tests.simulation.limits import (
    CALLERS_MAX,
    FLUSH_TIMEOUT_MS,
    HEARTBEAT_MS,
    HOUSEKEEPING_MS,
    SLAVE_TIMEOUT_MS,
    SLOTS,
)
from tests.simulation.logs import TOPIC, History, Log, Put, record_of
from tests.simulation.network import Connection
from tests.simulation.sender import Sending
from tests.simulation.settings import Settings
from tests.simulation.world import Actor, World
from tests.simulation.writer import QUEUE, Writing

if TYPE_CHECKING:
    from tests.simulation.referee import Referee

LOOK_MS = 100


class Served(NamedTuple):
    """A sender, and what its listener sees of it."""

    sending: Sending
    process: SenderProcess


class Master(Actor):
    """A broker that is a master, from its start to its end. Its turn is the listener's."""

    def __init__(self, world: World, referee: Referee, settings: Settings, log: Log, history: History) -> None:
        super().__init__(world)
        self.referee, self.settings, self.log, self.history = referee, settings, log, history
        self.config, self.words, counters = settings.of_master(log.root), log.words, log.counters
        self.policy = put_policy(replication.of_config(self.config))
        live_settings.publish(counters, self.config)
        counts = range(2, self.policy.in_sync_replicas + 1) if self.policy.replicas_min else ()
        self._confirm_places = [
            counters.confirm_offset.index,
            *(counters.confirm_offsets[count].index for count in counts),
        ]
        self._bell = counters.ack_bell.index
        self.served: list[Served] = []
        self.puts: list[Put] = []  # in the log, and not answered
        self._callers = Callers(CallerLimits(CALLERS_MAX, HEARTBEAT_MS, HOUSEKEEPING_MS))
        self._accepted: dict[int, Connection] = {}
        self._numbers = 0
        self.group_transfer = GroupTransfer(self)
        self._seen_bell, self._seen_confirms = 0, self.confirms()
        self.flushing = Flushing(world, log, self.config, self.answer)
        waiting.note(counters.segment_request_offset, log.end)  # an empty master's log begins at once
        history.queue_offset = log.queue_offsets.get(QUEUE, 0)
        self.writing = Writing(self)

    def close(self, *, silently: bool) -> None:
        """The broker is gone: killed (its peers are told), or without power (they are not)."""
        self.is_gone = self.group_transfer.is_gone = True
        if silently:
            for link in [*self._accepted.values(), *(sending.link for sending in self.sendings)]:
                link.die()
        for link in self._accepted.values():
            link.to_caller.end()
        for sending in self.sendings:
            sending.close()
        self.writing.close()
        self.flushing.close()

    @property
    def sendings(self) -> list[Sending]:
        """The senders that there are."""
        return [one.sending for one in self.served]

    # the counters

    def confirms(self) -> list[int]:
        """Return `confirm_offset`, or with enableAutoInSyncReplicas also that of each number of replicas from 2 on."""
        return [self.words[place] for place in self._confirm_places]

    @property
    def confirmed(self) -> int:
        """The end of what no put waits for any longer, whatever number of replicas it asked for."""
        return min(self.confirms()[1:] or self.confirms())

    @property
    def in_sync(self) -> int:
        """How many slaves are in step."""
        return self.log.counters.in_sync_slaves.read()

    def follow(self) -> None:
        """Wake who follows the acknowledgements, and who follows what is confirmed."""
        if self.words[self._bell] != self._seen_bell:
            self._seen_bell = self.words[self._bell]
            self.group_transfer.wake(self.world.rng.choice((0, 0, 1, 5)))
        confirms = self.confirms()
        if confirms != self._seen_confirms:
            self._seen_confirms = confirms
            self.world.after(0, self.answer)

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
        for _sending, process in self.served:
            words = self.log.counters.ha[process.slot]
            acknowledged, is_served = words.slave_ack_offset.read(), words.state.read() == HaSlotState.TRANSFER
            is_owing = words.next_transfer_offset.read() > acknowledged or not is_served
            process.look(words.last_read_ms.read(), acknowledged, is_owing, now_ms)
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
            holders = [process.as_holder() for _sending, process in self.served]
            caller = self._callers.next(holders, self.world.now_ms)
            if caller is None:
                return
            taken = {process.slot: sending for sending, process in self.served}
            slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
            if slot is None:
                victim = self._callers.gives_up(caller, holders, self.world.now_ms)
                if victim is not None and not taken[victim.slot].is_gone:
                    taken[victim.slot].killed(CloseReason.GAVE_WAY)
                return
            self._callers.begun(caller.crowd, self.world.now_ms)
            words, now_ms = self.log.counters.ha[slot], self.world.now_ms
            heard, acknowledged, crowd = words.last_read_ms.read(), words.slave_ack_offset.read(), str(caller.crowd)
            process = SenderProcess(slot, 0, 0, crowd, now_ms, heard, now_ms, acknowledged, now_ms)
            sending = Sending(self, slot, self._forget(caller.number, hangs_up=False), caller.report)
            self.served.append(Served(sending, process))

    def ended(self, sending: Sending, reason: CloseReason) -> None:
        """A sender is over: its slot is free."""
        self.world.tell(f"master: connection of {sending.link.host}:{sending.link.port} ended: {reason.name}")
        self.served = [one for one in self.served if one.sending is not sending]
        waiting.publish(sending.words.state, HaSlotState.FREE)
        waiting.ring(self.log.counters.ack_bell)
        self.follow()
        if self._accepted:
            self.wake()

    # puts

    def put(self) -> None:
        """A producer puts a message, and waits, if it knows the slot of its queue and not too many are unanswered."""
        pipeline, now_ms = self.writing.pipeline, self.world.now_ms
        if pipeline.slots.missing(QUEUE) is not None:
            return
        put, before = Put(record_of(self.world.rng), self.in_sync, now_ms), pipeline.tail
        draft = Draft(topic=TOPIC, queue_id=0, pieces=(put.record,), record_bytes_max=len(put.record))
        try:
            pipeline.put(draft, waits=True, token=put, began_ns=now_ms * NS_PER_MS)
        except Busy:
            return
        is_put = pipeline.tail > before
        self.referee.appends(self.policy, put.in_sync_slaves, is_put)
        if is_put:
            self.history.pending.append(put)
            self.writing.wake(self.world.rng.choice((0, 0, 0, 2)))
            for delay_ms in (SLAVE_TIMEOUT_MS, FLUSH_TIMEOUT_MS):
                self.world.after(delay_ms, self.answer)

    def appended(self) -> None:
        """The log has grown: who follows its end works soon."""
        self.log.look()
        self.puts += self.referee.appended(self.history, self.log)
        for sending in self.sendings:
            sending.wake(self.world.rng.choice((0, 0, 0, 2)))
        self.flushing.look()

    def answer(self) -> None:
        """A producer looks which of its puts are answered."""
        pipeline, now_ms = self.writing.pipeline, self.world.now_ms
        if self.is_gone or not (pipeline.puts or pipeline.slots.is_asking):
            return
        for outcome in pipeline.collect(now_ms * NS_PER_MS):
            if outcome.number >= 0:
                self.puts.remove(outcome.token)
                self.referee.answered(self, outcome)
        for put in self.puts:
            self.referee.waits(put, now_ms, max(FLUSH_TIMEOUT_MS, SLAVE_TIMEOUT_MS))


class GroupTransfer(Actor):
    """The real group transfer."""

    def __init__(self, master: Master) -> None:
        super().__init__(master.world)
        self._master = master
        self._role = group_transfer.open_role(master.config, master.log.counters)

    def turn(self) -> None:
        """Say what is confirmed, and how many slaves are in step."""
        self._role.do_work(self.world.now_ms)
        self._master.referee.counted(self._master)
        self._master.follow()
        self._master.answer()
