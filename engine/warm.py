"""Compile and load every kernel before the first message: once in the supervisor, for all its forked children.

A miniature store is made in a temporary directory and one message goes all the way through, by hand. `slipstream warm`
fills the folder of compiled kernels by it, those of verification and recovery included; the set-up does that once.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.board.cursors import Board, BrokerState
from engine.board.latencies import Clock, create_latencies
from engine.board.queue_ends import QueueEnds, await_more
from engine.board.queue_table import QueueTable
from engine.board.topic_table import TopicTable
from engine.front.connections.bridge import Bridge
from engine.front.connections.log_body_kernel import send_range
from engine.front.connections.near_wait import await_reached
from engine.front.pulls import usual_pulls
from engine.front.pulls.log_view import LogView
from engine.front.sends import usual_sends
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
from engine.writer import drain_kernel, writer
from engine.writer.journal import create_journal
from ipc import ring, waiting
from ipc.clock import monotonic_ms
from ipc.compiled import atomics
from ipc.compiled.kernel_folders import note_as_installed
from store.files.pointer import COUNTERS_FILE
from store.files.segment_files import SegmentFiles
from store.index import index_kernel
from store.index.index_file import Geometry
from store.message import rows_kernel
from store.message.record import BLANK_BYTES, encode
from store.message.topics import SELF_TEST_TOPIC
from store.names import COMMIT_LOG
from store.put.draft import Draft
from store.put.policy import POLICIES, Facts
from store.reading.units_kernel import batch_unit_of
from store.recovery.log_end import new_rows, store_timestamp_ms
from store.verify.verification import Verification

SEGMENT_BYTES, RING_BYTES = 1 << 20, 1 << 20
PRODUCERS = 2  # one puts; one asks, so that the writer does not stay with the first to wait for more


@contextmanager
def _miniature(config: BrokerConfig) -> Iterator[tuple[BrokerConfig, Board, Path]]:
    """A store of one message and its regions, on the file system of the regions."""
    root = Path(tempfile.mkdtemp(prefix="slipstream-warm-", dir=config.region_path))
    try:
        small = replace(
            config,
            store_path_root_dir=root / "store",
            store_path_commit_log=root / "store" / COMMIT_LOG,
            mapped_file_size_commit_log_bytes=SEGMENT_BYTES,
            ring_bytes=RING_BYTES,
            max_message_bytes=SEGMENT_BYTES // 4,
            max_hash_slot_num=10,
            max_index_num=100,
            producers_max=PRODUCERS,
        )
        small.store_path_commit_log.mkdir(parents=True)
        board = Board.create(root / COUNTERS_FILE)
        QueueTable.create(root, {}).close()
        TopicTable.create(root)
        QueueEnds.create(root, {}).close()
        create_latencies(root, small.rings)
        create_journal(root, small.rings, 0)
        ring.create_rings(root, small.rings).close()
        yield small, board, root
    finally:
        shutil.rmtree(root)


def warm_up(config: BrokerConfig, *, verification: bool = False) -> None:
    """Put a message and a batch into a ring, and have them appended and dispatched; and what is there verified, and
    looked at as recovery does."""
    with _miniature(config) as (small, board, root):
        controls = ring.attach_rings(root)
        claimed, asking = (ring.ClaimedRing(root, controls, RING_BYTES) for _ in range(2))
        making = allocator.open_role(small, board)
        making.do_work(monotonic_ms())
        slot = QueueTable.attach(root, writable=True).slot_of(SELF_TEST_TOPIC.encode(), 0)
        assert slot == 0
        writing = writer.open_role(small, board, root)
        _put(board, claimed, Clock(root, 0))
        atomics.publish(asking.control, int(ring.ControlWord.ASKED), 1)
        while writing.do_work(monotonic_ms()):
            pass
        writing.idle(0)
        _warm_pipeline(small, board, writing)
        _warm_writer()
        _warm_delivery(claimed.outlet(board.counters.words, board.writer_bell.index))
        _warm_ends(board, root)
        dispatching = dispatcher.open_role(small, board, root)
        dispatching.do_work(monotonic_ms())
        dispatching.idle(0)
        end = board.max_physical_offset.read()
        assert board.reput_from_offset.read() == end > 0, "nothing was dispatched, so nothing of it is compiled"
        for role in (dispatching, writing, making):
            role.close()
        _warm_pulls(small, board)
        for producer in (claimed, asking):
            producer.close()
        _warm_index()
        store_timestamp_ms(SegmentFiles(small.store_path_commit_log, SEGMENT_BYTES), 0)  # the flusher's checkpoint does
        _warm_replication(board)
        topics = TopicTable.attach(root)
        topics.totals()
        topics.close()
        waiting.await_change(board.ack_bell, 0, 0)
        waiting.publish(board.flushed_offset, 1)
        waiting.raise_to(board.confirm_offset, 1)
        if verification:
            _warm_recovery(small)
            list(Verification(small.store_path_root_dir).findings())  # what it says of a store so odd is of no interest
    note_as_installed()


def _warm_pipeline(config: BrokerConfig, board: Board, writing: writer.Writer) -> None:
    """A put of somebody who never waits."""
    pipeline = Pipeline(config, board, puts_max=1, bytes_max=SEGMENT_BYTES, patience_ms=0)
    record = encode(topic=SELF_TEST_TOPIC, body=b"body", store_host=LOCALHOST)
    draft = Draft(topic=SELF_TEST_TOPIC, queue_id=0, pieces=(record,), record_bytes_max=SEGMENT_BYTES)
    pipeline.put(draft, waits=True, token=None)
    for _ in range(2):  # the queue's slot; the record
        while writing.do_work(monotonic_ms()):
            pass
        pipeline.collect()
    pipeline_kernel.tell_first(pipeline.table, pipeline.state, pipeline.done, 0, Clock(board.directory, 0).words)
    pipeline_kernel.give_up(pipeline.table, pipeline.state, pipeline.done, 0, 0, 0)
    Bridge(board.counters.words, board.max_physical_offset.index).close()
    await_reached(board.counters.words, board.max_physical_offset.index, 0, 0, 0)
    usual_sends.warm_up(pipeline, board, Facts(policy=POLICIES[config.compat], store_host=LOCALHOST))
    pipeline.close()


def _warm_writer() -> None:
    """Compile what the writer does at a segment's end, and where it must refuse."""
    none, places = np.zeros(ring.WORDS_PER_RING, np.int64), np.zeros(len(drain_kernel.Place), np.int64)
    journal = np.zeros(drain_kernel.journal_bytes(1) // 8, np.int64)
    shared = drain_kernel.Shared(journal, none, none, none, places)
    source = drain_kernel.Source(np.zeros(1, np.uint8), np.zeros(ring.DESCRIPTOR_WORDS, np.int64), 0)
    drain_kernel.refuse(source, 0, shared)
    drain_kernel.roll(np.zeros(BLANK_BYTES, np.uint8), 0, shared)


def _warm_pulls(config: BrokerConfig, board: Board) -> None:
    """Compile what a front asks of a queue, of either kind."""
    view, queue = LogView(config, board, corrects=True), (SELF_TEST_TOPIC, 0)
    caught, ranges = view.catch(queue, 0, 1, EVERYTHING)
    assert caught.messages == len(ranges) == 1, "nothing can be pulled, so nothing of it is compiled"
    view.any_matched(queue, filter_of("a", None) or EVERYTHING, 0, 1)
    usual_pulls.warm_up(view, board)
    batch_unit_of(np.zeros(1, np.uint8), 0, 1, 0)
    reading, writing = socket.socketpair()
    with reading, writing:
        send_range(writing.fileno(), b"head", ranges[0].file.fd, ranges[0].position, ranges[0].length)
    view.close()


def _warm_delivery(outlet: ring.Outlet) -> None:
    """Compile what the delay role runs, on no message."""
    record, words, rows = np.frombuffer(bytes(64), np.uint8), np.zeros(64, np.int64), np.zeros(COLUMNS, np.int64)
    deliver_kernel.examine(record, rows, 1, 16, False, 64)
    deliver_kernel.deliver(outlet, record, rows, 0, 0, 1, words, words, words, 0)


def _warm_ends(board: Board, regions: Path) -> None:
    """Compile what the delay role and the dispatcher sleep by."""
    ends, none, reput = QueueEnds.attach(regions), np.zeros(0, np.int64), board.reput_from_offset
    await_more(reput.words, int(reput.index), 0, ends.words, 0, none, none, 0)
    pace = np.zeros(len(dispatch_kernel.Pace), np.int64)
    dispatch_kernel.await_growth(reput.words, int(board.max_physical_offset.index), int(reput.index), -1, pace, 0)
    ends.close()


def _warm_index() -> None:
    """Compile what the index runs after a dispatcher that was killed, or for a key that is not ASCII."""
    geometry = Geometry(10, 100)
    index = np.zeros(geometry.file_bytes, np.uint8)
    index_kernel.add_key(np.zeros((1, len(index_kernel.Key)), np.int64), 0, 1, geometry.slots)
    index_kernel.chain_again(index, geometry.slots, 2)
    index_kernel.unchain(index, geometry.slots, 1, 2)
    index_kernel.clear(index, geometry.slots, 1, 2)


def _warm_replication(board: Board) -> None:
    """Run one turn of each loop between a master and a slave that say nothing."""
    now_ms, limits = monotonic_ms(), ConnectionLimits(SEGMENT_BYTES, SEGMENT_BYTES, 1000, 1000, 1000)
    connection = HaConnection(limits, FlowMonitor(now_ms), now_ms)
    client = HaClient(ClientLimits(SEGMENT_BYTES, 1000, 1000, 1000), 0)
    master, slave = socket.socketpair()
    with master, slave:
        line = sender_kernel.line_of(board, 0, connection)
        sender_kernel.transfer(line, limits, master.fileno(), now_ms, 1, 0)
        following = receiver_kernel.line_of(board, client)
        receiver_kernel.receive(following, receiver_kernel.NO_SEGMENT, client.limits, slave.fileno(), now_ms, 1, 0)
        slave.shutdown(socket.SHUT_WR)
        sender_kernel.hear(line, master.fileno(), np.zeros(1, np.uint8), False, 0)
    words, places = board.counters.words, np.array([board.max_physical_offset.index])  # no slave's
    bell, confirm = board.ack_bell.index, board.confirm_offset.index
    group_transfer.follow_single_slave(words, places, bell, confirm, 0, 0, 0)


def _warm_recovery(config: BrokerConfig) -> None:
    """Compile what the recovery of a log with damage runs."""
    with SegmentFiles(config.store_path_commit_log, SEGMENT_BYTES).open(0) as segment:
        rows = new_rows(1)
        rows_kernel.find_record(segment.array, 0, 1, 0, rows)
        rows_kernel.first_bad_crc(segment.array, rows, 1)


def _put(board: Board, claimed: ring.ClaimedRing, clock: Clock) -> None:
    outlet = claimed.outlet(board.counters.words, board.writer_bell.index)
    waiting.publish(board.broker_state, BrokerState.RUNNING)
    run_once(outlet, board, clock.words)
    record = encode(topic=SELF_TEST_TOPIC, body=b"body", store_host=LOCALHOST)
    draft = Draft(topic=SELF_TEST_TOPIC, queue_id=0, pieces=(record * 2,), records=2, record_bytes_max=SEGMENT_BYTES)
    encode_kernel.put_payload(*outlet, as_bytes(payload_of(draft, lambda _queue: 0)), COMPOSED)
    run_batch_once(outlet)
