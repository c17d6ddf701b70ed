"""What clients put, beside RocketMQ's 4.9.7 and 5.3.3: the same requests, the same answers, the same records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.frame import Serialize
from store.files.segment_files import SegmentFiles
from store.message.record import Kind, Message, decode
from store.put.batch import ITEM_HEAD, Item
from store.reading.walk import walk_segment
from store.tables import json_files
from tests.harness.batches import batch_body
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, differences
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SEGMENT_BYTES, MESSAGE_BYTES_MAX = 1 << 20, 65536
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "maxMessageSize": MESSAGE_BYTES_MAX,
    "brokerName": "broker-a",
    "autoCreateSubscriptionGroup": "false",
    "timerWheelEnable": "false",
    # nothing comes into the log by the clock, of either side when it likes
    "messageDelayLevel": " ".join(["1h"] * 18),
    "transactionCheckInterval": 10**9,
}
OURS = {"mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20}
BORN_MS = 1_700_000_000_000
HEADER = {
    "producerGroup": "g", "topic": "one", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": str(BORN_MS), "flag": "0", "properties": "", "reconsumeTimes": "0",
    "unitMode": "false", "maxReconsumeTimes": "", "batch": "false",
}  # fmt: skip
SHORT = dict(zip(HEADER, "abcdefghijklm", strict=True))
NOT_FOR_CLIENTS = (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
)  # fmt: skip
HALF = {"TRAN_MSG": "true", "PGROUP": "g"}
ORIGIN = re.compile(rb"(ORIGIN_MESSAGE_ID\x01)[0-9A-F]{16}")  # the port is either one's own
_keys = iter(range(1 << 30))


def properties(**named: str) -> str:
    """Always with the key that 5.x would make."""
    return "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": f"{next(_keys):032X}", **named}.items())


def sent(
    code: int = 310, body: bytes = b"body", *, serialize: Serialize = Serialize.JSON, without: str = "", **fields: Any
) -> Question:
    """A request to send: `fields` by the names of the long header, whichever it is."""
    said = {**HEADER, "properties": properties(), **{name: str(value) for name, value in fields.items()}}
    said = {name: value for name, value in said.items() if value != "" and name != without}
    if code in (310, 320, 325):
        said = {SHORT[name]: value for name, value in said.items()}
    return Question(code, said, body, serialize=serialize)


def batch(*bodies: bytes) -> bytes:
    return batch_body([Item(0, body, properties(KEYS=f"k{number}").encode()) for number, body in enumerate(bodies)])


def sends(five: bool) -> Iterator[Question]:
    for code in (10, 310):
        for serialize in Serialize:
            yield sent(code, serialize=serialize)
            yield sent(code, serialize=serialize, topic="single", defaultTopicQueueNums=1, queueId=-1)
        for name in HEADER:
            if not (five and name == "properties"):  # 5.x makes a key, of its own address
                yield sent(code, without=name)
            if name not in ("producerGroup", "topic", "defaultTopic", "properties", "unitMode", "batch"):
                yield sent(code, **{name: "bad"})
        yield Question(code)
        yield Question(code, {})
        yield sent(code, b"")
        yield sent(code, bytes(MESSAGE_BYTES_MAX))
        yield sent(code, bytes(MESSAGE_BYTES_MAX + 1))
        yield sent(code, properties=properties(a="x" * 32_000))
        yield sent(code, properties=properties(a="x" * 33_000))
        yield sent(code, queueId=4)
        yield sent(code, queueId=1 << 20)
        for topic in ("", " ", "a b", "x" * 128, "x" * 127, "TBW102", "%RETRY%", "é", *NOT_FOR_CLIENTS):
            yield sent(code, topic=topic, without="" if topic else "topic")
        yield sent(code, topic=f"made-{code}", defaultTopicQueueNums=3, unitMode="true")
        yield sent(code, topic=f"made-{code}", queueId=3)
        yield sent(code, topic=f"no-queues-{code}", defaultTopicQueueNums=-1)
        yield sent(code, topic="from-nothing", defaultTopic="nobody")
        for name in ("defaultTopic", "defaultTopicQueueNums", "producerGroup"):
            yield sent(code, topic=f"without-{name}", without=name)
        yield sent(code, topic="from-another", defaultTopic="one")
        yield sent(code, properties=properties(WAIT="false"))
        yield sent(code, properties=properties(WAIT="true", TAGS="t", KEYS="k"))
        yield sent(code, properties=properties(DELAY="18"))
        for level in ("99", "-3", "abc", "99999999999", "1.5", "+2", ""):
            yield sent(code, properties=properties(DELAY=level))
        yield sent(code, properties=properties(**HALF))
        yield sent(code, sysFlag=1, flag=7, reconsumeTimes=2)
    if five:
        for timer in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
            for code in (10, 310):
                yield sent(code, properties=properties(**{timer: "3600"}))
            yield sent(properties=properties(**HALF, **{timer: "3600"}))
            yield sent(320, batch(b"a"), batch="true", properties=properties(**{timer: "3600"}))
        yield sent(properties=properties(TIMER_DELAY_SEC="x"))
        yield sent(properties=properties(TIMER_DELAY_SEC="3600", DELAY="18"))
        yield Question(370, {"producerGroup": "g", "topic": "one", "recallHandle": "x"})


def retries() -> Iterator[Question]:
    yield sent(topic="%RETRY%nobody", reconsumeTimes=1)
    yield sent(topic="%RETRY%kept-group", reconsumeTimes=1)
    yield sent(topic="%RETRY%kept-group", reconsumeTimes=3, properties=properties(DELAY="5"))
    yield sent(topic="%RETRY%kept-group", reconsumeTimes=4)
    yield sent(topic="%RETRY%kept-group", reconsumeTimes=7, maxReconsumeTimes=8, properties=properties(DELAY="18"))
    yield sent(topic="%RETRY%kept-group", reconsumeTimes=9, maxReconsumeTimes=8)


def batches(five: bool) -> Iterator[Question]:
    yield sent(320, batch(b"a", b"bb", b"ccc"), batch="true")
    yield sent(320, batch(b"a"), batch="true", serialize=Serialize.ROCKETMQ)
    yield sent(320, batch(b"a"), batch="true", topic="single", queueId=-1)
    yield sent(320, batch(b"a"))
    if five:
        yield sent(320, batch(b"a"), batch="true", topic="%RETRY%kept-group")
    yield sent(320, batch(b"a"), batch="true", queueId=77)
    yield sent(320, batch(b"a", bytes(MESSAGE_BYTES_MAX)), batch="true")
    yield sent(320, batch(b"a"), batch="true", properties=properties(DELAY="3"))
    whole = batch(b"a", b"bb")
    head, of_first = ITEM_HEAD.size, len(batch(b"a"))
    for broken in (
        whole[:-3],
        whole[: of_first + 5],
        whole[:of_first] + b"x",
        b"broken",
        whole[: head - 4] + b"\xff" * 4 + whole[head:],
        whole[: head - 4] + b"\x00\x00\xff\xff" + whole[head:],
        whole[: head + 1] + b"\xff\xfe" + whole[head + 3 :],
        whole[: head + 1] + b"\x7f\xfe" + whole[head + 3 :],
    ):
        yield sent(320, broken, batch="true")


def backs(offset: int) -> Iterator[Question]:
    """`offset`: where a message begins."""
    usual = {
        "offset": str(offset), "group": "kept-group", "delayLevel": "18", "originMsgId": "x", "originTopic": "one",
        "unitMode": "false",
    }  # fmt: skip
    for changed in (
        {}, {"maxReconsumeTimes": "0"}, {"maxReconsumeTimes": "5"}, {"delayLevel": "-1"}, {"group": "nobody"},
        {"offset": "7777777"}, {"offset": "-1"}, {"unitMode": "true"},
    ):  # fmt: skip
        yield Question(36, {**usual, **changed})
    yield Question(36, usual, serialize=Serialize.ROCKETMQ)
    for name in ("group", "offset", "delayLevel"):
        yield Question(36, {key: value for key, value in usual.items() if key != name})


def ends(offset: int, queue_offset: int, decision: int) -> Iterator[Question]:
    usual = {
        "producerGroup": "g", "tranStateTableOffset": str(queue_offset), "commitLogOffset": str(offset),
        "commitOrRollback": str(decision), "fromTransactionCheck": "false", "msgId": "x", "transactionId": "x",
    }  # fmt: skip
    for changed in (
        {"producerGroup": "another"}, {"tranStateTableOffset": "99"}, {"commitLogOffset": "7777777"},
        {"commitOrRollback": "5"}, {"commitOrRollback": "x"}, {"fromTransactionCheck": "true", "producerGroup": "a"},
        {},
    ):  # fmt: skip
        yield Question(37, {**usual, **changed})
    yield Question(37, {name: value for name, value in usual.items() if name != "commitOrRollback"})


def replies() -> Iterator[Question]:
    for code in (324, 325):
        for serialize in Serialize:
            topic = "DefaultCluster_REPLY_TOPIC"
            yield sent(code, topic=topic, serialize=serialize)
            yield sent(code, topic=topic, serialize=serialize, properties=properties(REPLY_TO_CLIENT="nobody"))
        yield sent(code, topic="a b")
        yield sent(code, queueId=9, topic="one")


def records(store: Path) -> list[Message]:
    files = SegmentFiles(store / "commitlog", SEGMENT_BYTES)
    with files.open(0) as segment:
        return [
            decode(segment.view, step.physical_offset)
            for step in walk_segment(segment)
            if step.inspection.kind is Kind.MESSAGE
        ]


def seen(message: Message) -> tuple[Any, ...]:
    """What of a record both brokers must agree on."""
    raw = ORIGIN.sub(rb"\1", bytes(message.properties_raw))
    return (
        message.physical_offset, message.topic, message.queue_id, message.queue_offset, message.flag, message.sys_flag,
        bytes(message.body), raw, message.reconsume_times, message.prepared_transaction_offset,
        message.born_host.ip,
    )  # fmt: skip


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_what_clients_put_is_answered_and_stored_as_rocketmqs_do(version: str, tmp_path: Path) -> None:
    need([version])
    five = rocketmq.is_five(version)
    for name in ("real", "ours"):
        groups = {"subscriptionGroupTable": {"kept-group": {"groupName": "kept-group", "retryMaxTimes": 3}}}
        json_files.write(tmp_path / name / "store" / "config" / "subscriptionGroup.json", groups)
    with ExitStack() as stack:
        real = stack.enter_context(RocketMQBroker(tmp_path / "real", version, **SETTINGS))
        settings = {"compat": "5" if five else "4.9", **OURS, **SETTINGS, **rocketmq.PATIENCE}
        ours = stack.enter_context(LocalBroker(tmp_path / "ours", **settings))
        peers = [
            Peer(one.port, {rf"(7F000001){one.port:08X}": r"\1PORT", r"Producer: 127\.0\.0\.1:\d+": "Producer: IT"})
            for one in (real, ours)
        ]
        for peer in peers:
            stack.callback(peer.close)

        def place(question: Question) -> tuple[int, int]:
            """Where both put a message: its offset in the log, and in its queue."""
            said = [peer.ask(question).ext_fields or {} for peer in peers]
            places = {(int(fields["msgId"][16:], 16), int(fields["queueOffset"])) for fields in said}
            assert len(places) == 1
            return places.pop()

        unlike = differences(peers[0], peers[1], sends(five))
        unlike += differences(peers[0], peers[1], [*retries(), *batches(five), *replies()])
        assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)
        unlike += differences(peers[0], peers[1], backs(place(sent())[0]))
        for decision in (8, 12):
            unlike += differences(peers[0], peers[1], ends(*place(sent(properties=properties(**HALF))), decision))
        permission = Question(25, body=b"brokerPermission=4\n")
        unlike += differences(peers[0], peers[1], [permission, sent(), *backs(0)])
        assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)
    theirs, mine = ([seen(message) for message in records(tmp_path / name / "store")] for name in ("real", "ours"))
    for one, other in zip(theirs, mine, strict=False):
        assert one == other
    assert len(theirs) == len(mine)
