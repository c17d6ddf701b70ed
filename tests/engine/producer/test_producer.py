"""Producers against a real broker: what is answered, what is refused, and that nothing half-sent is ever visible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from engine.errors import BatchIncomplete, BrokerGone, MessageIllegal, MessagesRefused, SendTimeout, ServiceNotAvailable
from engine.producer.broker_puts import SendResult
from engine.producer.producer import Producer, PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters
from ipc import chance, ring, waiting
from ipc.errors import RingFull
from store.errors import NoBroker, PropertiesTooLarge
from store.files.directory import StoreDirectory
from store.reading import extent
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 4000, "ringSizeInBytes": 1 << 20}
LIMITED = {**SMALL, "maxMessageSize": 65536}
DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), brokerRole="ASYNC_MASTER", **LIMITED) as running:
        yield running


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def wait_until(cursor_label: str, counters: BrokerCounters, goal: int) -> None:
    cursor, end = counters.region.cursor(cursor_label), time.monotonic() + DEADLINE_SECONDS
    while (seen := cursor.read()) < goal:
        assert time.monotonic() < end, f"{cursor_label} stays at {seen}"
        waiting.await_change(cursor, seen, 100)


class Stopped:
    """A role's process held still (SIGSTOP) for the length of a block."""

    def __init__(self, counters: BrokerCounters, role: str) -> None:
        self._pid = counters.pids[role].read()

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self._pid}/stat")
        await_that(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stops")  # it may be running still

    def __exit__(self, *_exc: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


def test_one_message_comes_back_with_its_place_and_lies_there(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        result = producer.send(
            "one", "grüße", tags="a", keys=["k1", "k2"], properties={"colour": "blue"}, queue_id=3, flag=7
        )
    assert (result.status, result.queue_id, result.queue_offset) == (PutMessageStatus.PUT_OK, 3, 0)
    message = next(
        found
        for found in messages_of(broker.store, counters_of(broker.store).max_physical_offset.read())
        if found.physical_offset == result.physical_offset
    )
    assert bytes(message.body).decode() == "grüße"
    assert message.properties == {"KEYS": "k1 k2", "TAGS": "a", "colour": "blue", "CLUSTER": "DefaultCluster"}
    assert (message.topic, message.flag, message.message_id) == ("one", 7, result.message_id)
    assert message.store_host.port == broker.port


def test_a_producer_begins_at_any_queue(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def third(limit: int) -> int:
        asked.append(limit)
        return 2

    monkeypatch.setattr(chance, "below", third)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        queues = [producer.send("any-queue", b"x").queue_id for _ in range(3)]
        batch = producer.send_batch("any-batch", [b"x"]).queue_id
    count = asked[0]
    assert asked == [count, count] and count > 2
    assert (queues, batch) == ([2, 3 % count, 4 % count], 2)


def test_without_a_queue_id_messages_go_round_the_queues(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        places = [producer.send("round", b"x")[2:4] for _ in range(8)]
    assert places == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)]


BODIES = [b"", b"a", b"bc" * 50, b"\x00\x01\x02"]


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("list", BODIES, BODIES),
        ("tuple of str", ("a", "ü"), [b"a", "ü".encode()]),
        ("Arrow binary", pa.array(BODIES, pa.binary()), BODIES),
        ("Arrow slice", pa.array(BODIES, pa.large_binary())[1:3], BODIES[1:3]),
        ("Arrow chunks", pa.chunked_array([["a"], ["b", "c"]], pa.string()), [b"a", b"b", b"c"]),
        ("numpy S", np.array([b"abc", b"d"]), [b"abc", b"d"]),
        ("numpy rows", np.arange(6, dtype=np.uint8).reshape(2, 3), [b"\x00\x01\x02", b"\x03\x04\x05"]),
        ("numpy objects", np.array([b"x", b"yz"], dtype=object), [b"x", b"yz"]),
        ("nothing", [], []),
    ],
)
def test_a_batch_is_taken_from_any_column(
    broker: LocalBroker, kind: str, column: object, expected: list[bytes]
) -> None:
    topic = "column-" + kind.replace(" ", "-")
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        result = producer.send_batch(topic, column, tags="t", queue_id=1)
    assert (result.status, result.count) == (PutMessageStatus.PUT_OK, len(expected))
    assert list(result.queue_offsets) == list(range(len(expected)))
    end = counters_of(broker.store).max_physical_offset.read()
    found = [message for message in messages_of(broker.store, end) if message.topic == topic]
    assert [bytes(message.body) for message in found] == expected
    assert [message.physical_offset for message in found] == list(result.physical_offsets)


def test_a_batch_may_have_keys_and_properties_for_each_message(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send_batch(
            "keyed", [b"a", b"b"], tags="all", keys=["k1", "k2"], properties={"n": ["1", "2"], "same": "yes"}
        )
    end = counters_of(broker.store).max_physical_offset.read()
    found = [message.properties for message in messages_of(broker.store, end) if message.topic == "keyed"]
    same = {"TAGS": "all", "same": "yes", "CLUSTER": "DefaultCluster"}
    assert found == [{**same, "KEYS": f"k{number}", "n": str(number)} for number in (1, 2)]


def test_a_batch_much_larger_than_the_ring_arrives_whole(broker: LocalBroker) -> None:
    bodies = np.random.default_rng(3).integers(0, 256, (20_000, 300), dtype=np.uint8)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        result = producer.send_batch("large", bodies, queue_id=0, timeout=DEADLINE_SECONDS)
    end = counters_of(broker.store).max_physical_offset.read()
    found = [message for message in messages_of(broker.store, end) if message.topic == "large"]
    assert b"".join(bytes(message.body) for message in found) == bodies.tobytes()
    assert [message.physical_offset for message in found] == list(result.physical_offsets)
    assert list(result.queue_offsets) == list(range(20_000))


@pytest.mark.parametrize(
    ("why", "arguments", "message"),
    [
        ("no topic", {"topic": ""}, "topic ''"),
        ("a character RocketMQ refuses", {"topic": "a b"}, "topic 'a b'"),
        ("a topic too long", {"topic": "x" * 128}, "1 to 127 characters"),
        ("a body too long", {"body": b"x" * 65537}, "maxMessageSize is 65536"),
        ("a negative queue", {"queue_id": -1}, "queue id -1"),
        ("a separator", {"properties": {"a": "b\x02c"}}, "separate properties"),
        ("an empty value", {"properties": {"a": ""}}, "without a value"),
        ("an empty tag", {"tags": ""}, "without a value"),
        ("tags given twice", {"properties": {"TAGS": "x"}}, "its own argument"),
        ("too many properties", {"properties": {"a": "x" * 40_000}}, "32767"),
    ],
)
def test_what_rocketmq_would_refuse_is_refused_before_anything_is_sent(
    broker: LocalBroker, why: str, arguments: dict[str, object], message: str
) -> None:
    counters = counters_of(broker.store)
    before = counters.max_physical_offset.read()
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        call: dict[str, object] = {"topic": "t", "body": b"x", **arguments}
        with pytest.raises((MessageIllegal, PropertiesTooLarge), match=message):
            producer.send(**call)  # type: ignore[call-overload]
        bodies = [call.pop("body")]
        with pytest.raises((MessageIllegal, PropertiesTooLarge), match=message):
            producer.send_batch(bodies=bodies, **{k: v for k, v in call.items() if k != "flag"})  # type: ignore[arg-type]
    assert counters.max_physical_offset.read() == before


def test_a_record_that_no_segment_can_hold_is_refused(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "b", brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=128 * 1024) as broker,
        Producer(broker.store, timeout=DEADLINE_SECONDS) as producer,
    ):
        with pytest.raises(MessageIllegal, match="fit a segment"):
            producer.send("t", b"x" * 131_000)
        with pytest.raises(MessageIllegal, match="fit a segment"):
            producer.send_batch("t", [b"x", b"x" * 131_000])
        fixed = 91 + len("t") + len("CLUSTER=DefaultCluster")
        assert producer.send("t", b"x" * (128 * 1024 - 8 - fixed)).status is PutMessageStatus.PUT_OK
        assert producer.send("t", b"after").queue_offset == 0, "in turn: the next queue"


def test_a_record_nearly_as_large_as_the_ring_goes_through_wherever_the_ring_stands(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "b", brokerRole="ASYNC_MASTER", ringSizeInBytes=1 << 20) as broker,
        Producer(broker.store, timeout=DEADLINE_SECONDS) as producer,
    ):
        for size in (700_000, 900_000, 300, 1_000_000, 500_000, 1_048_000):
            assert producer.send("large", b"x" * size, queue_id=0).status is PutMessageStatus.PUT_OK


