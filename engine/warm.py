"""Compile and load every kernel before the first message: once in the supervisor, for all its forked children.

A miniature store is made in a temporary directory and one message goes all the way through, by hand. `slipstream warm`
fills the folder of compiled kernels by it, those of verification and recovery included; the set-up does that once.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from engine.clients.local.sleep_kernel import await_entries, has_more
from engine.clients.measure_kernel import Look, Part, measure_frame, measure_units
from engine.front.connections.bridge import Bridge
from engine.front.connections.log_body_kernel import send_range
from engine.front.connections.near_wait import await_reached
from engine.front.pulls import compiled_pulls
from engine.front.pulls.log_view import LogView
from engine.front.sends import compiled_sends
from engine.keeping import allocator, dispatch_kernel, dispatcher
from engine.producer import pipeline_kernel
from engine.producer.columns import as_bytes
from engine.producer.first_run import LOCALHOST, run_batch_once, run_once
from engine.producer.pipeline import Pipeline
from engine.protocol.ha.client import HaClient
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.pulling.subscription import EVERYTHING, filter_of
from engine.replication import group_transfer, receiver_kernel, sender_kernel
from engine.rings import encode_kernel
from engine.rings.payload import COMPOSED, payload_of
from engine.services import deliver_kernel
from engine.services.deliver_kernel import COLUMNS
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.latencies import Clock, create_latencies
from engine.shared_memory.queue_ends import QueueEnds, await_more
from engine.shared_memory.queue_table import QueueTable
from engine.shared_memory.topic_table import TopicTable
from engine.writer import drain_kernel, writer
from engine.writer.journal import create_journal
from ipc import ring, waiting
from ipc.arrays import Bytes
from ipc.clock import monotonic_ms
from ipc.compiled import atomics
from ipc.compiled.kernel_folders import note_as_installed
from ipc.compiled.kernels import tell_progress_to
from store.files.pointer import COUNTERS_FILE
from store.files.segment_files import SegmentFiles
from store.index import index_kernel
from store.index.index_file import Geometry
from store.message import property_kernel, rows_kernel, span_kernel, walk_kernel
from store.message.record import BLANK_BYTES, encode
from store.message.topics import SELF_TEST_TOPIC
from store.message.unit import Unit
from store.message.walk_kernel import ALL_TAGS
from store.names import COMMIT_LOG
from store.put.draft import Draft
from store.put.policy import POLICIES, Facts
from store.reading.units_kernel import batch_unit_of
from store.recovery.log_end import new_rows, store_timestamp_ms
from store.verify.verification import Verification

SEGMENT_BYTES, RING_BYTES = 1 << 20, 1 << 20
PRODUCERS = 2
Result = TypeVar("Result")


class _Miniature:
    """A store of one message and its regions, on the file system of the regions; what is asked for is made once."""

    def __init__(self, config: BrokerConfig, root: Path) -> None:
        self.root = root
        self.config = config.replaced(
            store_path_root_dir=root / "store",
            store_path_commit_log=root / "store" / COMMIT_LOG,
            mapped_file_size_commit_log_bytes=SEGMENT_BYTES,
            ring_bytes=RING_BYTES,
            max_message_bytes=SEGMENT_BYTES // 4,
            max_hash_slot_num=10,
            max_index_num=100,
            producers_max=PRODUCERS,
        )
        self.config.store_path_commit_log.mkdir(parents=True)
        self.counters = BrokerCounters.create(root / COUNTERS_FILE)
        QueueTable.create(root, {}).close()
        TopicTable.create(root)
        QueueEnds.create(root, {}).close()
        rings = self.config.rings
        create_latencies(root, rings)
        create_journal(root, rings, 0)
        ring.create_rings(root, rings).close()
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    @cached_property
    def claimed(self) -> ring.ClaimedRing:
        """The ring of who puts; another's asks, so that the writer does not stay with the first to wait for more."""
        controls = ring.attach_rings(self.root)
        claimed, asking = (ring.ClaimedRing(self.root, controls, RING_BYTES) for _ in range(PRODUCERS))
        for producer in (claimed, asking):
            self._closing.callback(producer.close)
        atomics.publish(asking.control, int(ring.ControlWord.ASKED), 1)
        return claimed

    @cached_property
    def outlet(self) -> ring.Outlet:
        """Where the ring's producer puts."""
        return self.claimed.outlet(self.counters.region.words, self.counters.writer_bell.index)

    @cached_property
    def writing(self) -> writer.Writer:
        """The writer, which has appended a message and a batch."""
        making = allocator.open_role(self.config, self.counters)
        self._closing.callback(making.close)
        making.do_work(monotonic_ms())
        slot = QueueTable.attach(self.root, writable=True).slot_of(SELF_TEST_TOPIC.encode(), 0)
        assert slot == 0
        writing = writer.open_role(self.config, self.counters, self.root)
        self._closing.callback(writing.close)
        _put(self.counters, self.outlet, Clock(self.root, 0))
        while writing.do_work(monotonic_ms()):
            pass
        writing.idle(0)
        return writing

    @cached_property
    def dispatched(self) -> int:
        """The end of the log, to which all is dispatched."""
        assert self.writing
        dispatching = dispatcher.open_role(self.config, self.counters, self.root)
        self._closing.callback(dispatching.close)
        dispatching.do_work(monotonic_ms())
        dispatching.idle(0)
        end = self.counters.max_physical_offset.read()
        assert self.counters.reput_from_offset.read() == end > 0, "nothing was dispatched, so nothing of it is compiled"
        return end


