"""What administrators ask of queues, groups and messages: RocketMQ's broker and ours on copies of one store.

Answers are compared byte by byte. The store is written by ours, of the same version; both begin with the same files
below `config`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.protocol.remoting.frame import Serialize
from store.tables import json_files
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, differences
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000,
         "maxIndexNum": 4000, "brokerName": "broker-a"}  # fmt: skip
OUR_SIZES = {**SIZES, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "timerWheelEnable": "false"}
MESSAGES = 40
ALL_TIME = {"beginTimestamp": "0", "endTimestamp": "9000000000000"}
# Of the clock of either side, of its port, and what each of two counts the other way round.
MASKS = {
    r'delayTime\\":\d+': r'delayTime\\":0',
    r"127\.0\.0\.1:\d+": "HERE",
    r'(topicPutTps|consumeTps)\\":[\d.E]+': "TPS",
}


def write_store(directory: Path, compat: str) -> Path:
    """Forty messages in four queues of a topic, and how far two groups are."""
    with LocalBroker(directory, compat=compat, **SIZES, ringSizeInBytes=1 << 20, maxMessageSize=65536) as broker:
        with Producer(str(broker.store), timeout=60.0) as producer:
            for number in range(MESSAGES):
                keys = [f"key-{number % 7}", "all"]
                producer.send("kept", b"x" * (1 + number), tags="ab"[number % 2], keys=keys, queue_id=number % 4)
        store = broker.store
    version = {"counter": 3, "timestamp": 1_700_000_000_000, **({"stateVersion": 0} if compat == "5" else {})}
    path = store / "config" / "consumerOffset.json"
    offsets = {"kept@g": {0: 3, 1: 10, 2: 0, 3: 5}, "kept@h": {0: 7, 1: 1, 2: 2, 3: 10}, "%RETRY%g@g": {0: 0}}
    json_files.write(path, {"offsetTable": offsets, **({"dataVersion": version} if compat == "5" else {})})
    return store


@contextmanager
def both(home: Path, version: str, masks: dict[str, str] = MASKS, **settings: object) -> Iterator[tuple[Peer, Peer]]:
    """RocketMQ's broker and ours (with these settings) on copies of one store; home / "real", home / "ours"."""
    need([version])
    compat = "5" if rocketmq.is_five(version) else "4.9"
    store = write_store(home / "first", compat)
    for name in ("real", "ours"):
        shutil.copytree(store, home / name / "store", ignore=shutil.ignore_patterns("slipstream*", "lock"))
    with ExitStack() as stack:
        real = stack.enter_context(RocketMQBroker(home / "real", version, **SIZES))
        ours = stack.enter_context(LocalBroker(home / "ours", compat=compat, **OUR_SIZES, **settings))
        peers = Peer(real.port, masks), Peer(ours.port, masks)
        for peer in peers:
            stack.callback(peer.close)
        yield peers


def of_queues() -> Iterator[Question]:
    for serialize in Serialize:
        yield Question(202, {"topic": "kept"}, serialize=serialize)
        yield Question(208, {"consumerGroup": "g"}, serialize=serialize)
    yield Question(202, {"topic": "never"})
    yield Question(202, {"topic": "BenchmarkTest"})
    yield Question(208, {"consumerGroup": "g", "topic": "kept"})
    yield Question(208, {"consumerGroup": "never"})
    yield Question(208, {"consumerGroup": "never", "topic": "kept"})
    yield Question(208, {"consumerGroup": "h", "topicList": "kept;never"})
    yield Question(303, {"topic": "kept", "group": "g"})
    yield Question(303, {"topic": "kept", "group": "never"})
    yield Question(303, {"topic": "never", "group": "g"})
    yield Question(308, {"topic": "kept", "compareGroup": "h"})
    yield Question(308, {"topic": "never", "compareGroup": "h"})
    yield Question(317, {"isOrder": "false"})
    yield Question(317, {"isOrder": "true"})
    for index, count in ((0, 3), (4, 100), (9, 1), (10, 1), (99, 1)):
        fields = {"topic": "kept", "queueId": "1", "index": str(index), "count": str(count)}
        yield Question(321, fields)
        yield Question(321, {**fields, "consumerGroup": "g"})
    yield Question(321, {"topic": "never", "queueId": "0", "index": "0", "count": "1"})