def test_an_ipv6_broker_writes_ipv6_hosts(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", brokerRole="ASYNC_MASTER", **{**LIMITED, "brokerIP1": "::1"}) as broker:
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            result = producer.send("six", b"x")
            assert len(result.message_id) == 56
        (message,) = messages_of(broker.store, counters_of(broker.store).max_physical_offset.read())
    assert message.store_host.ip == "0:0:0:0:0:0:0:1"
    assert message.message_id == result.message_id
    assert message.store_timestamp_ms > 0


def test_futures_are_answered_and_callbacks_called(broker: LocalBroker) -> None:
    called = threading.Event()
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        futures = [producer.send_async("async", f"m{number}", queue_id=0) for number in range(500)]
        futures[-1].add_done_callback(lambda _future: called.set())
        results = [future.result(DEADLINE_SECONDS) for future in futures]
    assert [result.queue_offset for result in results] == list(range(500))
    assert called.is_set()


def test_threads_share_a_producer(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:

        def send() -> None:
            for _ in range(200):
                assert producer.send("threads", b"x", queue_id=0).status is PutMessageStatus.PUT_OK

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert producer.send("threads", b"last", queue_id=0).queue_offset == 800


def test_messages_sent_without_waiting_are_there_after_flush(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        for _ in range(1000):
            assert producer.send("nowait", b"x", queue_id=0, wait=False) is None
        producer.flush()
        assert producer.send("nowait", b"x", queue_id=0).queue_offset == 1000


def test_a_full_ring_blocks_until_the_deadline_then_raises_and_sends_nothing(broker: LocalBroker) -> None:
    counters = counters_of(broker.store)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("full", b"first", queue_id=0)
        with Stopped(counters, "writer"):
            sent = 0
            with pytest.raises(RingFull, match="nothing was sent"):
                while True:
                    producer.send("full", b"x" * 60_000, queue_id=0, wait=False, timeout=0.05)
                    sent += 1
            with pytest.raises(BatchIncomplete, match="the first 0 of 3"):
                producer.send_batch("full", [b"x" * 60_000] * 3, queue_id=0, timeout=0.05)
        assert sent >= 10
        assert producer.send("full", b"last", queue_id=0, timeout=DEADLINE_SECONDS).queue_offset == sent + 1


def test_a_writer_that_does_not_answer_is_a_timeout_and_the_message_may_still_come(broker: LocalBroker) -> None:
    counters = counters_of(broker.store)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("late", b"first", queue_id=0)
        with Stopped(counters, "writer"), pytest.raises(SendTimeout, match="may still be appended"):
            producer.send("late", b"second", queue_id=0, timeout=0.05)
        assert producer.send("late", b"third", queue_id=0, timeout=DEADLINE_SECONDS).queue_offset == 2


def test_no_broker_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoBroker, match="no broker runs"):
        Producer(tmp_path)


def test_a_broker_that_stops_is_an_error_to_its_producers(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", brokerRole="ASYNC_MASTER", **LIMITED) as broker:
        producer = Producer(broker.store, timeout=DEADLINE_SECONDS)
        producer.send("t", b"x")
    with pytest.raises(BrokerGone, match="has ended"):
        producer.send("t", b"y")
    producer.close()


def test_a_producer_killed_in_the_middle_harms_nobody(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", brokerRole="ASYNC_MASTER", **LIMITED) as broker:
        counters = counters_of(broker.store)
        endless = (
            "import sys; from engine.producer import Producer\n"
            "p = Producer(sys.argv[1])\n"
            "while True: p.send_batch('killed', [b'x' * 500] * 500, wait=False, timeout=60)\n"
        )
        victim = subprocess.Popen([sys.executable, "-c", endless, str(broker.store)])
        wait_until("put_messages", counters, 5000)
        victim.kill()
        victim.wait()
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            assert producer.send("alive", b"x").status is PutMessageStatus.PUT_OK
            controls = ring.attach_rings(extent.require_running(broker.store).region_directory)
            assert controls.words[ring.ControlWord.OWNER_PID] == os.getpid(), "the dead one's ring was taken over"
        assert_queue_offsets_dense(messages_of(broker.store, counters.max_physical_offset.read()))


def test_sync_flush_answers_only_what_is_on_disk(tmp_path: Path) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "maxMessageSize": 65536, **SMALL}
    with LocalBroker(tmp_path / "b", syncFlushTimeout=int(DEADLINE_SECONDS * 1000), **settings) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            for _ in range(20):
                result = producer.send("disk", b"x")
                assert result.status is PutMessageStatus.PUT_OK
                assert counters.flushed_offset.read() > result.physical_offset
        maps = Path(f"/proc/{counters.pids['writer'].read()}/smaps").read_text()
        flags = maps.partition(f"{StoreDirectory(broker.store).commitlog}/{0:020d}\n")[2].split("VmFlags:")[1]
        assert "rr" in flags.splitlines()[0].split(), "a flush writes the pages that were written, none beside them"
    with (
        LocalBroker(tmp_path / "b", syncFlushTimeout=300, **settings) as broker,
        Producer(broker.store, timeout=DEADLINE_SECONDS) as producer,
    ):
        with Stopped(counters_of(broker.store), "flusher"):
            assert producer.send("disk", b"x").status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        await_that(lambda: producer.send("disk", b"x").status is PutMessageStatus.PUT_OK, "it is in time again")


def test_a_sync_master_says_what_its_slaves_hold(tmp_path: Path) -> None:
    settings = {**LIMITED, "haReconnectInterval": 100, "haHousekeepingInterval": 120_000}  # nobody falls silent
    with LocalBroker(tmp_path / "m", brokerRole="SYNC_MASTER", slaveTimeout=1500, **settings) as master:
        counters = counters_of(master.store)
        with Producer(master.store, timeout=DEADLINE_SECONDS) as producer:
            assert producer.send("sync", b"x").status is PutMessageStatus.SLAVE_NOT_AVAILABLE
            with LocalBroker(
                tmp_path / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **settings
            ) as slave:
                wait_until("in_sync_slaves", counters, 1)
                results: list[SendResult] = []

                def is_held() -> bool:  # a busy machine's slave is late now and then
                    results.append(producer.send("sync", b"x", timeout=DEADLINE_SECONDS))
                    return results[-1].status is PutMessageStatus.PUT_OK

                await_that(is_held, "the slave has one")
                assert counters_of(slave.store).max_physical_offset.read() > results[-1].physical_offset
                with Stopped(counters_of(slave.store), "receiver"):
                    slow = producer.send("sync", b"y")
                    assert slow.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
                batch = producer.send_batch("sync", [b"z"] * 100, timeout=DEADLINE_SECONDS)
                assert batch.status in (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            assert len(messages_of(master.store, counters.max_physical_offset.read())) == 102 + len(results)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small tmpfs")
def test_a_full_disk_refuses_and_takes_messages_again_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], check=True)
    try:
        ballast = disk / "ballast"
        with LocalBroker(disk / "b", brokerRole="ASYNC_MASTER", **LIMITED) as broker:
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 2 << 20)
            with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
                accepted = 0
                with pytest.raises((MessagesRefused, ServiceNotAvailable), match=r"disk is (full|FULL|READ_ONLY)"):
                    while accepted < 10_000:
                        accepted += producer.send("disk", b"x" * 10_000, queue_id=0).status is PutMessageStatus.PUT_OK
                assert accepted > 50
                ballast.unlink()
                wait_until("allocated_offset", counters_of(broker.store), (accepted * 10_000 >> 20 << 20) + (1 << 20))
                end, result = time.monotonic() + DEADLINE_SECONDS, None
                while result is None:
                    assert time.monotonic() < end
                    try:
                        result = producer.send("disk", b"again", queue_id=0)
                    except (MessagesRefused, ServiceNotAvailable):
                        continue
                assert result.queue_offset == accepted, "what was refused left no gap"
            assert len(messages_of(broker.store, counters_of(broker.store).max_physical_offset.read())) == accepted + 1
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
