"""Requests, transactions, send-back and delay on a running broker, and what a killed writer leaves of them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.errors import EngineError, MessageIllegal
from engine.producer.producer import Producer, PutMessageStatus, SendRequest
from engine.shared_memory.cursors import BrokerCounters
from store.errors import InvalidMessage
from store.message.host import Host
from store.message.record import Message
from store.put.batch import Item
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.batches import batch_body
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER",
    "mappedFileSizeCommitLog": 256 * 1024,
    "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "messageDelayLevel": " ".join(["1h"] * 18),
    "transactionCheckInterval": 3_600_000,  # only the tests put
}
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])
TIMEOUT = 60.0
HALF, OPS, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def all_of(store: Path) -> list[Message]:
    return messages_of(store, counters_of(store).max_physical_offset.read())


@BOTH
def test_a_transaction_is_seen_once_committed_and_its_half_is_marked_as_done(tmp_path: Path, compat: str) -> None:
    settings = {**SMALL, "compat": compat, "transactionOpBatchInterval": 3_600_000}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            first = producer.send_half("t", b"kept", group="g", queue_id=2, tags="a")
            second = producer.send_half("t", b"dropped", group="g")
            assert (first.queue_id, first.queue_offset, second.queue_offset) == (2, 0, 1)
            with pytest.raises(InvalidMessage, match="producer group is g"):
                producer.end_transaction(first, commit=True, group="other")
            done = producer.end_transaction(first, commit=True, group="g")
            assert done is not None
            assert (done.queue_id, done.queue_offset) == (2, 0)
            assert producer.end_transaction(second, commit=False) is None
            with pytest.raises(InvalidMessage, match="of topic t"):
                producer.end_transaction(done, commit=True)
        found = all_of(broker.store)
        (committed,) = (message for message in found if message.topic == "t")
        assert (bytes(committed.body), committed.sys_flag) == (b"kept", 8)
        assert committed.prepared_transaction_offset == first.physical_offset
        ops = [bytes(message.body) for message in found if message.topic == OPS]
        assert ops == ([b"0", b"1"] if compat == "4.9" else [b"0,1,"]), "those that waited are written at the end"


def test_op_messages_of_5_are_written_after_their_interval(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat="5", transactionOpBatchInterval=50) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            half = producer.send_half("t", b"x", group="g")
            seen = counters.put_messages.read()
            producer.end_transaction(half, commit=False)
            while counters.put_messages.read() == seen:
                producer.flush()
            assert [bytes(message.body) for message in all_of(broker.store) if message.topic == OPS] == [b"0,"]


@BOTH
def test_delayed_and_sent_back_messages_go_to_the_topics_of_rocketmq(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            late = producer.send("t", b"late", delay_level=99, queue_id=3)
            assert late.queue_id == 3
            now = producer.send("t", b"now", queue_id=1)
            producer.send_back(now.physical_offset, group="g")
            producer.send_back(now.physical_offset, group="g", max_reconsume_times=0)
            with pytest.raises(EngineError, match="no message begins there"):
                producer.send_back(now.physical_offset + 1, group="g")
        delayed, sent, again, dead = all_of(broker.store)
    assert (delayed.topic, delayed.queue_id, delayed.properties["DELAY"]) == (SCHEDULE, 17, "18")
    assert (again.topic, again.queue_id, again.properties["REAL_TOPIC"]) == (SCHEDULE, 2, "%RETRY%g")
    assert (dead.topic, dead.reconsume_times) == ("%DLQ%g", 1)
    assert again.properties["ORIGIN_MESSAGE_ID"] == dead.properties["ORIGIN_MESSAGE_ID"] == sent.message_id


@BOTH
def test_a_batch_tells_the_id_of_each_of_its_messages(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        items = [Item(number, f"{number}".encode(), b"") for number in range(5)]
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            asked = SendRequest(topic="t", body=batch_body(items), batch=True, born_host=Host("::1", 7))
            result = producer.put_message(asked)
            assert result.status is PutMessageStatus.PUT_OK
        found = all_of(broker.store)
    assert result.message_id.split(",") == [message.message_id for message in found]
    assert [(message.flag, message.queue_offset, message.born_host.port) for message in found] == [
        (number, number, 7) for number in range(5)
    ]


def test_everything_has_a_crc_when_the_broker_appends_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat="5", enabledAppendPropCRC="true") as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            producer.send("t", b"one")
            batch = producer.send_batch("t", [b"1", b"2", b"3"], keys=["a", None, "c"], queue_id=1)
            assert batch is not None
            assert list(batch.queue_offsets) == [0, 1, 2]
        found = all_of(broker.store)
    assert len(found) == 4
    assert all("__CRC32#" in message.properties for message in found)
    assert [message.keys for message in found[1:]] == ["a", None, "c"]


def test_queues_named_by_messages_go_on_after_a_restart(tmp_path: Path) -> None:
    for expected in ("0,0", "1,1", "2,2"):
        with LocalBroker(tmp_path / "b", **SMALL, compat="5") as broker:
            with Producer(broker.store, timeout=TIMEOUT) as producer:
                producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}, queue_id=0)
            assert all_of(broker.store)[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == expected


@pytest.mark.crash
def test_a_writer_killed_again_and_again_neither_repeats_nor_skips_an_offset(tmp_path: Path) -> None:
    """Half of the messages are composed: batches, and messages with offsets as text."""
    with LocalBroker(tmp_path / "b", **SMALL, compat="4.9") as broker:
        counters, batches = counters_of(broker.store), 400

        def put() -> None:
            with Producer(broker.store, timeout=TIMEOUT) as producer:
                items = [Item(0, bytes(100), b"")] * 3
                for number in range(batches):
                    producer.put_message(SendRequest(topic="t", body=batch_body(items), batch=True))
                    named = {"INNER_MULTI_DISPATCH": f"%LMQ%{number % 2}"}
                    producer.send("t", b"named", properties=named, queue_id=0)
                    producer.send("t", b"plain", queue_id=0, wait=number == batches - 1)

        putting = threading.Thread(target=put)
        putting.start()
        killed = 0
        while putting.is_alive():
            goal = counters.put_messages.read() + 150
            while putting.is_alive() and counters.put_messages.read() < goal:
                putting.join(0.005)
            if putting.is_alive():
                pid = counters.pids["writer"].read()
                if pid:  # else it is between two of them
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
        found = all_of(broker.store)
    assert killed >= 3
    assert [message.queue_offset for message in found] == list(range(5 * batches))
    named = [message.properties for message in found if "INNER_MULTI_DISPATCH" in message.properties]
    for name in ("%LMQ%0", "%LMQ%1"):
        offsets = [one["INNER_MULTI_QUEUE_OFFSET"] for one in named if one["INNER_MULTI_DISPATCH"] == name]
        assert offsets == [str(number) for number in range(batches // 2)]


class Indexed:
    """Whole only by its `__index__`."""

    def __index__(self) -> int:
        return 3


@BOTH
def test_what_no_caller_should_hand_over_is_refused_in_one_line(tmp_path: Path, compat: str) -> None:
    with (
        LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker,
        Producer(broker.store, timeout=TIMEOUT) as producer,
    ):
        half = producer.send_half("t", b"kept", group="g")
        end = counters_of(broker.store).max_physical_offset.read()
        for wrong in (
            None,
            7,
            "half",
            half._replace(physical_offset="0"),
            (None,) * 5,
            half._replace(physical_offset=None),
            half._replace(physical_offset=0.0),
        ):
            with pytest.raises(MessageIllegal, match=r"^(half|offset)[^\n]*; nothing was sent$"):
                producer.end_transaction(wrong, commit=True)  # type: ignore[arg-type]
        for answer in ("no", 1, 0, float("nan"), None, np.True_):
            with pytest.raises(MessageIllegal, match=r"^commit [^\n]*; nothing was sent$"):
                producer.end_transaction(half, commit=answer)  # type: ignore[arg-type]
        with pytest.raises(MessageIllegal, match="group"):
            producer.end_transaction(half, commit=True, group=7)  # type: ignore[arg-type]
        for bodies in (
            np.ma.array(np.zeros((2, 3), np.uint8), mask=[[True] * 3, [False] * 3]),
            np.ma.array([b"a", b"b"], mask=[True, False]),
        ):
            with pytest.raises(MessageIllegal, match="masked"):
                producer.send_batch("t", bodies)
        assert counters_of(broker.store).max_physical_offset.read() == end


@BOTH
def test_a_requests_numbers_and_bytes_are_taken_as_plain_ones(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            body = memoryview(b"a-b-c-")[::2]
            for number in (np.uint8(3), np.int64(3), Indexed()):
                numbers = {"queue_id": number, "flag": number, "reconsume_times": number}
                assert producer.put_message(SendRequest(topic="t", body=body, **numbers)).queue_id == 3
            producer.put_message(SendRequest(topic="t", body=b"x", queue_id=3, sys_flag=np.uint8(0)))
            producer.send("t", body, queue_id=3)
            producer.send_batch("t", np.ma.array(np.full((2, 3), 65, np.uint8)), queue_id=3)
        found = [(message.queue_id, bytes(message.body), message.flag) for message in all_of(broker.store)]
    assert found == [(3, b"abc", 3)] * 3 + [(3, b"x", 0), (3, b"abc", 0)] + [(3, b"AAA", 0)] * 2


@pytest.mark.parametrize(
    "path", [b"path", "a\0b", "a\ud800b", "x" * 5000, "/".join(["x" * 99] * 60), None, [], 7, Path("x" * 300)]
)
def test_what_cannot_be_a_stores_path_is_refused_in_one_line(path: object) -> None:
    with pytest.raises(EngineError, match=r"\Astore [^\n]{1,200}\Z") as refused:
        Producer(path)  # type: ignore[arg-type]
    assert refused.value.code == "STORE_ILLEGAL"