def warm_up(config: BrokerConfig, *, verification: bool = False, backwards: bool = False) -> None:
    """Put a message and a batch into a ring, have them appended, dispatched and pulled; run what else roles run.

    With `verification` they are also verified, and looked at as recovery and readers do. Of two processes that share a
    folder of kernels one goes `backwards`: what one has compiled the other loads.
    """
    steps = [step for step in STEPS if verification or step not in OF_READERS]
    with (
        tempfile.TemporaryDirectory(prefix="slipstream-warm-", dir=config.region_path) as root,
        _Miniature(config, Path(root)) as small,
    ):
        for step in reversed(steps) if backwards else steps:
            step(small)
    note_as_installed()


def by_two(work: Callable[..., Result]) -> tuple[Result, Result]:
    """Do it in this process, and in another with `backwards=True`; of more processes some would only wait for others.

    Only this one tells of its progress. The result of the other has to be one that pickle takes.
    """
    from concurrent.futures import ProcessPoolExecutor  # not what a broker does at its start
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("fork"), tell_progress_to, (lambda _line: None,)) as beside:
        other = beside.submit(work, backwards=True)
        return work(), other.result()


def _warm_pipeline(small: _Miniature) -> None:
    """A put of somebody who never waits."""
    config, counters, writing = small.config, small.counters, small.writing
    pipeline = Pipeline(config, counters, puts_max=1, bytes_max=SEGMENT_BYTES, patience_ms=0)
    record = encode(topic=SELF_TEST_TOPIC, body=b"body", store_host=LOCALHOST)
    draft = Draft(topic=SELF_TEST_TOPIC, queue_id=0, pieces=(record,), record_bytes_max=SEGMENT_BYTES)
    pipeline.put(draft, waits=True, token=None)
    for _ in range(2):  # the queue's slot; the record
        while writing.do_work(monotonic_ms()):
            pass
        pipeline.collect()
    pipeline_kernel.tell_first(pipeline.table, pipeline.state, pipeline.done, 0, Clock(counters.directory, 0).words)
    pipeline_kernel.give_up(pipeline.table, pipeline.state, pipeline.done, 0, 0, 0)
    Bridge(counters.region.words, counters.max_physical_offset.index).close()
    await_reached(counters.region.words, counters.max_physical_offset.index, 0, 0, 0)
    compiled_sends.warm_up(pipeline, counters, Facts(policy=POLICIES[config.compat], store_host=LOCALHOST))
    pipeline.close()


