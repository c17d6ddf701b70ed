"""A producer's connection to the broker on this host: its ring, the broker's cursors, and waiting for answers.

Implements: the client's side of GroupCommitRequest (spec: ha-protocol, 6)
Each waiter compares its own offset and its own deadline with the published cursors, so nobody waits in line. Every wait
looks each `LIVENESS_MS` whether the broker still runs.
"""

from __future__ import annotations

import time

import numpy as np

from engine import encoding, ha_settings
from engine.broker_facts import BrokerFacts
from engine.cursors import RUNNING, Board
from engine.errors import (
    BrokerGone,
    EngineError,
    InSyncReplicasNotEnough,
    MessageIllegal,
    MessagesRefused,
    SendTimeout,
    ServiceNotAvailable,
)
from engine.latencies import Clock
from engine.protocol.group_transfer import PutMessageStatus, put_status
from engine.protocol.ha_policy import may_append, put_policy, replicas_needed
from engine.protocol.retention import DiskState
from engine.role import wall_clock_ms
from engine.single_put import APPENDED, REFUSALS_SEEN, block_of
from ipc import atomics, ring, waiting
from ipc.counters import Cursor
from ipc.process import is_alive
from ipc.region import Words
from store import published
from store.message_id import Host, offset_message_id
from store.record import BLANK_BYTES, MAX_RECORD_OVERHEAD_BYTES, MAX_TOPIC_BYTES, MAX_TOPIC_BYTES_V2, SysFlag
from store.topics import TOPIC_PATTERN

CLIENT_QUEUE_NUMS = 4  # what a client asks for when its topic is made by the first message
LIVENESS_MS = 100
LIVENESS_NS = LIVENESS_MS * waiting.NS_PER_MS


