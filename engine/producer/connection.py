"""A producer's connection to the broker on this host: its ring, the broker's cursors, and waiting for answers.

Implements: the client's side of GroupCommitRequest (spec: ha-protocol, 6)
Each waiter compares its own offset and its own deadline with the published cursors, so nobody waits in line. Every wait
looks each `LIVENESS_MS` whether the broker still runs. All times here are monotonic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from engine.errors import (
    BrokerGone,
    ForeignProducer,
    InSyncReplicasNotEnough,
    MessageIllegal,
    MessagesRefused,
    NoQueueLeft,
    NotAMaster,
    ProducerClosed,
    SendTimeout,
    ServiceNotAvailable,
)
from engine.producer.awaited_places import AwaitedPlaces
from engine.producer.broker_facts import BrokerFacts
from engine.producer.put_kernel import APPENDED, PutBlock, block_of
from engine.producer.topic_rules import TopicRules
from engine.protocol.ha.policy import may_append, put_policy, replicas_needed
from engine.protocol.ha.put_status import PutMessageStatus, Reached, put_status
from engine.protocol.store.retention import DiskState
from engine.rings import encode_kernel
from engine.settings import replication
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.latencies import Clock
from ipc import ring, waiting
from ipc.arrays import Words
from ipc.clock import monotonic_ms
from ipc.compiled import atomics
from ipc.counters import Cursor
from ipc.ring import ControlWord, LocalWord
from store.message.host import Host, offset_message_id
from store.message.record import BLANK_BYTES, MAX_RECORD_OVERHEAD_BYTES, MAX_TOPIC_BYTES, MAX_TOPIC_BYTES_V2, SysFlag
from store.message.topics import TOPIC_PATTERN
from store.reading import extent

LIVENESS_MS = 100
LIVENESS_NS = LIVENESS_MS * waiting.NS_PER_MS


class Connection:
    """One claimed ring of a running broker. Not for two threads at once, but for the `await_` methods."""

    def __init__(self, store: str) -> None:
        self.store = store
        running = extent.require_running(store)
        self._running, self._pid, self.is_gone = running, running.pid, False
        self.owner, self._is_closed = os.getpid(), False
        settings = running.settings
        self.counters = BrokerCounters.attach(running.region_directory, writable=True)
        if settings["brokerRole"] == "SLAVE":
            master = str(settings["haMasterAddress"]) or address_cursors.text_of(self.counters.ha_server_address)
            raise NotAMaster(store, master)
        self._controls = ring.attach_rings(running.region_directory)
        numbers = range(int(settings["maxProducers"]))  # those behind them are the broker's own
        self._claimed = ring.ClaimedRing(
            running.region_directory, self._controls, int(settings["ringSizeInBytes"]), numbers
        )
        self.ring, self.control = self._claimed.ring, self._claimed.control
        self.clock = Clock(running.region_directory, self._claimed.number)
        self.outlet = self._claimed.outlet(self.counters.region.words, self.counters.writer_bell.index)
        self._first_number = int(self.outlet.local[LocalWord.TAIL])  # what came before is another producer's
        self.places = AwaitedPlaces(self.control, self.ring.words)
        address, port = str(settings["storeHost"]).rsplit(":", 1)
        self.store_host = Host(address.strip("[]"), int(port))
        self.message_id_prefix = offset_message_id(self.store_host, 0)[:-16]
        self.body_bytes_max = int(settings["maxMessageSize"])
        self.facts = BrokerFacts(store, settings, self.store_host)
        self.rules = TopicRules(self.facts, self.counters, settings)
        self.op_bytes_max = int(settings["transactionOpMsgMaxSize"])
        self.op_interval_ms = int(settings["transactionOpBatchInterval"])
        self._segment_room = int(settings["mappedFileSizeCommitLog"]) - BLANK_BYTES
        self.record_bytes_max = min(
            self._segment_room, len(self.ring.data), self.body_bytes_max + MAX_RECORD_OVERHEAD_BYTES
        )
        self._flush_ms, self._slave_ms = int(settings["syncFlushTimeout"]), int(settings["slaveTimeout"])
        policy = self._policy = put_policy(replication.of_running(settings))
        waits_for_slave = policy.in_sync_replicas > 1
        self.answer_ms = max(policy.wait_for_flush * self._flush_ms, waits_for_slave * self._slave_ms)
        self._followed = self.counters.confirm_offset if waits_for_slave else self.counters.flushed_offset
        self.slaves_needed = policy.in_sync_replicas - 1
        self.checks_replicas = policy.check_before_append
        self.follows_one = not ((waits_for_slave and policy.wait_for_flush) or policy.replicas_min)  # one says it all
        followed = self._followed.index if waits_for_slave or self._policy.wait_for_flush else APPENDED
        sync_cpu = int(settings["syncCpu"]) if waits_for_slave else -1
        self.block = block_of(self.outlet, self.counters, followed, self.clock.words, sync_cpu)

    def close(self) -> None:
        """Give the ring back; what was published in it is still appended.

        All stays mapped until the last reference goes: another thread may wait for an answer.
        """
        self.refuse_use()
        self._claimed.give_back()

    def refuse_use(self) -> None:
        """Make `require_running` raise ProducerClosed from now on, also in threads that wait for room."""
        self.is_gone = self._is_closed = True
        self.refusals_seen = -1

    def forked(self) -> None:
        """Note in a child that the connection must not be used."""
        self.is_gone = True
        self._claimed.forked()

    @property
    def is_foreign(self) -> bool:
        """Whether another process made it."""
        return os.getpid() != self.owner

    @property
    def refusals_seen(self) -> int:
        """Return how many of our records the writer had refused when we last looked."""
        return int(self.block[PutBlock.REFUSALS_SEEN])

    @refusals_seen.setter
    def refusals_seen(self, refused: int) -> None:
        self.block[PutBlock.REFUSALS_SEEN] = refused

    @property
    def topics_are_seen(self) -> bool:
        """Whether topics are what they were when they were seen last."""
        return bool(self.counters.topics_changes.read() == self.block[PutBlock.TOPICS_SEEN])

    @contextmanager
    def seeing_topics(self) -> Iterator[None]:
        """Within it all that is known of topics is forgotten: what is asked of them afterwards is up to date.

        Only then are they seen: an exception on the way leaves it to the next call.
        """
        changes = self.counters.topics_changes.read()
        yield
        self.block[PutBlock.TOPICS_SEEN] = changes

    # the ring

    def template_of(self, topic: str, queue_id: int, slot_of: Callable[[], int]) -> encode_kernel.Template:
        """The template of a queue. Raises MessageIllegal, NoQueueLeft, SendTimeout, BrokerGone."""
        if not isinstance(topic, str) or len(topic) > MAX_TOPIC_BYTES:
            raise MessageIllegal(f"topic {topic!r}", f"1 to {MAX_TOPIC_BYTES} characters are allowed")
        slot = slot_of()
        sys_flag = SysFlag.MULTI_TAGS if topic in self.facts.current().multi_tag_topics else 0
        return encode_kernel.template_of(topic, queue_id, slot, self.store_host, self.store_host, sys_flag)

    def slot_of(self, topic: str, queue_id: int, deadline_ms: int) -> int:
        """Ask the writer for the queue's slot. Raises MessageIllegal, NoQueueLeft, SendTimeout, BrokerGone."""
        if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > MAX_TOPIC_BYTES_V2:
            what = f"1 to {MAX_TOPIC_BYTES} characters of % | a-z A-Z 0-9 _ - are allowed"
            raise MessageIllegal(f"topic {topic!r}", what)
        if not 0 <= queue_id < 1 << 31:
            raise MessageIllegal(f"queue id {queue_id}", "it is a number from 0 to 2147483647")
        self.require_running()
        began_ms = monotonic_ms()
        self._await_answer(began_ms, deadline_ms)  # of a question that nobody waits for any more
        name = topic.encode()
        question = queue_id.to_bytes(8, "little") + len(name).to_bytes(8, "little") + name
        self.ring.question[: len(question)] = np.frombuffer(question, np.uint8)
        atomics.publish(self.control, int(ControlWord.ASKED), int(self.control[ControlWord.ASKED]) + 1)
        waiting.ring(self.counters.writer_bell)
        self._await_answer(began_ms, deadline_ms)
        slot = int(self.control[ControlWord.ANSWER])
        if slot < 0:
            raise NoQueueLeft(self.store, topic, queue_id, -slot)
        return slot

    def _await_answer(self, began_ms: int, deadline_ms: int) -> None:
        """Wait until the writer has answered all our questions. Raises SendTimeout, BrokerGone."""
        asked = int(self.control[ControlWord.ASKED])
        while (answered := int(self.control[ControlWord.ANSWERED])) != asked:
            left_ms = self._left(began_ms, deadline_ms, may_be_appended=False)
            self._pause(self.control, ControlWord.ANSWERED, answered, left_ms)

    def check_record(self, length: int) -> None:
        """Raise MessageIllegal for a record that no segment, or this ring, can ever hold."""
        if length > self.record_bytes_max:
            raise MessageIllegal(
                f"record of {length} bytes",
                f"at most {self.record_bytes_max} fit a segment (mappedFileSizeCommitLog), a ring (ringSizeInBytes) "
                "and maxMessageSize with 64 KiB for the rest",
            )

    def check_payload(self, record_bytes: int, payload_bytes: int) -> None:
        """Raise MessageIllegal for records that no segment, or this ring, can ever hold together."""
        if record_bytes > self._segment_room or payload_bytes > len(self.ring.data):
            raise MessageIllegal(
                f"{record_bytes} bytes of records",
                f"at most {self._segment_room} fit a segment (mappedFileSizeCommitLog), {len(self.ring.data)} a ring "
                "(ringSizeInBytes)",
            )

    def await_room(self, deadline_ms: int) -> bool:
        """Wait until the writer has taken something; False when the time is over."""
        left_ms = deadline_ms - monotonic_ms()
        if left_ms <= 0:
            return False
        if self.is_gone:  # closed by another thread
            self.require_running()
        head = int(self.control[ControlWord.HEAD])
        atomics.await_change(self.control, int(ControlWord.HEAD), head, min(left_ms, LIVENESS_MS) * waiting.NS_PER_MS)
        self.check_alive()
        return True

    def await_appended(self, number: int, deadline_ms: int) -> None:
        """Wait until the writer has passed record `number`. Raises SendTimeout, BrokerGone."""
        began_ms = monotonic_ms()
        while (head := int(self.control[ControlWord.HEAD])) <= number:
            self._pause(self.control, ControlWord.HEAD, head, self._left(began_ms, deadline_ms, may_be_appended=True))

    def room_to_publish(self) -> int:
        """Return how many records may be published now without losing a place that somebody waits for."""
        tail = int(self.outlet.local[LocalWord.TAIL])
        self.block[PutBlock.KEEP_UNTIL] = until = self.places.free_until(tail)
        return until - tail

    def await_place(self, number: int, deadline_ms: int) -> tuple[int, int]:
        """(physical offset, queue offset) once the writer has passed it. Raises MessagesRefused too."""
        self.await_appended(number, deadline_ms)
        physical_offset, queue_offset = self.places.place_of(number)
        if physical_offset < 0:
            self.refusals_seen += 1
            raise MessagesRefused(self.store, 1, -physical_offset)
        return physical_offset, queue_offset

    def raise_refusals(self) -> None:
        """Raise MessagesRefused if the writer refused records of this producer since the last look."""
        refused = int(self.control[ControlWord.REFUSALS])
        if refused != self.refusals_seen:
            head = int(self.control[ControlWord.HEAD])
            count, self.refusals_seen = min(refused - self.refusals_seen, head - self._first_number), refused
            if count > 0:
                physical_offset, _queue_offset = self.places.described(head - 1)
                raise MessagesRefused(self.store, count, max(0, -physical_offset), earlier=True)

    # answers

    def await_status_of(
        self, number: int, length: int, in_sync_slaves: int, deadline_ms: int, began_ns: int
    ) -> tuple[PutMessageStatus, int, int]:
        """(status, physical offset, queue offset) of record `number`, `length` bytes long, once there is an answer.

        Counts how long it took since `began_ns`. Raises MessagesRefused, SendTimeout, BrokerGone.
        """
        began_ms = began_ns // waiting.NS_PER_MS
        physical_offset, queue_offset = self.await_place(number, deadline_ms)
        status = self.await_status_at(physical_offset + length, in_sync_slaves, deadline_ms, began_ms)
        self.clock.stop(began_ns)
        return status, physical_offset, queue_offset

    def _confirmed(self, in_sync_slaves: int) -> Cursor:
        """Return the cursor of what as many replicas hold as a put needs that found so many slaves in sync."""
        if not self._policy.replicas_min:
            return self.counters.confirm_offset
        return self.counters.confirm_offsets[replicas_needed(self._policy, in_sync_slaves)]

    def _status(self, end_offset: int, in_sync_slaves: int, began_ms: int, deadline_ms: int) -> PutMessageStatus | None:
        counters, confirmed = self.counters, self._confirmed(in_sync_slaves)
        return put_status(
            end_offset,
            monotonic_ms(),
            min(began_ms + self._flush_ms, deadline_ms),
            min(began_ms + self._slave_ms, deadline_ms),
            Reached(counters.flushed_offset.read(), confirmed.read(), counters.flush_errno.read() != 0),
            in_sync_slaves,
            self._policy,
        )

    def await_status_at(
        self, end_offset: int, in_sync_slaves: int, deadline_ms: int, began_ms: int | None = None
    ) -> PutMessageStatus:
        """Wait for the status of a put that ends at `end_offset` and began at `began_ms` (default: now)."""
        began_ms = monotonic_ms() if began_ms is None else began_ms
        followed = self._confirmed(in_sync_slaves) if self._policy.replicas_min else self._followed
        while True:
            seen = followed.read()
            status = self._status(end_offset, in_sync_slaves, began_ms, deadline_ms)
            if status is not None:
                return status
            self._pause(followed.words, followed.index, seen, LIVENESS_MS)

    def _pause(self, words: Words, index: int, seen: int, pause_ms: int) -> None:
        """Sleep until a word changes, or for `pause_ms`. Raises BrokerGone."""
        if atomics.await_change(words, int(index), seen, pause_ms * waiting.NS_PER_MS) == seen:
            self.check_alive()

    def _left(self, began_ms: int, deadline_ms: int, *, may_be_appended: bool) -> int:
        """Return how long the next sleep may last, in milliseconds. Raises SendTimeout."""
        now_ms = monotonic_ms()
        if now_ms >= deadline_ms:
            raise SendTimeout(self.store, now_ms - began_ms, may_be_appended=may_be_appended)
        return min(LIVENESS_MS, deadline_ms - now_ms)

    # the broker

    @property
    def is_running(self) -> bool:
        """Whether its broker takes messages, as far as is known."""
        return not self.is_gone and bool(self.counters.broker_state.read() == BrokerState.RUNNING)

    @property
    def is_succeeded(self) -> bool:
        """Whether another run of the broker serves the store by now."""
        self.require_owned()
        running = extent.running(self.store)
        return running is not None and running.region_directory != self._running.region_directory

    def require_owned(self) -> None:
        """Raise ForeignProducer in a process that did not make the connection, ProducerClosed after its end."""
        if self.is_foreign:
            raise ForeignProducer(self.store, self.owner)
        if self._is_closed:
            raise ProducerClosed(self.store)

    def require_running(self) -> None:
        """Raise BrokerGone or ServiceNotAvailable unless the broker takes messages; and what `require_owned` raises."""
        self.require_owned()
        if not self.is_running:
            raise BrokerGone(self.store, self._pid)
        if (state := self.counters.disk_state.read()) >= DiskState.READ_ONLY:
            raise ServiceNotAvailable(self.store, DiskState(state).name, self.counters.disk_used_percent.read())

    def require_replicas(self, in_sync_slaves: int) -> None:
        """Raise InSyncReplicasNotEnough when a message must not even be stored (compat 5, enableSlaveActingMaster)."""
        if not may_append(self._policy, in_sync_slaves):
            needed = replicas_needed(self._policy, in_sync_slaves)
            raise InSyncReplicasNotEnough(self.store, 1 + in_sync_slaves, needed)

    def check_alive(self) -> None:
        """Raise BrokerGone when the broker's process has ended."""
        if not self._running.is_alive():
            self.is_gone = True
            raise BrokerGone(self.store, self._pid)
