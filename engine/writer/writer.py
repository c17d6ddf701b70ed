"""The writer: takes records from the producers' rings, gives them their place, and publishes the end of the log.

Implements: CommitLog.asyncPutMessage (spec: store-formats, 1, 4, 8)
Follows:    the rings' tails, allocated_offset, flush_errno; rivals_asked_ms, once it has stood still
Publishes:  writer_held_ms, max_physical_offset, the rings' heads, queue offsets, put_* tallies, segment_request_offset
The only writer of a master's log. It may be killed anywhere: see `engine.writer.drain_kernel` for how a batch is
committed.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import numpy as np

from engine.protocol.ha.reign import Hold
from engine.settings.config import BrokerConfig, FlushDiskType
from engine.shared_memory import written_file
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_table import NoQueueSlot, QueueTable
from engine.writer import drain_kernel, serve_kernel
from engine.writer.drain_kernel import CommitCounter, DrainStop, ScratchColumn
from engine.writer.journal import attach_journal
from engine.writer.next_segment import SegmentAhead
from engine.writer.pages_ahead import PagesAhead
from engine.writer.topic_keeper import TopicKeeper
from ipc import ring, waiting
from ipc.arrays import Words
from ipc.clock import monotonic_ms, wall_ms
from ipc.compiled.atomics import publish
from ipc.ring import ControlWord
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.message.record import BLANK_BYTES, MAX_RECORD_OVERHEAD_BYTES, MAX_TOPIC_BYTES_V2
from store.message.topics import LMQ_PREFIX, is_lmq

DRAIN_BYTES_MAX = 1 << 20
POPULATE_BYTES = 2 << 20  # at least twice what one drain may write
SERVE_BYTES_MAX = 4 << 20  # then it is looked how many pages are ready
ALLOCATION_DEADLINE_MS = 5000  # RocketMQ's wait for the next file
BEAT_SECONDS = 0.2
TURN_MS_MAX = 1000  # while something is to be looked at
HELD_LOOK_MS = 100
QUESTION = struct.Struct("<qq")
QUEUE_ID_MAX = (1 << 31) - 1


def places_of(counters: BrokerCounters) -> Words:
    """Return where in the counters those lie that a commit changes."""
    places: Words = np.zeros(len(CommitCounter), np.int64)
    for place, cursor in (
        (CommitCounter.MAX_PHYSICAL, counters.max_physical_offset), (CommitCounter.PUT_MESSAGES, counters.put_messages),
        (CommitCounter.PUT_BYTES, counters.put_bytes), (CommitCounter.PUT_REFUSED, counters.put_refused),
        (CommitCounter.STORE_TIMESTAMP, counters.store_timestamp_ms),
    ):  # fmt: skip
        places[place] = cursor.index
    return places


class Writer:
    """The role of the writer."""

    name = "writer"

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        directory: Path,
        *,
        files: SegmentFiles,
        ahead: SegmentAhead,
        pages: PagesAhead,
    ) -> None:
        self._counters, self._directory, self._ring_bytes = counters, directory, config.ring_bytes
        self._files = files
        self._queues = QueueTable.attach(directory, writable=True)
        self._light_queues = sum(is_lmq(topic) for topic, _queue_id in self._queues.names())
        self._light_queues_max = config.light_queues_max if config.enable_lmq else self._queues.capacity
        self._controls = ring.attach_rings(directory)
        self._journal = attach_journal(directory)
        self._rings: dict[int, ring.Ring] = {}
        rings = len(self._controls.words) // ring.WORDS_PER_RING
        self._sources = np.zeros((rings, len(serve_kernel.SourceColumn)), np.int64)
        self._segment: Segment | None = None
        self._ahead, self._pages = ahead, pages
        self._next_ring = 0
        self._scratch = np.zeros((self._queues.capacity, len(ScratchColumn)), np.int64)
        largest = self._files.segment_bytes - BLANK_BYTES  # a larger one would ask for a new segment forever
        self._record_bytes_max = min(config.max_message_bytes + MAX_RECORD_OVERHEAD_BYTES, largest)
        self._shared = drain_kernel.Shared(
            self._journal.words,
            self._queues.next_offsets,
            self._controls.words,
            counters.region.words,
            places_of(counters),
        )
        self._target: drain_kernel.Target | None = None
        drain_kernel.redo(self._shared)
        self._hold, self._may_hold = Hold(), config.has_name_servers or config.ha_secret_file is not None
        self._topics = TopicKeeper(config)
        self._topics.note(self._queues.names())

    def do_work(self, now_ms: int) -> int:
        """Empty one ring, and serve it while no other asks, or answer its producer's question."""
        self._topics.save_if_due()
        if self._may_hold and (self._hold.begins(now_ms) or self._hold.since_ms) and self._is_held(now_ms):
            return 0
        number = int(ring.first_pending(self._controls.words, self._next_ring))
        if number < 0:
            return 0
        self._next_ring = (number + 1) % (len(self._controls.words) // ring.WORDS_PER_RING)
        opened = self._open_ring(number)
        at = number * ring.WORDS_PER_RING
        control = self._controls.words[at : at + ring.WORDS_PER_RING]
        if control[ControlWord.ASKED] != control[ControlWord.ANSWERED]:
            self._answer(opened, control)
        if control[ControlWord.TAIL] != control[ControlWord.HEAD]:
            self._append(opened, number)
        return 1

    def _is_held(self, now_ms: int) -> bool:
        """Whether records stay in their rings: it stood still, and another broker may be the master by now."""
        counters = self._counters
        is_fenced, asked_ms = counters.fenced_by_epoch.read() > 0, counters.rivals_asked_ms.read()
        is_held = self._hold.lasts(now_ms, asked_ms, is_fenced=is_fenced)
        waiting.publish(counters.writer_held_ms, self._hold.since_ms)
        return is_held

    def idle(self, timeout_ms: int) -> None:
        """Sleep until a producer rings, or something is to be looked at: topics that could not be written just now, how
        long it has stood still; while records are held, until others were asked."""
        if self._hold.since_ms:
            waiting.await_change(self._counters.rivals_asked_ms, self._counters.rivals_asked_ms.read(), HELD_LOOK_MS)
            return
        bell = self._counters.writer_bell
        if self._topics.has_more or self._may_hold:
            timeout_ms = min(timeout_ms, TURN_MS_MAX)
        ring.await_bell(bell.words, bell.index, self._controls.words, 0, timeout_ms * waiting.NS_PER_MS)

    def close(self) -> None:
        """Finish the topics' file, and unmap segment, rings and tables."""
        while not self._topics.finish(wall_ms(), BEAT_SECONDS):
            waiting.note(self._counters.heartbeats[self.name], monotonic_ms())
        self._pages.close()
        self._ahead.close()
        if self._segment is not None:
            self._segment.close()
        for opened in self._rings.values():
            opened.close()

    def _open_ring(self, number: int) -> ring.Ring:
        opened = self._rings.get(number)
        if opened is None:
            opened = self._rings[number] = ring.Ring.attach(self._directory, number, self._ring_bytes)
            data, words = opened.data, opened.words
            self._sources[number] = (data.ctypes.data, len(data), words.ctypes.data, len(words))
        return opened

    def _answer(self, opened: ring.Ring, control: Words) -> None:
        """Give a producer the slot of the queue it asks for; -errno where there is no slot for it."""
        asked = int(control[ControlWord.ASKED])
        question = opened.question.tobytes()
        queue_id, topic_bytes = QUESTION.unpack_from(question)
        if not (0 < topic_bytes <= MAX_TOPIC_BYTES_V2 and 0 <= queue_id <= QUEUE_ID_MAX):
            control[ControlWord.ANSWER] = -errno.EINVAL  # its producer died while it wrote the question, or is damaged
        else:
            topic, known = question[QUESTION.size : QUESTION.size + topic_bytes], len(self._queues)
            try:
                control[ControlWord.ANSWER] = self._slot_of(topic, queue_id)
            except NoQueueSlot as error:
                control[ControlWord.ANSWER] = -error.errno
            if len(self._queues) > known:
                self._topics.note([(topic.decode(errors="replace"), queue_id)], in_use=True)
                self._topics.save_if_due()
        publish(control, int(ControlWord.ANSWERED), asked)

    def _slot_of(self, topic: bytes, queue_id: int) -> int:
        """The queue's slot. Raises NoQueueSlot, with EDQUOT for a light queue above maxLmqConsumeQueueNum."""
        known = len(self._queues)
        is_light = topic.startswith(LMQ_PREFIX.encode())
        if is_light and self._light_queues >= self._light_queues_max and not self._queues.has(topic, queue_id):
            raise NoQueueSlot(errno.EDQUOT)
        slot = self._queues.slot_of(topic, queue_id)
        self._light_queues += is_light and len(self._queues) > known
        return slot

    def _append(self, opened: ring.Ring, number: int) -> None:
        failed = self._counters.flush_errno.read()
        if failed:
            self._refuse(opened, number, errno.EIO)
            return
        end = self._counters.max_physical_offset.read()
        if self._segment is None or end >= self._segment.end_offset:
            failed = self._open_segment(end)
            if failed:
                self._refuse(opened, number, failed)
                return
        assert self._segment is not None and self._target is not None
        room = self._pages.ready(end, DRAIN_BYTES_MAX) - end - DRAIN_BYTES_MAX
        room = min(max(DRAIN_BYTES_MAX, room), SERVE_BYTES_MAX)
        errno_at, bell = self._counters.flush_errno.index, self._counters.writer_bell.index
        queues = len(self._queues)
        outcome = serve_kernel.serve(self._sources, number, self._target, self._shared, queues, room, errno_at, bell)
        if outcome == DrainStop.NEEDS_ROLL:
            drain_kernel.roll(self._segment.array, self._segment.base_offset, self._shared)

    def _refuse(self, opened: ring.Ring, number: int, because: int) -> None:
        drain_kernel.refuse(drain_kernel.Source(opened.data, opened.words, number), because, self._shared)

    def _open_segment(self, end: int) -> int:
        """Map the segment that holds `end`, once the allocator has made it; 0, or the errno of why it cannot."""
        counters = self._counters
        base = self._files.base_of(end)
        waiting.publish(counters.segment_request_offset, end)
        allocated, waited_ms = counters.allocated_offset.read(), 0
        while allocated < base + self._files.segment_bytes:
            failed = counters.allocation_errno.read()
            if failed:
                return failed
            if waited_ms >= ALLOCATION_DEADLINE_MS:
                return errno.ETIMEDOUT
            allocated = waiting.await_change(counters.allocated_offset, allocated, 50)
            waited_ms += 50
        retired, self._target = self._segment, None
        self._segment, populated = self._ahead.take(base) or (self._ahead.open(base), end)
        self._pages.begin(self._segment, populated)
        self._ahead.begun(base, retired)
        written_file.note(counters, self._segment)
        self._target = drain_kernel.Target(self._segment.array, base, self._scratch, self._record_bytes_max)
        return 0


def open_role(config: BrokerConfig, counters: BrokerCounters, directory: Path) -> Writer:
    """The writer of a master; `directory` is the region directory."""
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    ahead = SegmentAhead(counters, files, POPULATE_BYTES, sync_flush=sync_flush)
    return Writer(config, counters, directory, files=files, ahead=ahead, pages=PagesAhead(counters))