def of_clients() -> Iterator[Question]:
    yield Question(203, {"consumerGroup": "g"})
    yield Question(204, {"producerGroup": "p"})
    yield Question(222, {"topic": "kept", "group": "g", "timestamp": "0", "isForce": "true"})
    yield Question(222, {"topic": "kept", "group": "never", "timestamp": "0", "isForce": "true"})
    yield Question(222, {"topic": "never", "group": "g", "timestamp": "0", "isForce": "true"})
    yield Question(300, {"topic": "kept"})
    yield Question(305)
    yield Question(306)
    yield Question(307, {"consumerGroup": "g", "clientId": "c"})
    yield Question(314, {"srcGroup": "g", "destGroup": "clone", "topic": "kept", "offline": "false"})
    yield Question(314, {"srcGroup": "g", "destGroup": "clone2", "topic": "", "offline": "true"})
    yield Question(43, settles=True)
    yield Question(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "never"})
    yield Question(316)
    yield Question(328)
    yield Question(329)


def of_lists(five: bool) -> Iterator[Question]:
    yield Question(343, {"group": "g"})
    yield Question(345, {"group": "g", "topic": "kept"})
    for topic in ("kept", "never"):
        yield Question(351, {"topic": topic})
    for group in ("TOOLS_CONSUMER", "a b"):
        yield Question(352, {"group": group})
    if not five:
        yield Question(18)
        yield Question(225)


def of_messages() -> Iterator[Question]:
    for key in ("all", "key-3", "never"):
        for more in ({}, {"_UNIQUE_KEY_QUERY": "true"}):
            yield Question(12, {"topic": "kept", "key": key, "maxNum": "5", **ALL_TIME, **more})
    yield Question(12, {"topic": "kept", "key": "all", "maxNum": "1000", **ALL_TIME}, serialize=Serialize.ROCKETMQ)
    yield Question(12, {"topic": "kept", "key": "all", "maxNum": "0", **ALL_TIME})
    yield Question(12, {"topic": "kept", "key": "all", "maxNum": "9", "beginTimestamp": "5", "endTimestamp": "6"})
    for offset in ("0", "9000000000000000000", "-5"):
        yield Question(33, {"offset": offset}, serialize=Serialize.ROCKETMQ)


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_slipstream_answers_administrators_as_rocketmq_does(version: str, tmp_path: Path) -> None:
    with both(tmp_path, version) as peers:
        lists = of_lists(rocketmq.is_five(version))
        unlike = differences(*peers, [*of_queues(), *of_clients(), *lists, *of_messages()])
    assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)


