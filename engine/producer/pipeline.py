"""A producer's ring for somebody who never waits: drafts are published as they come, answers collected when words move.

Implements: what CommitLog.asyncPutMessage and GroupCommitService do with a put, without a future or a thread for each
A front, or a service, calls `put`, follows `followed`, and calls `collect` whenever one of those words has moved.
Which status a put gets is `put_status`'s to say. Answers come in the order of numbers, but for those that are refused,
or that wait for no more than to be appended: these come as soon as the writer has passed them. What cannot go into the
ring now is parked: until the writer has said which slot its queue has, or made room.
Compiled code may publish into the same ring: it fills a row of `table` (`pipeline_kernel`) while `rows_free` says so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from engine.errors import EngineError
from engine.producer import pipeline_kernel as kernel
from engine.producer.columns import as_bytes
from engine.producer.pipeline_kernel import DONE_WORDS, SENT_WORDS, SentWord, StateWord
from engine.producer.queue_slots import NO_SLOT, Queue, QueueSlots
from engine.protocol.ha.policy import may_append, put_policy, replicas_needed
from engine.protocol.ha.put_status import PutMessageStatus, Reached, put_status, status_of_errno
from engine.protocol.store.retention import DiskState
from engine.rings import encode_kernel
from engine.rings.payload import COMPOSED, payload_of
from engine.settings import replication
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.latencies import Clock
from ipc import ring
from ipc.arrays import Words
from ipc.ring import ControlWord, LocalWord
from store.message.record import BLANK_BYTES
from store.put.draft import Draft

STATUSES = (PutMessageStatus.PUT_OK, *(status for status in PutMessageStatus if status is not PutMessageStatus.PUT_OK))
NUMBERS = {status: number for number, status in enumerate(STATUSES)}
FOREVER = 1 << 62
UNPUBLISHED = -1  # as a number
NS_PER_MS = 1_000_000


class Busy(EngineError):
    """Raised when too many puts are unanswered; nothing was put.

    Next: wait for answers before you put more, or use a second producer.
    """

    code = "PIPELINE_BUSY"


class Outcome(NamedTuple):
    """Outcome of a put. `token` is what `put` was given; None: compiled code published it."""

    token: Any
    status: PutMessageStatus
    physical_offset: int
    queue_offset: int
    number: int = -1


class Parked(NamedTuple):
    """A draft that is not in the ring yet."""

    draft: Draft
    waits: bool
    token: Any
    began_ns: int
    size: int


class Pipeline:
    """One claimed ring of the broker whose role has it; at most `puts_max` and `bytes_max` under way.

    `patience_ms`: a put that the writer has not taken for so long ends with UNKNOWN_ERROR; None: never.
    """

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        *,
        puts_max: int,
        bytes_max: int,
        patience_ms: int | None = None,
        wanted_ring: int | None = None,
    ) -> None:
        self._counters, self.puts_max, self.bytes_max, self._patience_ms = counters, puts_max, bytes_max, patience_ms
        self._controls = ring.attach_rings(counters.directory)
        own = range(config.producers_max, config.rings)
        numbers = own if wanted_ring is None else (wanted_ring, *own)  # its last owner's: what became of its end
        self._claimed = ring.ClaimedRing(counters.directory, self._controls, config.ring_bytes, numbers)
        self.ring, self.control = self._claimed.ring, self._claimed.control
        self.outlet = self._claimed.outlet(counters.region.words, counters.writer_bell.index)
        self._clock = Clock(counters.directory, self._claimed.number)
        self._segment_room = config.mapped_file_size_commit_log_bytes - BLANK_BYTES
        self._flush_ms, self._slave_ms = config.sync_flush_timeout_ms, config.slave_timeout_ms
        self.policy = put_policy(replication.of_config(config))
        rows = 1 << max(4, puts_max - 1).bit_length()
        self.table: Words = np.zeros(rows * SENT_WORDS, np.int64)
        self.state: Words = np.zeros(len(StateWord), np.int64)
        self.done: Words = np.zeros(rows * DONE_WORDS, np.int64)
        self.state[StateWord.KEPT] = self.state[StateWord.ANSWERED] = self.tail  # before it: a predecessor's
        self.slots = QueueSlots(self.ring, self.control, counters.writer_bell)
        self._tokens: dict[int, Any] = {}
        self._parked: dict[Queue, deque[Parked]] = {}
        self._without_slot: dict[Queue, list[Queue]] = {}  # by a queue that is asked for: whose drafts wait for it
        self._without_room: dict[Queue, None] = {}  # whose drafts wait for the writer to take something
        self._parked_puts = self._parked_bytes = 0
        self._at_once: list[Outcome] = []
        self._head_seen, self._head_moved_ns = self.head, 0

    def close(self) -> None:
        """Give the ring back; what was published in it is still appended."""
        self._clock.close()
        self._claimed.close()

    # how it goes

    @property
    def latencies(self) -> Words:
        """The ring's block of latencies."""
        return self._clock.words

    @property
    def ring_number(self) -> int:
        """Return the number of the claimed ring."""
        return self._claimed.number

    @property
    def tail(self) -> int:
        """The number that the next record in the ring has."""
        return int(self.outlet.local[LocalWord.TAIL])

    @property
    def head(self) -> int:
        """The number below which the writer has passed all."""
        return int(self.control[ControlWord.HEAD])

    @property
    def puts(self) -> int:
        """Return the number of puts without an answer, parked ones included."""
        return self.tail - int(self.state[StateWord.ANSWERED]) + self._parked_puts

    @property
    def bytes(self) -> int:
        """Return the bytes of puts without an answer, parked ones included."""
        return int(self.state[StateWord.BYTES]) + self._parked_bytes

    @property
    def parked_puts(self) -> int:
        """Return the number of puts that are not in the ring yet."""
        return self._parked_puts

    @property
    def has_outcomes(self) -> bool:
        """Whether something was refused without a look at the log: `collect` has it, whatever moves."""
        return bool(self._at_once)

    @property
    def rows_free(self) -> int:
        """Return how many more records may be published now without losing a place."""
        rows = len(self.table) // SENT_WORDS
        kept = self.tail - int(self.state[StateWord.KEPT])
        return min(rows - (self.tail - int(self.state[StateWord.ANSWERED])), self.ring.descriptors - kept)

    @property
    def followed(self) -> list[tuple[Words, int]]:
        """The words that answers depend on: each an array and an index."""
        counters = self._counters
        words = [(self.control, int(ControlWord.HEAD)), (self.control, int(ControlWord.ANSWERED))]
        if self.policy.wait_for_flush:
            words.append((counters.flushed_offset.words, counters.flushed_offset.index))
        if self.policy.in_sync_replicas > 1:
            needed = {counters.confirm_offset.index: counters.confirm_offset}
            if self.policy.replicas_min:
                least, most = self.policy.replicas_least, self.policy.in_sync_replicas
                needed = {count: counters.confirm_offsets[count] for count in range(max(2, least), most + 1)}
            words += [(cursor.words, cursor.index) for cursor in needed.values()]
        return words

    def writer_waits_ms(self, now_ns: int) -> int:
        """Return for how long the writer has taken nothing while the ring holds something, in ms."""
        head = self.head
        if head != self._head_seen or head == self.tail:
            self._head_seen, self._head_moved_ns = head, now_ns
        return (now_ns - self._head_moved_ns) // NS_PER_MS

    def oldest_began_ns(self) -> int | None:
        """Return when the oldest put without an answer began; None without such a put."""
        begins = [parked[0].began_ns for parked in self._parked.values()]
        first = int(self.state[StateWord.ANSWERED])
        if first < self.tail:
            begins.append(self._row(first, SentWord.BEGAN_NS))
        return min(begins, default=None)

    def _row(self, number: int, word: SentWord) -> int:
        rows = len(self.table) // SENT_WORDS
        return int(self.table[number % rows * SENT_WORDS + word])

    # in

    def put(self, draft: Draft, *, waits: bool, token: Any, began_ns: int | None = None) -> None:
        """Publish a draft, or park it; its outcome comes from `collect`, also where it is refused at once.

        `began_ns`: when its time limits begin; None: now. Raises Busy.
        """
        size = sum(map(len, draft.pieces))
        if self.puts >= self.puts_max or self.bytes + size > self.bytes_max:
            raise Busy(
                f"{self.puts} puts of {self.bytes} bytes are unanswered; at most {self.puts_max}, {self.bytes_max}"
            )
        parked = Parked(draft, waits, token, time.monotonic_ns() if began_ns is None else began_ns, size)
        queue = (draft.topic, draft.queue_id)
        if queue in self._parked or not self._publish(parked):
            self._parked.setdefault(queue, deque()).append(parked)
            self._parked_puts += 1
            self._parked_bytes += size

    def _publish(self, parked: Parked) -> bool:
        """Whether it is answered, or in the ring; else its queue waits for a slot, or for room."""
        draft, slots = parked.draft, self.slots
        queue = (draft.topic, draft.queue_id)
        named = (queue, *(other for other in draft.others if other is not None))
        missing = slots.missing(*named)
        if missing is not None:
            self._without_slot.setdefault(missing, []).append(queue)
            slots.ask(missing)
            return False
        in_sync_slaves, slot = self._counters.in_sync_slaves.read(), slots.slot_of(queue)
        if any(slots.slot_of(name) == NO_SLOT for name in named):
            self._refuse(parked, slots.refusal(*named))
            return True
        if draft.is_plain:
            payload = encode_kernel.hidden(draft.pieces[0])
        else:
            payload = payload_of(draft, slots.slot_of)
            slot |= COMPOSED
        refused = self._refused_at_once(parked, len(payload), in_sync_slaves)
        if refused is not None:
            self._refuse(parked, refused)
            return True
        if self.rows_free < 1:
            self._keep()
        if self.rows_free >= 1:
            number = self._note(parked, in_sync_slaves)
            self.numbered(parked.token, number)
            if int(encode_kernel.put_payload(*self.outlet, as_bytes(payload), slot)) >= 0:
                self.state[StateWord.BYTES] += parked.size
                self._tokens[number] = parked.token
                return True
            self.numbered(parked.token, UNPUBLISHED)
        self._without_room[queue] = None
        return False

    def numbered(self, token: Any, number: int) -> None:
        """Do nothing: a hook for subclasses, called with the number of a put before anybody can see its record.

        UNPUBLISHED follows where the ring had no room after all: the put will have another number.
        """

    def _refuse(self, parked: Parked, status: PutMessageStatus) -> None:
        self._at_once.append(Outcome(parked.token, status, -1, -1))

    def _refused_at_once(self, parked: Parked, payload_bytes: int, in_sync_slaves: int) -> PutMessageStatus | None:
        """Return a refusal that needs no look at the log; None where there is none."""
        if self._counters.disk_state.read() >= DiskState.READ_ONLY:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if parked.size > self._segment_room or payload_bytes > len(self.ring.data):
            return PutMessageStatus.MESSAGE_ILLEGAL
        if parked.waits and not may_append(self.policy, in_sync_slaves):
            return PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        return None

    def _note(self, parked: Parked, in_sync_slaves: int) -> int:
        """Fill the row of what is published next; its number. The row counts once the tail has passed it."""
        number, rows = self.tail, len(self.table) // SENT_WORDS
        length = 0 if parked.draft.holes else parked.size
        at = number % rows * SENT_WORDS
        self.table[at : at + SENT_WORDS] = (
            length, parked.waits, in_sync_slaves, parked.began_ns, 0, 0, 0, parked.size
        )  # fmt: skip
        return number

    # out

    def _keep(self) -> None:
        counters = self._counters
        kernel.keep_places(
            self.control,
            self.outlet.words,
            counters.region.words,
            counters.max_physical_offset.index,
            self.table,
            self.state,
            self.done,
            self._clock.words,
        )

    def harvest(self, now_ns: int) -> Words:
        """Rows of `DoneWord` of what is answered since. Who takes them sets StateWord.DONE to 0."""
        self._keep()
        self.judge(now_ns)
        return self.done_rows(int(self.state[StateWord.DONE]))

    def done_rows(self, count: int) -> Words:
        """The first rows of `done`."""
        return self.done.reshape(-1, DONE_WORDS)[:count]

    def judge(self, now_ns: int) -> None:
        """Answer the puts whose time has come, by the clock."""
        if int(self.state[StateWord.ANSWERED]) < int(self.state[StateWord.KEPT]):
            self._judge(now_ns)
        if self._patience_ms is not None and self.head < self.tail:
            began = now_ns - self._patience_ms * NS_PER_MS
            unknown = NUMBERS[PutMessageStatus.UNKNOWN_ERROR]
            kernel.give_up(self.table, self.state, self.done, self.tail, began, unknown)

    def _judge(self, now_ns: int) -> None:
        """Answer all puts whose turn it is."""
        while kernel.tell_reached(self.table, self.state, self.done, self._reached(), self._clock.words):
            status = self._status_of(int(self.state[StateWord.ANSWERED]), now_ns)
            if status is None:
                return
            kernel.tell_first(self.table, self.state, self.done, NUMBERS[status], self._clock.words)

    def _reached(self) -> int:
        """Return the log offset up to which every put succeeded; -1 where each put has to be judged by itself."""
        counters, policy = self._counters, self.policy
        if counters.flush_errno.read() or policy.replicas_min:
            return -1
        reached = counters.flushed_offset.read() if policy.wait_for_flush else FOREVER
        return min(reached, counters.confirm_offset.read()) if policy.in_sync_replicas > 1 else reached

    def _status_of(self, number: int, now_ns: int) -> PutMessageStatus | None:
        counters, in_sync_slaves = self._counters, self._row(number, SentWord.IN_SYNC_SLAVES)
        began_ms = self._row(number, SentWord.BEGAN_NS) // NS_PER_MS
        confirmed = counters.confirm_offset
        if self.policy.replicas_min:
            confirmed = counters.confirm_offsets[replicas_needed(self.policy, in_sync_slaves)]
        return put_status(
            self._row(number, SentWord.END_OFFSET),
            now_ns // NS_PER_MS,
            began_ms + self._flush_ms,
            began_ms + self._slave_ms,
            Reached(counters.flushed_offset.read(), confirmed.read(), counters.flush_errno.read() != 0),
            in_sync_slaves,
            self.policy,
        )

    def collect(self, now_ns: int | None = None) -> list[Outcome]:
        """The outcomes since; what was parked goes into the ring where it can."""
        return self.outcomes_of(self.harvest(time.monotonic_ns() if now_ns is None else now_ns))

    def outcomes_of(self, rows: Words) -> list[Outcome]:
        """The outcomes that these rows tell; what was parked goes into the ring where it can."""
        outcomes = [self._outcome(*map(int, row)) for row in rows] if len(rows) else []
        self.state[StateWord.DONE] = 0  # not before: what is published between may have rows answered
        if self._parked_puts or self.slots.is_asking:
            self.go_on()
        if self._at_once:
            outcomes += self._at_once
            self._at_once = []
        return outcomes

    def _outcome(self, number: int, status: int, physical_offset: int, queue_offset: int) -> Outcome:
        token = self._tokens.pop(number, None)
        if status == kernel.REFUSED:
            return Outcome(token, status_of_errno(-physical_offset), -1, -1, number)
        return Outcome(token, STATUSES[status], physical_offset, queue_offset, number)

    def go_on(self) -> None:
        """Publish what is parked, each queue in its order, as far as there is room."""
        while (answered := self.slots.look()) is not None:
            self._without_room.update(dict.fromkeys(self._without_slot.pop(answered, ())))
        blocked, self._without_room = self._without_room, {}
        for queue in blocked:
            if self._without_room:  # full again: the rest stays in line, behind who was tried
                self._without_room[queue] = None
                continue
            waiting = self._parked.get(queue, deque())
            while waiting and self._publish(waiting[0]):
                self._unpark(waiting.popleft())
            if not waiting:
                self._parked.pop(queue, None)

    def _unpark(self, parked: Parked) -> None:
        self._parked_puts -= 1
        self._parked_bytes -= parked.size

    def take_parked(self, is_over: Callable[[Parked], bool]) -> Iterator[Parked]:
        """Take back those of what is parked that are over, each queue's from its oldest on: they are never put."""
        for queue in list(self._parked):
            waiting = self._parked[queue]
            while waiting and is_over(waiting[0]):
                self._unpark(waiting[0])
                yield waiting.popleft()
            if not waiting:
                del self._parked[queue]
