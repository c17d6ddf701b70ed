"""What a stream sees of a store: at rest and growing, beside a broker, after a kill."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from engine.producer import Producer
from ipc import waiting
from ipc.counters import Counters
from spark_bridge.options.read import parse_options
from spark_bridge.plan import inventory
from spark_bridge.split.splits import Selection
from spark_bridge.stream import tail as stream_tail
from spark_bridge.stream.offsets import Bounds, QueueKey
from spark_bridge.stream.stores import StoreNotReady, StreamStores
from spark_bridge.stream.tail import QueueTail, StoreTail
from store.errors import BitRot
from store.files.pointer import COUNTERS_FILE
from store.files.segment import file_name
from store.message.record import MAGIC_AT
from store.queues.consume_queue import ConsumeQueue
from store.reading import extent
from store.upkeep import leases
from tests.spark_bridge.stores import SmallStore, np_entry
from tools.common.local_broker import LocalBroker

ENTRIES_PER_FILE = 8
SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16}
TIMEOUT_MS = 30_000


def stores_of(path: Path) -> StreamStores:
    return StreamStores(parse_options({"path": str(path)}))


def ends(tail: StoreTail) -> dict[tuple[str, int], tuple[int, int]]:
    view = tail.look()
    assert view is not None
    return {key: (queue.first, queue.end) for key, queue in view.queues.items()}


def test_a_queue_is_followed_over_its_files_up_to_the_limit(tmp_path: Path) -> None:
    queue = ConsumeQueue.open(tmp_path / "0", 20 * ENTRIES_PER_FILE)
    queue.append(0, np_entry(0, 100))
    tail = QueueTail(tmp_path / "0")
    tail.find(0, 100)
    assert (tail.first, tail.end) == (0, 1)
    for number in range(1, 3 * ENTRIES_PER_FILE):
        queue.append(number, np_entry(100 * number, 100))
        tail.follow(100 * number)
        assert tail.end == number
    for number in (3 * ENTRIES_PER_FILE, 5 * ENTRIES_PER_FILE):
        for added in range(tail.end, number):
            queue.append(added, np_entry(100 * added, 100))
        tail.follow(1 << 40)
        assert tail.end == number
    assert tail.physical_offset(2) == 200
    assert tail.mean_bytes(0, 20) == 100
    tail.find_first(950)
    assert tail.first == 10


def test_a_store_at_rest_that_grew_shows_new_messages_queues_and_topics(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, 4096)
    store.put("orders")
    store.dispatch()
    tail = StoreTail(str(tmp_path))
    assert ends(tail) == {("orders", 0): (0, 1)}
    for topic, queue_id in (("orders", 0), ("orders", 3), ("payments", 1), ("%LMQ%a", 0)):
        store.put(topic, queue_id=queue_id)
    store.dispatch()
    found = {("orders", 0): (0, 2), ("orders", 3): (0, 1), ("payments", 1): (0, 1)}
    assert ends(tail) == found
    assert ends(tail) == found
    only = StoreTail(str(tmp_path), Selection(queues=frozenset({("orders", 3)})))
    assert ends(only) == {("orders", 3): (0, 1)}


def test_damage_at_rest_ends_a_stream_unless_it_tells_it_by_rows(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, 4096)
    for _ in range(9):
        store.put("orders")
    store.dispatch()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[store.offsets[4] + MAGIC_AT] ^= 1
    segment.write_bytes(content)
    with pytest.raises(BitRot):
        StreamStores(parse_options({"path": str(tmp_path)})).look()
    found = StreamStores(parse_options({"path": str(tmp_path), "mode": "permissive"})).look()
    assert found == {QueueKey("", "orders", 0): (0, 9)}


def test_a_topic_that_was_deleted_and_made_again_is_another_queue(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, 4096)
    for _ in range(5):
        store.put("orders")
    store.dispatch()
    tail = StoreTail(str(tmp_path))
    assert ends(tail) == {("orders", 0): (0, 5)}
    shutil.rmtree(tmp_path / "consumequeue" / "orders")
    store.records.clear()
    store.put("orders")
    store.dispatch()
    assert ends(tail) == {("orders", 0): (0, 1)}


def test_batch_queues_are_left_out_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SmallStore(tmp_path, 4096)
    store.put("orders")
    store.put("batches")
    store.dispatch()
    (tmp_path / "batchconsumequeue" / "batches").mkdir(parents=True)
    assert ends(StoreTail(str(tmp_path))) == {("orders", 0): (0, 1)}
    assert "topic batches has batch queues" in caplog.text


def test_a_killed_store_says_nothing_until_a_broker_recovered_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path, 4096)
    store.put("orders")
    store.dispatch()
    (tmp_path / "abort").touch()
    stores = stores_of(tmp_path)
    assert stores.look() == {}
    assert stores.judged == set()
    assert "waiting for a broker to recover it" in caplog.text
    with pytest.raises(StoreNotReady, match="start its broker"):
        stores.await_all(0.0)
    (tmp_path / "abort").unlink()
    assert stores.await_all(0.0) == {QueueKey("", "orders", 0): (0, 1)}
    assert stores.judged == {""}


def await_dispatched(broker: LocalBroker) -> None:
    """Until every message is in its queue."""
    running = extent.require_running(broker.store)
    counters = Counters.attach(running.region_directory / COUNTERS_FILE, writable=True)
    reput, end = counters.cursor("reput_from_offset"), counters.cursor("max_physical_offset")
    while (there := reput.read()) < end.read():
        waiting.await_change(reput, there, TIMEOUT_MS)
    counters.close()


def test_beside_a_broker_all_that_was_dispatched_is_there_and_a_lease_holds_what_is_unread(tmp_path: Path) -> None:
    key = QueueKey("", "orders", 0)
    with LocalBroker(tmp_path / "master", brokerRole="ASYNC_MASTER", defaultTopicQueueNums=1, **SIZES) as master:
        stores = stores_of(master.store)
        with Producer(master.store, timeout=60.0) as producer:
            for count in (1, 40, 41):
                result = [producer.send("orders", b"x" * 100) for _ in range(count)][-1]
                await_dispatched(master)
                assert stores.look()[key] == (0, result.queue_offset + 1)
            assert stores.judged == {""}
            stores.hold({key: result.queue_offset})
            assert leases.held_from(master.store, 0) == result.physical_offset
            again = producer.send("orders", b"x" * 100)
        stores.close()
        assert leases.held_from(master.store, 0) is None
    stores = stores_of(master.store)
    bounds: Bounds = stores.look()
    assert bounds[key] == (0, again.queue_offset + 1)
    stores.hold({})
    assert leases.held_from(master.store, 0) is None, "nobody deletes where nobody serves"
    assert (master.store / "commitlog" / file_name(0)).exists()


def test_a_stream_that_may_not_hold_the_log_says_what_to_do(tmp_path: Path, monkeypatch, caplog) -> None:
    made = SmallStore(tmp_path / "store")
    made.put("t")
    made.dispatch()
    stores = stores_of(made.root)
    stores.look()
    (tail,) = stores.tails.values()
    monkeypatch.setattr(type(tail), "is_served", True)
    folder = str(made.root / "slipstream.leases")

    def refused(*_given: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)

    monkeypatch.setattr(leases, "acquire", refused)
    stores.hold({})
    assert f"read without a lease (Permission denied: {folder})" in caplog.text
    assert "let this user write to the folder of leases (storeGroup in the broker's file" in caplog.text


def test_a_long_log_at_rest_is_not_listed_for_each_question_of_one_batch(tmp_path, monkeypatch):
    store = SmallStore(tmp_path, 4096)
    for number in range(60):
        store.put("t", bytes(number), 0)
    store.dispatch()
    monkeypatch.setattr(stream_tail, "MANY_SEGMENTS", 0)
    monkeypatch.setattr(stream_tail, "REST_S", 3600.0)
    looked: list[object] = []
    find = inventory.find_extent
    monkeypatch.setattr(inventory, "find_extent", lambda *a, **o: looked.append(a) or find(*a, **o))
    tail = StoreTail(str(tmp_path))
    views = [tail.look() for _ in range(3)]
    assert len(looked) == 1
    assert {view.queues["t", 0].end for view in views} == {60}
    store.put("t", b"more", 0)
    store.dispatch()
    tail._rested = 0.0, tail._rested[1]  # later
    assert tail.look().queues["t", 0].end == 61


def test_the_length_of_records_is_the_same_whether_it_was_noted_or_read(tmp_path):
    store = SmallStore(tmp_path, 1 << 16)
    for number in range(150):
        store.put("t", bytes(number), 0)
    store.dispatch()
    view = StoreTail(str(tmp_path)).look()
    noted = view.queues["t", 0]
    sizes = [int(size) for size in noted.block(0, 150)["size"]]
    mean = noted.mean_bytes(0, 150)
    assert noted._sampled[1:] == (150, mean)
    assert sizes[50] < mean < sizes[149]
    assert noted.mean_bytes(149, 150) == sizes[149]
    noted._sampled = 0, 0, 0
    assert noted.mean_bytes(0, 150) == mean