def of_resets() -> Iterator[Question]:
    """Offsets are set, asked for, said again, and heard of by pulls."""
    everything = {"topic": "kept", "group": "g", "isForce": "true"}
    of_queue = {"topic": "kept", "queueId": "1", "consumerGroup": "g"}
    pull = {
        **of_queue,
        "maxMsgNums": "2",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    for fields in (
        {"timestamp": "0"}, {"timestamp": "-1"}, {"timestamp": "9000000000000"}, {"timestamp": "0", "queueId": "1"},
        {"timestamp": "0", "queueId": "1", "offset": "-1"}, {"timestamp": "0", "queueId": "1", "offset": "11"},
        {"timestamp": "0", "queueId": "1", "offset": "12"}, {"timestamp": "0", "queueId": "9", "offset": "0"},
        {"timestamp": "-1", "offset": "3"}, {"timestamp": "0", "group": "never"}, {"timestamp": "0", "topic": "never"},
        {"timestamp": "0", "queueId": "1", "offset": "4"},
    ):  # fmt: skip
        yield Question(222, {**everything, **fields})
        yield Question(14, of_queue)
        yield Question(15, {**of_queue, "commitOffset": "7"})
        yield Question(14, of_queue)
    for _time in range(2):
        yield Question(11, {**pull, "queueOffset": "9"})
        yield Question(15, {**of_queue, "commitOffset": "6"})
        yield Question(14, of_queue)
    for queue_id in ("0", "2", "3"):
        yield Question(11, {**pull, "queueId": queue_id, "queueOffset": "1"})
        yield Question(11, {**pull, "queueId": queue_id, "queueOffset": "500", "maxMsgNums": "1"})
    yield Question(222, {**everything, "timestamp": "0"})
    yield Question(207, {"groupName": "g", "cleanOffset": "true"})
    yield Question(200, body=b'{"groupName":"g"}')
    yield Question(11, {**pull, "queueOffset": "9"})
    yield Question(43, settles=True)


def of_forbidden_topics() -> Iterator[Question]:
    """What a group may not consume: asked, forbidden, met by a pull, allowed again, gone with its group."""
    subscription = {"topic": "kept", "subString": "*", "subVersion": 5, "tagsSet": [], "codeSet": [],
                    "expressionType": "TAG", "classFilterMode": False}  # fmt: skip
    consumer = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription]}  # fmt: skip
    heartbeat = {"clientID": "here", "consumerDataSet": [consumer], "producerDataSet": []}
    pull = {"topic": "kept", "queueId": "1", "consumerGroup": "g", "maxMsgNums": "1", "sysFlag": "0", "subVersion": "5",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "queueOffset": "0"}  # fmt: skip
    yield Question(34, body=json.dumps(heartbeat).encode())
    for topic, readable in (
        ("kept", None), ("kept", "false"), ("other", "false"), ("kept", None), ("more", "nonsense"), ("kept", "true"),
        ("other", None), ("kept", "FALSE"), ("kept", "false"),
    ):  # fmt: skip
        fields = {"group": "g", "topic": topic}
        yield Question(353, fields if readable is None else {**fields, "readable": readable})
        yield Question(11, pull)
        yield Question(11, {**pull, "sysFlag": "4", "subscription": "*"})
    yield Question(353, {"topic": "kept"})
    yield Question(353, {"group": "g"})
    for number in range(20):
        yield Question(353, {"group": f"g{number}", "topic": f"{number * 7}", "readable": "false"})
        yield Question(353, {"group": "h", "topic": f"{number * 7}", "readable": "false"}, serialize=Serialize.ROCKETMQ)
    yield Question(207, {"groupName": "g", "cleanOffset": "false"})
    yield Question(353, {"group": "g", "topic": "kept"})
    yield Question(201)


def forbidden_on_disk(directory: Path) -> str:
    """As the file says it, letter by letter."""
    text = (directory / "store" / "config" / "subscriptionGroup.json").read_text()
    return text[text.index('"forbiddenTable"') : text.index('"subscriptionGroupTable"')]


@pytest.mark.interop
def test_slipstream_forbids_topics_to_groups_as_rocketmq_does(tmp_path: Path) -> None:
    """5.x; its file is what a broker of either kind begins with."""
    masks = {**MASKS, r'counter\\":\d+': r'counter\\":0', r'timestamp\\":\d+': r'timestamp\\":0'}
    with both(tmp_path, "5.3.3", masks) as peers:
        groups = [Question(200, body=b'{"groupName":"%s"}' % group) for group in (b"g", b"h")]
        unlike = differences(*peers, [*groups, *of_forbidden_topics()])
        assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)
        wanted = forbidden_on_disk(tmp_path / "real")
        assert wanted.count(":4") == 40, wanted
        await_that(lambda: forbidden_on_disk(tmp_path / "ours") == wanted, "the files say the same")
    theirs = tmp_path / "real" / "store" / "config" / "subscriptionGroup.json"
    shutil.copy(theirs, tmp_path / "ours" / "store" / "config" / "subscriptionGroup.json")
    with LocalBroker(tmp_path / "ours", compat="5", **OUR_SIZES) as again:
        peer = Peer(again.port)
        answer = peer.ask(Question(353, {"group": "g3", "topic": "21"}))
        assert json.loads(bytes(answer.body)) == {"group": "g3", "readable": False, "topic": "21"}
        peer.close()


@pytest.mark.interop
def test_slipstream_resets_offsets_as_rocketmq_does(tmp_path: Path) -> None:
    """5.x with useServerSideResetOffset, its default; the groups are made at both."""
    with both(tmp_path, "5.3.3", frontProcesses=2) as peers:
        groups = [Question(200, body=b'{"groupName":"%s"}' % group) for group in (b"g", b"h")]
        unlike = differences(*peers, [*groups, *of_resets()])
    assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)
