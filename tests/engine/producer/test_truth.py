"""What senders are told is so: whether a message may still come, which ones were refused, what a future is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import BatchIncomplete, SendTimeout, ServiceNotAvailable
from engine.producer.op_writer import Op, OpWriter
from engine.producer.producer import Producer, PutMessageStatus
from engine.protocol.store.retention import DiskState
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms
from ipc.errors import RingFull
from store.errors import InvalidMessage
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.reading import extent
from tests.engine.producer.test_producer import DEADLINE_SECONDS, Stopped
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 64 * 1024,
    "maxMessageSize": 16384,
    "messageDelayLevel": "1h 2h", "transactionCheckInterval": 3_600_000,  # only the tests put
}  # fmt: skip
DESCRIPTORS = 256  # of a ring of 64 KiB


@pytest.fixture(scope="module", params=["4.9", "5"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), **SMALL, compat=request.param) as running:
        yield running


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def bodies_of(store: Path, topic: str) -> list[bytes]:
    end = counters_of(store).max_physical_offset.read()
    return [bytes(message.body) for message in messages_of(store, end) if message.topic == topic]


def test_a_timeout_says_whether_the_message_may_still_come(broker: LocalBroker) -> None:
    counters = counters_of(broker.store)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("late", b"first", queue_id=0)
        with Stopped(counters, "writer"):
            for call in (
                lambda: producer.send("never-seen", b"x", timeout=0.05),
                lambda: producer.send_batch("never-seen", [b"x"], timeout=0.05),
                lambda: producer.send_async("never-seen", b"x", timeout=0.05),
                lambda: producer.send("late", b"delayed", delay_level=1, timeout=0.05),
            ):
                with pytest.raises(SendTimeout, match="; nothing was sent") as nothing:
                    call()
                assert not nothing.value.may_be_appended
            for call in (
                lambda: producer.send("late", b"second", queue_id=0, timeout=0.05),
                lambda: producer.send_batch("late", [b"third"], queue_id=0, timeout=0.05),
                lambda: producer.send_async("late", b"fourth", queue_id=0, timeout=0.05).result(DEADLINE_SECONDS),
                lambda: producer.flush(timeout=0.05),
            ):
                with pytest.raises(SendTimeout, match="may still be appended") as late:
                    call()
                assert late.value.may_be_appended
        producer.flush(timeout=DEADLINE_SECONDS)
        assert producer.send("never-seen", b"after", timeout=DEADLINE_SECONDS).queue_offset == 0
    assert bodies_of(broker.store, "late") == [b"first", b"second", b"third", b"fourth"]
    assert bodies_of(broker.store, "never-seen") == [b"after"]


def test_futures_of_a_small_ring_are_answered_as_the_log_has_them(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        futures = [producer.send_async("small", f"{number}", queue_id=0) for number in range(6000)]
        results = [future.result(DEADLINE_SECONDS) for future in futures]
    assert [result.queue_offset for result in results] == list(range(6000))
    assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
    end = counters_of(broker.store).max_physical_offset.read()
    found = [message.physical_offset for message in messages_of(broker.store, end) if message.topic == "small"]
    assert [result.physical_offset for result in results] == found


def test_a_waiting_send_finds_its_place_whatever_other_threads_put(tmp_path: Path) -> None:
    settings = {**SMALL, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": int(DEADLINE_SECONDS * 1000)}
    with (
        LocalBroker(tmp_path / "b", **settings) as broker,
        Producer(broker.store, timeout=DEADLINE_SECONDS) as producer,
    ):
        counters, results = counters_of(broker.store), {}
        producer.send("t", b"x", queue_id=0)
        producer.send("t", b"x", queue_id=1)

        def wait(number: int) -> None:
            results[number] = producer.send("t", f"waits {number}", queue_id=1, timeout=DEADLINE_SECONDS)

        with Stopped(counters, "flusher"):
            waiters = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
            seen = counters.put_messages.read()
            for waiter in waiters:
                waiter.start()
            await_that(lambda: counters.put_messages.read() >= seen + 3, "all three are appended")
            pending = producer.send_async("t", b"a future", queue_id=1, timeout=DEADLINE_SECONDS)
            for _ in range(5 * DESCRIPTORS):
                producer.send("t", b"passes", queue_id=0, wait=False, timeout=DEADLINE_SECONDS)
            producer.send_batch("t", [b"a batch"] * 1000, queue_id=0, wait=False, timeout=DEADLINE_SECONDS)
            for _ in range(5):
                producer.send("t", b"by rules", queue_id=0, delay_level=1, wait=False, timeout=DEADLINE_SECONDS)
            producer.flush(timeout=DEADLINE_SECONDS, appended_only=True)
            assert not results, "nothing is on disk yet"
        for waiter in waiters:
            waiter.join(DEADLINE_SECONDS)
        found = {bytes(one.body): one for one in messages_of(broker.store, counters.max_physical_offset.read())}
        for number, result in results.items():
            assert result.status is PutMessageStatus.PUT_OK
            there = found[f"waits {number}".encode()]
            assert (there.physical_offset, there.queue_offset) == (result.physical_offset, result.queue_offset)
        assert pending.result(DEADLINE_SECONDS).physical_offset == found[b"a future"].physical_offset
        assert len(results) == 3


def test_a_cancelled_future_holds_nothing_back(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("cancelled", b"first", queue_id=0)
        with Stopped(counters_of(broker.store), "writer"):
            waiting_one = producer.send_async("cancelled", b"x", queue_id=0)
            cancelled = [producer.send_async("cancelled", b"x", queue_id=0) for _ in range(10)]
            assert all(future.cancel() for future in cancelled)
        assert waiting_one.result(DEADLINE_SECONDS).queue_offset == 1
        for _ in range(2 * DESCRIPTORS):
            producer.send("cancelled", b"x", queue_id=0, wait=False)
        assert producer.send("cancelled", b"x", queue_id=0).queue_offset == 12 + 2 * DESCRIPTORS


def test_a_batch_by_the_brokers_rules_is_checked_as_a_whole_and_says_how_far_it_came(broker: LocalBroker) -> None:
    counters = counters_of(broker.store)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("ruled", b"x", delay_level=1, queue_id=0)
        before = counters.put_messages.read()
        with pytest.raises(InvalidMessage, match="maxMessageSize"):
            producer.send_batch("ruled", [b"fine", b"x" * 16385], properties={"DELAY": "1"}, queue_id=0)
        assert counters.put_messages.read() == before
        with Stopped(counters, "writer"), pytest.raises(BatchIncomplete) as incomplete:
            bodies = [b"x" * 15_000] * 50
            producer.send_batch("ruled", bodies, properties={"DELAY": "1"}, queue_id=0, wait=False, timeout=0.05)
        published_, may = incomplete.value.published, incomplete.value.may_be_appended
        assert 0 < published_ < 50
        assert may
        producer.flush(timeout=DEADLINE_SECONDS, appended_only=True)
        assert counters.put_messages.read() == before + published_


class ReadOnly:
    """The disk called read-only for the length of a block; the housekeeper, who would object, is held still."""

    def __init__(self, counters: BrokerCounters) -> None:
        self._counters, self._stopped = counters, Stopped(counters, "housekeeper")

    def __enter__(self) -> None:
        self._stopped.__enter__()
        waiting.publish(self._counters.disk_state, DiskState.READ_ONLY)

    def __exit__(self, *_exc: object) -> None:
        waiting.publish(self._counters.disk_state, DiskState.NORMAL)
        self._stopped.__exit__()


def ops_of(store: Path) -> str:
    return b"".join(body + b"," for body in bodies_of(store, OP_TOPIC)).decode().replace(",,", ",")


def test_an_op_message_is_written_though_the_broker_was_read_only_for_a_moment(tmp_path: Path) -> None:
    for compat in ("4.9", "5"):
        settings = {**SMALL, "compat": compat, "transactionOpBatchInterval": 50}
        with LocalBroker(tmp_path / compat, **settings) as broker:
            counters = counters_of(broker.store)
            with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
                halves = [producer.send_half("t", b"x", group="g") for _ in range(3)]
                first = producer.end_transaction(halves[0], commit=True)
                assert first is not None
                with ReadOnly(counters):
                    assert producer.end_transaction(halves[1], commit=False) is None
                    with pytest.raises(ServiceNotAvailable):
                        producer.end_transaction(halves[2], commit=True)
                    with pytest.raises(ServiceNotAvailable):
                        producer.write_ops(timeout=0.3)
                end = time.monotonic() + DEADLINE_SECONDS
                while sorted(ops_of(broker.store)) != sorted("0,1,"):
                    assert time.monotonic() < end, ops_of(broker.store)
                    waiting.await_change(counters.max_physical_offset, counters.max_physical_offset.read(), 50)
                producer.end_transaction(halves[2], commit=True)
            assert sorted(ops_of(broker.store)) == sorted("0,1,2,")
            assert len(bodies_of(broker.store, "t")) == 2
            assert len(bodies_of(broker.store, HALF_TOPIC)) == 3


class Puts:
    """Takes op messages, or refuses them."""

    def __init__(self) -> None:
        self.taken: list[Op] = []
        self.refuses: Exception | None = None

    def deadline(self, timeout: float | None) -> int:
        return monotonic_ms() + (0 if timeout is None else int(timeout * 1000))

    def put_op(self, op: Op, _deadline_ms: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.taken.append(op)


@pytest.mark.parametrize(
    "refusal",
    [RingFull(Path("ring"), 1, 1), SendTimeout("s", 1, may_be_appended=True), ServiceNotAvailable("s", "FULL", 99)],
)
def test_op_messages_that_were_refused_keep_their_order_and_are_written_when_asked_for(refusal: Exception) -> None:
    puts = Puts()
    writer = OpWriter(puts, bytes_max=4096, interval_ms=3_600_000)
    puts.refuses = refusal
    for number in range(3):
        writer.put(Op(0, str(number)), 0)
    with pytest.raises(type(refusal)):
        writer.write(0)
    puts.refuses = None
    writer.write(monotonic_ms() + 60_000)
    assert puts.taken == [Op(0, "0"), Op(0, "1"), Op(0, "2")]
    writer.end()
    writer.join()


def test_what_a_call_was_refused_is_written_later_though_nothing_was_pending_while_it_tried() -> None:
    puts = Puts()
    writer = OpWriter(puts, bytes_max=4096, interval_ms=3_600_000)
    changed: threading.Condition = vars(writer)["_changed"]

    def is_asleep() -> bool:
        with changed:
            return bool(vars(changed)["_waiters"])

    def refuse(_op: Op, _deadline_ms: int) -> None:
        with changed:
            changed.notify_all()
        await_that(is_asleep, "its thread has seen that nothing is pending")
        raise ServiceNotAvailable("s", "FULL", 99)

    writer.add(0, "5,", monotonic_ms() + 60_000)
    puts.put_op, take = refuse, puts.put_op  # type: ignore[method-assign]
    with pytest.raises(ServiceNotAvailable):
        writer.write(0)
    puts.put_op = take  # type: ignore[method-assign]
    await_that(lambda: puts.taken == [Op(0, "5,")], "it is written by the thread")
    writer.end()
    writer.join()
