"""Which puts a topic's rules refuse, on every way to put, with the codes that RocketMQ 4.9.7 and 5.3.3 answer with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import (
    EngineError,
    MessageIllegal,
    NoPermission,
    QueueIdIllegal,
    ServiceNotAvailable,
    TopicNotExist,
)
from engine.producer.producer import Producer, SendRequest
from engine.protocol.remoting.codes import RequestCode
from engine.shared_memory.cursors import BrokerCounters
from store.message.record import Message
from store.reading import extent
from tests.engine.producer.test_producer import DEADLINE_SECONDS
from tests.harness import command_line
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.interop.remoting import UPDATE_BROKER_CONFIG, Client
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536,
    "messageDelayLevel": "1h 2h", "transactionCheckInterval": 3_600_000,  # only the tests put
}  # fmt: skip
OWN = (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
)  # fmt: skip
# What RocketMQ's brokers say of a queue id at the first message of a topic: topic, queue id, taken or not.
QUEUE_IDS = (
    ("new1", 3, True), ("new2", 4, False), ("new3", 99, False), ("TBW102", 7, True), ("BenchmarkTest", 1023, True),
    ("BenchmarkTest", 1024, False), ("rmq_sys_x", 0, True), ("%RETRY%g", 3, True), ("%RETRY%h", 4, False),
    ("%DLQ%g", 2, True), ("DefaultCluster", 15, True), ("DefaultCluster", 16, False),
)  # fmt: skip


@pytest.fixture(scope="module", params=["4.9", "5"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), **SMALL, compat=request.param) as running:
        yield running


def puts_of(producer: Producer, topic: str, queue_id: int | None = 0) -> dict[str, Callable[[], object]]:
    """Every way to put a message into a queue."""
    request = SendRequest(topic=topic, body=b"x", queue_id=queue_id or 0)
    return {
        "send": lambda: producer.send(topic, b"x", queue_id=queue_id),
        "send without waiting": lambda: producer.send(topic, b"x", queue_id=queue_id, wait=False),
        "send with a delay": lambda: producer.send(topic, b"x", queue_id=queue_id, delay_level=2),
        "send_async": lambda: producer.send_async(topic, b"x", queue_id=queue_id),
        "send_batch": lambda: producer.send_batch(topic, [b"x"] * 2, queue_id=queue_id),
        "send_batch with a delay": lambda: producer.send_batch(
            topic, [b"x"] * 2, queue_id=queue_id, properties={"DELAY": "1"}
        ),
        "send_half": lambda: producer.send_half(topic, b"x", group="g", queue_id=queue_id),
        "put_message": lambda: producer.put_message(request),
    }


def assert_all_refused(
    broker: LocalBroker, puts: dict[str, Callable[[], object]], error: type[EngineError], match: str = "nothing was"
) -> None:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    before = counters.put_messages.read()
    for name, put in puts.items():
        with pytest.raises(error, match=match) as refused:
            put()
        assert "nothing was sent" in str(refused.value), name
        assert "\n" not in str(refused.value), name
    assert counters.put_messages.read() == before


def set_topic(broker: LocalBroker, topic: str, *, perm: int = 6, read: int = 4, write: int = 4) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    assert asked(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)["code"] == 0
    path = broker.store / "config" / "topics.json"
    wanted = {"perm": perm, "readQueueNums": read, "writeQueueNums": write}
    await_that(
        lambda: wanted.items() <= json.loads(path.read_text())["topicConfigTable"].get(topic, {}).items(), "written"
    )
    seen = changes_of(broker)

    def is_noticed() -> bool:  # a time within the clock's tick of the write is no other one: it is set again
        if changes_of(broker) == seen:
            os.utime(path)
        return changes_of(broker) != seen

    await_that(is_noticed, "somebody notices", pause=0.1)


def asked(broker: LocalBroker, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> dict[str, Any]:
    with Client(broker.port) as client:
        return client.request(code, fields, body)


def changes_of(broker: LocalBroker) -> int:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory).topics_changes.read()


def await_change(broker: LocalBroker, seen: int) -> None:
    await_that(lambda: changes_of(broker) != seen, "somebody notices")


def all_of(broker: LocalBroker) -> list[Message]:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    return messages_of(broker.store, counters.max_physical_offset.read())


@pytest.mark.parametrize(("topic", "queue_id", "is_taken"), QUEUE_IDS)
def test_queue_ids_beyond_a_topics_are_refused_with_rocketmqs_code(
    broker: LocalBroker, topic: str, queue_id: int, is_taken: bool
) -> None:
    compat = extent.require_running(broker.store).settings["compat"]
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        puts = puts_of(producer, topic, queue_id)
        if is_taken:
            for put in puts.values():
                put()
            return
        assert_all_refused(broker, puts, QueueIdIllegal, "queue id")
        with pytest.raises(QueueIdIllegal) as refused:
            producer.send(topic, b"x", queue_id=queue_id)
    expected = ("SYSTEM_ERROR", 1) if compat == "4.9" else ("INVALID_PARAMETER", 29)
    assert (refused.value.code, refused.value.response_code) == expected


@pytest.mark.parametrize("topic", OWN)
def test_nobody_sends_to_the_brokers_own_topics(broker: LocalBroker, topic: str) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        for queue_id in (0, None):
            assert_all_refused(broker, puts_of(producer, topic, queue_id), NoPermission, "belongs to the broker")
        half = producer.send_half("t", b"x", group="g")  # what the broker itself puts there is another matter
        producer.end_transaction(half, commit=True)
        producer.send("t", b"x", delay_level=1)


def test_permission_and_queues_are_those_of_topics_json_also_once_a_producer_runs(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        for put in puts_of(producer, "mine").values():
            put()
        set_topic(broker, "mine", perm=4)
        assert_all_refused(broker, puts_of(producer, "mine"), NoPermission, "may not be written to")
        set_topic(broker, "mine", perm=6, read=4, write=2)
        turns = [producer.send("mine", b"x").queue_id for _ in range(4)]
        assert sorted(turns) == [0, 0, 1, 1]
        assert producer.send("mine", b"x", queue_id=3).queue_id == 3, "as RocketMQ: below the greater of both numbers"
        assert_all_refused(broker, puts_of(producer, "mine", 4), QueueIdIllegal)
        sent = producer.send("mine", b"x").physical_offset
        set_topic(broker, "%RETRY%closed", perm=4)
        back = {"send_back": lambda: producer.send_back(sent, group="closed")}
        assert_all_refused(broker, back, NoPermission, "%RETRY%closed")
        producer.send_back(sent, group="open")
        set_topic(broker, "mine", read=16, write=16)
        assert producer.send("mine", b"x", queue_id=15).queue_id == 15
        assert producer.put_message(SendRequest(topic="mine", body=b"x", queue_id=-1)).queue_id in range(16)


def test_a_broker_that_may_not_be_written_to_takes_nothing(broker: LocalBroker) -> None:
    seen = changes_of(broker)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("any", b"x", queue_id=0)
        assert asked(broker, UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")["code"] == 0
        await_change(broker, seen)
        try:
            assert_all_refused(broker, puts_of(producer, "any"), NoPermission, "brokerPermission")
        finally:
            seen = changes_of(broker)
            assert asked(broker, UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")["code"] == 0
            await_change(broker, seen)
        producer.send("any", b"x", queue_id=0)


def test_without_auto_creation_only_topics_that_there_are(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, autoCreateTopicEnable="false") as broker:
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            for topic in ("new", "%DLQ%g", "%LMQ%a", "TBW102"):
                assert_all_refused(broker, puts_of(producer, topic, None), TopicNotExist, "create it with")
            assert producer.send("%RETRY%g", b"x", queue_id=0).queue_id == 0
            assert_all_refused(broker, puts_of(producer, "%RETRY%h", 1), QueueIdIllegal)
            set_topic(broker, "new")
            for put in puts_of(producer, "new", 3).values():
                put()
            seen = changes_of(broker)
            asked(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "new"})
            await_change(broker, seen)
            assert_all_refused(broker, puts_of(producer, "new", 3), TopicNotExist)
        table = json.loads((broker.store / "config" / "topics.json").read_text())["topicConfigTable"]
        assert "%DLQ%g" not in table


def test_a_producer_on_a_slaves_store_hears_where_its_master_is(tmp_path: Path) -> None:
    slave = {**SMALL, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:10912"}
    with LocalBroker(tmp_path / "s", **slave) as broker, pytest.raises(ServiceNotAvailable) as refused:
        Producer(broker.store, timeout=DEADLINE_SECONDS)
    assert refused.value.response_code == 14
    assert "slave" in str(refused.value)
    assert "127.0.0.1:10912" in str(refused.value)


def test_delay_levels_are_the_files(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **{**SMALL, "messageDelayLevel": "1s 2h 3h"}) as broker:  # nothing comes meanwhile
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            producer.send("t", b"x", delay_level=2)
            producer.send("t", b"x", delay_level=99)
            producer.send_back(producer.send("t", b"x").physical_offset, group="g")
        second, last, _plain, again = all_of(broker)
        assert [(one.queue_id, one.properties["DELAY"]) for one in (second, last, again)] == [
            (1, "2"),
            (2, "3"),
            (2, "3"),
        ]
    levels = ["--delay-levels", "1s 2h 3h", str(broker.store)]
    assert command_line.run("log", "verify", *levels).exit_code == 0
    for is_rebuilt in (False, True):
        for queue_id, message, delay_ms in ((1, second, 7_200_000), (2, last, 10_800_000)):
            path = broker.store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(queue_id) / f"{0:020d}"
            due_ms = int.from_bytes(path.read_bytes()[12:20], "big")
            assert due_ms == message.store_timestamp_ms + delay_ms, is_rebuilt
        if not is_rebuilt:
            assert command_line.run("log", "rebuild", "queue", *levels).exit_code == 0


WRONG: tuple[tuple[str, dict[str, object], str], ...] = (
    ("a flag beyond 32 bits", {"flag": 1 << 32}, "flag 4294967296"),
    ("a flag that Java has no int for", {"flag": 1 << 31}, "flag 2147483648"),
    ("a flag far below", {"flag": -(1 << 31) - 1}, "flag -2147483649"),
    ("a flag of 70 bits", {"flag": 1 << 70}, "flag"),
    ("a flag as text", {"flag": "1"}, "flag '1'"),
    ("a flag as a float", {"flag": 1.0}, "flag 1.0"),
    ("a flag as a bool", {"flag": True}, "flag True"),
    ("a flag of None", {"flag": None}, "flag None"),
    ("a queue id as text", {"queue_id": "1"}, "queue id '1'"),
    ("a queue id as a float", {"queue_id": 1.5}, "queue id 1.5"),
    ("a queue id beyond", {"queue_id": 1 << 40}, "queue id"),
    ("a negative queue id", {"queue_id": -1}, "queue id -1"),
    ("a topic of bytes", {"topic": b"t"}, "topic b't'"),
    ("a topic of None", {"topic": None}, "topic None"),
    ("a topic as a list", {"topic": ["t"]}, "topic"),
    ("half a character in a topic", {"topic": "t\ud800"}, "topic"),
    ("a body of None", {"body": None}, "body"),
    ("a body that is a number", {"body": 5}, "body"),
    ("half a character in a body", {"body": "x\ud800"}, "body"),
    ("tags that are a number", {"tags": 5}, "TAGS"),
    ("tags of bytes", {"tags": b"x"}, "TAGS"),
    ("keys that are a number", {"keys": 5}, "keys 5"),
    ("keys of numbers", {"keys": [1, 2]}, "key 1"),
    ("properties as a list", {"properties": [("a", "b")]}, "properties"),
    ("a property's number", {"properties": {"a": 1}}, "property 'a'"),
    ("a property's name", {"properties": {1: "a"}}, "property 1"),
    ("a delay level as text", {"delay_level": "3"}, "delay level '3'"),
    ("a delay level beyond", {"delay_level": 1 << 40}, "delay level"),
    ("a timeout as text", {"timeout": "3"}, "timeout '3'"),
    ("a timeout without end", {"timeout": float("inf")}, "timeout inf"),
    ("no number as a timeout", {"timeout": float("nan")}, "timeout nan"),
    ("a negative timeout", {"timeout": -1}, "timeout -1"),
)


@pytest.mark.parametrize(("why", "arguments", "match"), WRONG)
def test_wrong_types_are_refused_in_one_line_before_anything_is_compiled(
    broker: LocalBroker, why: str, arguments: dict[str, object], match: str
) -> None:
    call: dict[str, object] = {"topic": "t", "body": b"x", **arguments}
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        puts = {
            "send": lambda: producer.send(**call),  # type: ignore[call-overload]
            "send_async": lambda: producer.send_async(**call),  # type: ignore[arg-type]
        }
        if "delay_level" not in call:
            puts["send_half"] = lambda: producer.send_half(**call, group="g")  # type: ignore[arg-type]
            batch = {name: value for name, value in call.items() if name != "body"}
            if not {"flag", "keys"} & call.keys():
                bodies = [call["body"]]
                puts["send_batch"] = lambda: producer.send_batch(bodies=bodies, **batch)  # type: ignore[arg-type]
        assert_all_refused(broker, puts, MessageIllegal, match)  # type: ignore[arg-type]


REQUESTS: tuple[dict[str, object], ...] = (
    {"flag": 1 << 31}, {"sys_flag": 1 << 32}, {"queue_id": 1 << 31}, {"born_timestamp_ms": 1 << 63}, {"topic": b"t"},
    {"body": "text"}, {"properties": {}}, {"reconsume_times": "1"}, {"born_host": "127.0.0.1:1"}, {"flag": None},
)  # fmt: skip


@pytest.mark.parametrize("wrong", REQUESTS)
def test_a_request_with_a_wrong_field_is_refused_in_one_line(broker: LocalBroker, wrong: dict[str, object]) -> None:
    request = SendRequest(**{"topic": "t", "body": b"x", **wrong})  # type: ignore[arg-type]
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        assert_all_refused(broker, {"put_message": lambda: producer.put_message(request)}, MessageIllegal)


def test_whole_numbers_of_other_kinds_are_taken(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        result = producer.send("t", bytearray(b"x"), queue_id=np.int64(2), flag=np.int32(-(1 << 31)), keys=("a", "b"))
        assert (result.queue_id, type(result.queue_id)) == (2, int)
        producer.send("t", memoryview(b"xyz")[::2], flag=(1 << 31) - 1)
    first, second = all_of(broker)[-2:]
    assert (first.flag, first.keys, bytes(second.body), second.flag) == (-(1 << 31), "a b", b"xz", (1 << 31) - 1)


def test_a_put_without_a_timeout_waits_as_long_as_the_broker_is_set_to(tmp_path: Path) -> None:
    settings = {**SMALL, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 60_000}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store) as producer:
            assert producer.deadline(None) - producer.deadline(0) > 30_000
        with Producer(broker.store, timeout=1) as producer:
            assert producer.deadline(None) - producer.deadline(0) <= 1001
    with LocalBroker(tmp_path / "c", **SMALL, slaveTimeout=60_000, syncFlushTimeout=60_000) as broker:
        producer = Producer(broker.store)
        assert producer.deadline(None) - producer.deadline(0) <= 3001, "nobody waits for either here"