def _warm_writer(_small: _Miniature) -> None:
    """Compile what the writer does at a segment's end, and where it must refuse."""
    none, places = np.zeros(ring.WORDS_PER_RING, np.int64), np.zeros(len(drain_kernel.CommitCounter), np.int64)
    journal = np.zeros(drain_kernel.journal_bytes(1) // 8, np.int64)
    shared = drain_kernel.Shared(journal, none, none, none, places)
    source = drain_kernel.Source(np.zeros(1, np.uint8), np.zeros(ring.DESCRIPTOR_WORDS, np.int64), 0)
    drain_kernel.refuse(source, 0, shared)
    drain_kernel.roll(np.zeros(BLANK_BYTES, np.uint8), 0, shared)


def _warm_pulls(small: _Miniature) -> None:
    """Compile what a front asks of a queue, of either kind."""
    assert small.dispatched
    view, queue = LogView(small.config, small.counters, corrects=True), (SELF_TEST_TOPIC, 0)
    caught, ranges = view.catch(queue, 0, 1, EVERYTHING)
    assert caught.messages == len(ranges) == 1, "nothing can be pulled, so nothing of it is compiled"
    view.any_matched(queue, filter_of("a", None) or EVERYTHING, 0, 1)
    compiled_pulls.warm_up(view, small.counters)
    batch_unit_of(np.zeros(1, np.uint8), 0, 1, 0)
    reading, writing = socket.socketpair()
    with reading, writing:
        send_range(writing.fileno(), b"head", ranges[0].file.fd, ranges[0].position, ranges[0].length)
    view.close()


def _warm_local_reads(small: _Miniature) -> None:
    """Compile what a consumer on the broker's host runs."""
    assert small.dispatched
    units, parts = (np.zeros((1, len(columns)), np.int64) for columns in (Unit, Part))
    look, none, reput = np.zeros(len(Look), np.int64), np.zeros(0, np.int64), small.counters.reput_from_offset
    ends = QueueEnds.attach(small.root)
    with SegmentFiles(small.config.store_path_commit_log, SEGMENT_BYTES).open(0) as segment:
        units[0, Unit.SIZE] = look[Look.LOG_ENDS] = small.dispatched
        look[Look.COUNT] = 1
        measure_units(segment.array, units, none, ALL_TAGS, look, parts)
        measure_frame(segment.array[:0], ALL_TAGS, look, parts)
    watch = np.zeros(2, np.int64)
    await_entries(reput.words, int(reput.index), ends.words, np.zeros(1, np.int64), watch, 0)
    has_more(ends.words, watch)
    atomics.wake(reput.words, int(reput.index))
    ends.close()


def _warm_delivery(small: _Miniature) -> None:
    """Compile what the delay role runs, on no message."""
    record, words, rows = np.frombuffer(bytes(64), np.uint8), np.zeros(64, np.int64), np.zeros(COLUMNS, np.int64)
    deliver_kernel.examine(record, rows, 1, 16, False, 64)
    noted = deliver_kernel.Noted(words, words, words)
    deliver_kernel.deliver(small.outlet, record, rows, 0, 0, 1, noted, 0)


def _warm_ends(small: _Miniature) -> None:
    """Compile what the delay role and the dispatcher sleep by."""
    ends, none, counters = QueueEnds.attach(small.root), np.zeros(0, np.int64), small.counters
    reput = counters.reput_from_offset
    await_more(reput.words, int(reput.index), 0, ends.words, 0, none, none, 0)
    pace = np.zeros(len(dispatch_kernel.Pace), np.int64)
    dispatch_kernel.await_growth(reput.words, int(counters.max_physical_offset.index), int(reput.index), -1, pace, 0)
    ends.close()


def _warm_index(_small: _Miniature) -> None:
    """Compile what the index runs after a dispatcher that was killed, or for a key that is not ASCII."""
    geometry = Geometry(10, 100)
    index = np.zeros(geometry.file_bytes, np.uint8)
    index_kernel.add_key(np.zeros((1, len(index_kernel.Key)), np.int64), 0, 1, geometry.slots)
    index_kernel.chain_again(index, geometry.slots, 2)
    index_kernel.unchain(index, geometry.slots, 1, 2)
    index_kernel.clear(index, geometry.slots, 1, 2)


def _warm_replication(small: _Miniature) -> None:
    run_replication_once(small.counters)


def run_replication_once(counters: BrokerCounters) -> None:
    """Run one turn of each loop between a master and a slave that say nothing."""
    now_ms, limits = monotonic_ms(), ConnectionLimits(SEGMENT_BYTES, SEGMENT_BYTES, 1000, 1000, 1000)
    connection = HaConnection(limits, FlowMonitor(now_ms), now_ms)
    client = HaClient(ClientLimits(SEGMENT_BYTES, 1000, 1000, 1000), 0)
    master, slave = socket.socketpair()
    with master, slave:
        line = sender_kernel.line_of(counters, 0, connection)
        sender_kernel.transfer(line, limits, master.fileno(), now_ms, 1, 0)
        following = receiver_kernel.line_of(counters, client)
        receiver_kernel.receive(following, receiver_kernel.NO_SEGMENT, client.limits, slave.fileno(), now_ms, 1, 0)
        slave.shutdown(socket.SHUT_WR)
        sender_kernel.hear(line, master.fileno(), np.zeros(1, np.uint8), False, 0, 0)
    words, places = counters.region.words, np.array([counters.max_physical_offset.index])  # no slave's
    bell, confirm = counters.ack_bell.index, counters.confirm_offset.index
    group_transfer.follow_single_slave(words, places, bell, confirm, 0, 0, 0)


def _warm_waits(small: _Miniature) -> None:
    """Compile what counters are waited for and published by, and what the flusher and `status` read."""
    # the flusher's checkpoint looks at the last record
    store_timestamp_ms(SegmentFiles(small.config.store_path_commit_log, SEGMENT_BYTES), 0)
    topics = TopicTable.attach(small.root)
    topics.totals()
    topics.close()
    waiting.await_change(small.counters.ack_bell, 0, 0)
    waiting.publish(small.counters.flushed_offset, 1)
    waiting.raise_to(small.counters.confirm_offset, 1)


def _warm_recovery(small: _Miniature) -> None:
    """Compile what the recovery of a log with damage runs."""
    assert small.dispatched
    with SegmentFiles(small.config.store_path_commit_log, SEGMENT_BYTES).open(0) as segment:
        rows = new_rows(1)
        rows_kernel.find_record(segment.array, 0, 1, 0, rows)
        rows_kernel.first_bad_crc(segment.array, rows, 1)


def _warm_walk(small: _Miniature) -> None:
    """Compile what readers find records by: a task of Spark runs it."""
    end, starts = small.dispatched, np.zeros(1, np.int64)
    heads, parts = (np.zeros((len(columns), 1), np.int64) for columns in (walk_kernel.Head, walk_kernel.Part))
    wanted = walk_kernel.EVERY_RECORD
    with SegmentFiles(small.config.store_path_commit_log, SEGMENT_BYTES).open(0) as segment:
        array = segment.array[:end]
        array.flags.writeable = False
        walk_kernel.walk(array, 0, walk_kernel.Stretch(0, end, SEGMENT_BYTES, 0), wanted, heads, 0)
        walk_kernel.collect(array, starts, 0, 0, wanted, heads, 0)
        walk_kernel.fill_heads(array, starts, heads)
        walk_kernel.fill_parts(array, starts, heads[walk_kernel.Head.SIZE], parts)
        walk_kernel.enter_topics(walk_kernel.NO_TOPICS, 0, 0)
        named = walk_kernel.Named(starts, np.zeros(1, np.int32), starts, array[:1], 0)
        walk_kernel.collect_named(array, named, 0, heads, parts, np.zeros(1, np.uint8))
        _warm_columns(array)


def _warm_columns(array: Bytes) -> None:
    """Compile what copies parts of records into columns."""
    starts, name = np.zeros(1, np.int64), np.frombuffer(b"name", np.uint8)
    values, pairs = (np.zeros((len(columns), 1), np.int64) for columns in (property_kernel.Value, property_kernel.Pair))
    ends, out = np.zeros(2, np.int32), np.zeros(2, np.uint8)
    property_kernel.find_values(array, starts, starts, name, values)
    property_kernel.find_pairs(array, starts, starts, pairs, ends, np.zeros(property_kernel.TABLE_WORDS, np.int64))
    span_kernel.copy_spans(array, starts, starts, ends, out)
    span_kernel.number_spans(array, starts, starts, ends, starts.copy(), np.zeros(2, np.int64))
    span_kernel.is_all_ascii(out)
    span_kernel.write_hexadecimals(array, starts, 1, out, 0, 2)


def _warm_verification(small: _Miniature) -> None:
    """Verify the store: what is said of one so odd is of no interest."""
    assert small.dispatched
    list(Verification(small.config.store_path_root_dir).findings())


def _put(counters: BrokerCounters, outlet: ring.Outlet, clock: Clock) -> None:
    waiting.publish(counters.broker_state, BrokerState.RUNNING)
    run_once(outlet, counters, clock.words)
    record = encode(topic=SELF_TEST_TOPIC, body=b"body", store_host=LOCALHOST)
    draft = Draft(topic=SELF_TEST_TOPIC, queue_id=0, pieces=(record * 2,), records=2, record_bytes_max=SEGMENT_BYTES)
    encode_kernel.put_payload(*outlet, as_bytes(payload_of(draft, lambda _queue: 0)), COMPOSED)
    run_batch_once(outlet)


# From the end on they need no log for a while, so two processes seldom wait for each other.
STEPS: tuple[Callable[[_Miniature], None], ...] = (
    _warm_pulls, _warm_verification, _warm_walk, _warm_recovery, _warm_pipeline, _warm_waits, _warm_writer, _warm_ends,
    _warm_index, _warm_delivery, _warm_replication, _warm_local_reads,
)  # fmt: skip
OF_READERS = (_warm_recovery, _warm_verification, _warm_walk)