class Connection:
    """One claimed ring of a running broker. Not for two threads at once, but for the `await_` methods."""

    def __init__(self, store: str) -> None:
        self.store = store
        running = published.require_running(store)
        self._pid, self._started, self.is_gone = running.pid, running.start_time, False
        settings = running.settings
        self.board = Board.attach(running.region_directory, writable=True)
        self._controls = ring.attach_rings(running.region_directory)
        self._claimed = ring.ClaimedRing(running.region_directory, self._controls, int(settings["ringSizeInBytes"]))
        self.ring, self.control = self._claimed.ring, self._claimed.control
        self.clock = Clock(running.region_directory, self._claimed.number)
        self.outlet = self._claimed.outlet(self.board.counters.words, self.board.writer_bell.index)
        address, port = str(settings["storeHost"]).rsplit(":", 1)
        self.store_host = Host(address.strip("[]"), int(port))
        self.message_id_prefix = offset_message_id(self.store_host, 0)[:-16]
        self.body_bytes_max = int(settings["maxMessageSize"])
        self.facts = BrokerFacts(store, settings, self.store_host)
        self.op_bytes_max = int(settings["transactionOpMsgMaxSize"])
        self.op_interval_ms = int(settings["transactionOpBatchInterval"])
        self._segment_room = int(settings["mappedFileSizeCommitLog"]) - BLANK_BYTES
        self.record_bytes_max = min(
            self._segment_room, len(self.ring.data), self.body_bytes_max + MAX_RECORD_OVERHEAD_BYTES
        )
        self.queue_nums = min(CLIENT_QUEUE_NUMS, int(settings["defaultTopicQueueNums"]))
        self._flush_ms, self._slave_ms = int(settings["syncFlushTimeout"]), int(settings["slaveTimeout"])
        policy = self._policy = put_policy(ha_settings.of_running(settings))
        waits_for_slave = policy.in_sync_replicas > 1
        self._followed = self.board.confirm_offset if waits_for_slave else self.board.flushed_offset
        self.slaves_needed = policy.in_sync_replicas - 1
        self.checks_replicas = policy.check_before_append
        self.follows_one = not ((waits_for_slave and policy.wait_for_flush) or policy.replicas_min)  # one says it all
        followed = self._followed.index if waits_for_slave or self._policy.wait_for_flush else APPENDED
        sync_cpu = int(settings["syncCpu"]) if waits_for_slave else -1
        self.block = block_of(self.outlet, self.board, followed, self.clock.words, sync_cpu)
        # Kept beside their addresses: a thread that still waits when another one closes needs them mapped.
        self._kept = (self.outlet, self.clock.words)

    def close(self) -> None:
        """Give the ring back; what was published in it is still appended."""
        self.is_gone = True
        self.refusals_seen = -1
        self._claimed.close()
        self.clock.close()
        self.control = np.zeros(ring.WORDS_PER_RING, np.int64)
        self.board.counters.close()
        self._controls.close()

    @property
    def refusals_seen(self) -> int:
        """How many of our records the writer had refused when we last looked."""
        return int(self.block[REFUSALS_SEEN])

    @refusals_seen.setter
    def refusals_seen(self, refused: int) -> None:
        self.block[REFUSALS_SEEN] = refused

    # the ring

    def template_of(self, topic: str, queue_id: int, deadline_ms: int) -> encoding.Template:
        """The template of a queue. Raises MessageIllegal, SendTimeout, BrokerGone."""
        if not isinstance(topic, str) or len(topic) > MAX_TOPIC_BYTES:
            raise MessageIllegal(f"topic {topic!r}", f"1 to {MAX_TOPIC_BYTES} characters are allowed")
        slot = self.slot_of(topic, queue_id, deadline_ms)
        sys_flag = SysFlag.MULTI_TAGS if topic in self.facts.current().multi_tag_topics else 0
        return encoding.template_of(topic, queue_id, slot, self.store_host, self.store_host, sys_flag)

    def slot_of(self, topic: str, queue_id: int, deadline_ms: int) -> int:
        """Ask the writer for the queue's slot. Raises MessageIllegal, SendTimeout, BrokerGone."""
        if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > MAX_TOPIC_BYTES_V2:
            what = f"1 to {MAX_TOPIC_BYTES} characters of % | a-z A-Z 0-9 _ - are allowed"
            raise MessageIllegal(f"topic {topic!r}", what)
        if not 0 <= queue_id < 1 << 31:
            raise MessageIllegal(f"queue id {queue_id}", "it is a number from 0 to 2147483647")
        self.require_running()
        name = topic.encode()
        question = queue_id.to_bytes(8, "little") + len(name).to_bytes(8, "little") + name
        self.ring.question[: len(question)] = np.frombuffer(question, np.uint8)
        asked = int(self.control[ring.ASKED]) + 1
        atomics.publish(self.control, ring.ASKED, asked)
        waiting.ring(self.board.writer_bell)
        began_ms = wall_clock_ms()
        while (answered := int(self.control[ring.ANSWERED])) != asked:
            self._pause(self.control, ring.ANSWERED, answered, self._left(began_ms, deadline_ms))
        slot = int(self.control[ring.ANSWER])
        if slot < 0:
            raise MessageIllegal(f"topic {topic!r} queue {queue_id}", "the broker's queue table is full")
        return slot

    def check_record(self, length: int) -> None:
        """Raises MessageIllegal for a record that no segment, or this ring, can ever hold."""
        if length > self.record_bytes_max:
            raise MessageIllegal(
                f"record of {length} bytes",
                f"at most {self.record_bytes_max} fit a segment (mappedFileSizeCommitLog), a ring (ringSizeInBytes) "
                "and maxMessageSize with 64 KiB for the rest",
            )

    def check_payload(self, record_bytes: int, payload_bytes: int) -> None:
        """Raises MessageIllegal for records that no segment, or this ring, can ever hold together."""
        if record_bytes > self._segment_room or payload_bytes > len(self.ring.data):
            raise MessageIllegal(
                f"{record_bytes} bytes of records",
                f"at most {self._segment_room} fit a segment (mappedFileSizeCommitLog), {len(self.ring.data)} a ring "
                "(ringSizeInBytes)",
            )

    def await_room(self, deadline_ms: int) -> bool:
        """Wait until the writer has taken something; False when the time is over."""
        left_ms = deadline_ms - wall_clock_ms()
        if left_ms <= 0:
            return False
        head = int(self.control[ring.HEAD])
        atomics.await_change(self.control, ring.HEAD, head, min(left_ms, LIVENESS_MS) * waiting.NS_PER_MS)
        self.check_alive()
        return True

    def await_appended(self, number: int, deadline_ms: int) -> None:
        """Wait until the writer has passed record `number`. Raises SendTimeout, BrokerGone."""
        began_ms = wall_clock_ms()
        while (head := int(self.control[ring.HEAD])) <= number:
            self._pause(self.control, ring.HEAD, head, self._left(began_ms, deadline_ms))

    def await_place(self, number: int, deadline_ms: int) -> tuple[int, int]:
        """(physical offset, queue offset) once the writer has passed it. Raises MessagesRefused too."""
        self.await_appended(number, deadline_ms)
        physical_offset, queue_offset = self.place_of(number)
        if physical_offset < 0:
            self.refusals_seen += 1
            raise MessagesRefused(self.store, 1, -physical_offset)
        return physical_offset, queue_offset

    def place_of(self, number: int) -> tuple[int, int]:
        """(physical offset, or -errno when refused; queue offset) of a record the writer has passed."""
        if self.outlet.local[ring.TAIL_LOCAL] - number > self.ring.descriptors:
            raise EngineError(
                f"{self.store}: the place of record {number} was overwritten by later ones before it was asked for"
            )
        at = (number % self.ring.descriptors) * ring.DESCRIPTOR_WORDS
        return int(self.ring.words[at + 2]), int(self.ring.words[at + 3])

    def raise_refusals(self) -> None:
        """Raises MessagesRefused when the writer refused anything of ours since the last look."""
        refused = int(self.control[ring.REFUSALS])
        if refused != self.refusals_seen:
            count, self.refusals_seen = refused - self.refusals_seen, refused
            last = self.place_of(int(self.control[ring.HEAD]) - 1)[0]
            raise MessagesRefused(self.store, count, -last if last < 0 else 0)

    # answers

    def await_status(
        self, number: int, length: int, in_sync_slaves: int, deadline_ms: int, began_ns: int
    ) -> tuple[PutMessageStatus, int, int]:
        """(status, physical offset, queue offset) of record `number`, `length` bytes long, once there is an answer.

        Counts how long it took since `began_ns`. Raises MessagesRefused, SendTimeout, BrokerGone.
        """
        began_ms = wall_clock_ms() - (time.monotonic_ns() - began_ns) // waiting.NS_PER_MS
        physical_offset, queue_offset = self.await_place(number, deadline_ms)
        status = self.status_of_log(physical_offset + length, in_sync_slaves, deadline_ms, began_ms)
        self.clock.stop(began_ns)
        return status, physical_offset, queue_offset

    def _confirmed(self, in_sync_slaves: int) -> Cursor:
        """How far the log is held by as many replicas as a put needs that found so many slaves in sync."""
        if not self._policy.replicas_min:
            return self.board.confirm_offset
        return self.board.confirm_offsets[replicas_needed(self._policy, in_sync_slaves)]

    def _status(self, end_offset: int, in_sync_slaves: int, began_ms: int, deadline_ms: int) -> PutMessageStatus | None:
        board = self.board
        return put_status(
            end_offset, wall_clock_ms(), min(began_ms + self._flush_ms, deadline_ms),
            min(began_ms + self._slave_ms, deadline_ms), flushed_offset=board.flushed_offset.read(),
            confirm_offset=self._confirmed(in_sync_slaves).read(), in_sync_slaves=in_sync_slaves, policy=self._policy,
            flush_failed=board.flush_errno.read() != 0,
        )  # fmt: skip

    def status_of_log(
        self, end_offset: int, in_sync_slaves: int, deadline_ms: int, began_ms: int | None = None
    ) -> PutMessageStatus:
        """What a put that ends at `end_offset` and began at `began_ms` (now) is told; waits for it."""
        began_ms = wall_clock_ms() if began_ms is None else began_ms
        followed = self._confirmed(in_sync_slaves) if self._policy.replicas_min else self._followed
        while True:
            seen = followed.read()
            status = self._status(end_offset, in_sync_slaves, began_ms, deadline_ms)
            if status is not None:
                return status
            self._pause(followed.words, followed.index, seen, LIVENESS_MS)

    def _pause(self, words: Words, index: int, seen: int, pause_ms: int) -> None:
        """Sleep until a word changes, or for `pause_ms`. Raises BrokerGone."""
        if atomics.await_change(words, index, seen, pause_ms * waiting.NS_PER_MS) == seen:
            self.check_alive()

    def _left(self, began_ms: int, deadline_ms: int) -> int:
        """How long the next sleep may last, in milliseconds. Raises SendTimeout."""
        now_ms = wall_clock_ms()
        if now_ms >= deadline_ms:
            raise SendTimeout(self.store, now_ms - began_ms)
        return min(LIVENESS_MS, deadline_ms - now_ms)

    # the broker

    def require_running(self) -> None:
        """Raises BrokerGone, ServiceNotAvailable unless the broker takes messages: a look at two counters."""
        if self.is_gone or self.board.broker_state.read() != RUNNING:
            raise BrokerGone(self.store, self._pid)
        if (state := self.board.disk_state.read()) >= DiskState.READ_ONLY:
            raise ServiceNotAvailable(self.store, DiskState(state).name, self.board.disk_used_percent.read())

    def require_replicas(self, in_sync_slaves: int) -> None:
        """Raises InSyncReplicasNotEnough when a message must not even be stored (compat 5, enableSlaveActingMaster)."""
        if not may_append(self._policy, in_sync_slaves):
            needed = replicas_needed(self._policy, in_sync_slaves)
            raise InSyncReplicasNotEnough(self.store, 1 + in_sync_slaves, needed)

    def check_alive(self) -> None:
        """Raises BrokerGone when the broker's process has ended."""
        if not is_alive(self._pid, self._started):
            self.is_gone = True
            raise BrokerGone(self.store, self._pid)
