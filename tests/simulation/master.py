"""A master in virtual time: the broker that its processes, all of them real, are of; and its producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.producer.pipeline import NS_PER_MS, Busy
from engine.protocol.ha.policy import put_policy
from engine.replication import group_transfer
from engine.settings import replication
from engine.shared_memory import live_settings
from ipc import waiting
from store.put.draft import Draft
from tests.simulation.flusher import Flushing
from tests.simulation.limits import FLUSH_TIMEOUT_MS, SLAVE_TIMEOUT_MS
from tests.simulation.listener import Listening
from tests.simulation.logs import TOPIC, History, Log, Put, record_of
from tests.simulation.sender import Sending
from tests.simulation.settings import Settings
from tests.simulation.world import Actor, World
from tests.simulation.writer import QUEUE, Writing

if TYPE_CHECKING:
    from tests.simulation.referee import Referee


class Master:
    """A broker that is a master, from its start to its end."""

    def __init__(self, world: World, referee: Referee, settings: Settings, log: Log, history: History) -> None:
        self.world, self.is_gone, self.stopped_until_ms = world, False, 0
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
        self.puts: list[Put] = []  # in the log, and not answered
        self.group_transfer = GroupTransfer(self)
        self._seen_bell, self._seen_confirms = 0, self.confirms()
        self.flushing = Flushing(world, log, self.config, self.answer)
        waiting.note(counters.segment_request_offset, log.end)  # an empty master's log begins at once
        history.queue_offset = log.queue_offsets.get(QUEUE, 0)
        self.writing = Writing(self)
        self.listening = Listening(self)

    def close(self, *, silently: bool) -> None:
        """The broker is gone: killed (its peers are told), or without power (they are not)."""
        self.is_gone = self.group_transfer.is_gone = True
        self.listening.close(silently=silently)
        self.writing.close()
        self.flushing.close()

    @property
    def sendings(self) -> list[Sending]:
        """The senders that there are, and those that have ended and were not reaped."""
        return self.listening.sendings

    def stop(self, until_ms: int) -> None:
        """None of its processes does anything for a while."""
        self.stopped_until_ms = until_ms
        for actor in (self.listening, self.group_transfer, self.writing, self.flushing, *self.sendings):
            actor.stopped_until_ms = until_ms

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
