"""Pulls at our broker beside RocketMQ's, 4.9.7 and 5.3.3, of the same store: the same answers, to the byte.

The store is RocketMQ's own, copied; its log begins at 0, or higher, as after retention.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.clients.consuming.requests import LAST, Subscription, heartbeat_of, subscription_of
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, differences
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SEGMENT_BYTES, QUEUE_BYTES, UNITS_A_FILE = 256 * 1024, 20_000, 1000
MESSAGES = 1300  # of queue 0: more than a file of the queue has
PULL, LITE_PULL, UPDATE_CONFIG, UPDATE_TOPIC, UPDATE_GROUP = 11, 361, 25, 17, 200
SUSPEND, SUBSCRIPTION = 2, 4
FAST = 2
GROUP, TOPIC = "readers", "read"
MASKS = {r"consumer:\[/127\.0\.0\.1:\d+\]": "consumer:[client]"}


class PullPeer(Peer):
    """Of bodies it shows how long they are, and their digest."""

    def told(self, answer: RemotingCommand) -> dict[str, Any]:
        """What an answer says."""
        digest = hashlib.sha256(answer.body).hexdigest()[:8]
        return {**super().told(answer), "body": f"{len(answer.body)} bytes, {digest}"}


def fill(broker: RocketMQBroker) -> None:
    with Client(broker.port) as client:
        topic = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
        for name, changes in ((TOPIC, {}), ("closed", {"perm": 2}), ("flagged", {"topicSysFlag": 3})):
            assert client.request(UPDATE_TOPIC, {**topic, "topic": name, **changes})["code"] == 0
        for group, disabled in ((GROUP, {}), ("stopped", {"consumeEnable": False}), ("sent on", {"brokerId": 7})):
            body = json.dumps({"groupName": group, **disabled}).encode()
            assert client.exchange(UPDATE_GROUP, body=body)[0]["code"] == 0
        for number in range(MESSAGES):
            tags = "" if number % 5 == 0 else f"TAGS\1Tag{number % 3}\2"
            client.send(TOPIC, 0, bytes((number % 251,)) * (20 + number * 37 % 1500), tags)
            if number % 10 == 0:
                client.send(TOPIC, 1, b"x" * (40_000 if number % 100 == 0 else 10), tags)
        client.send("flagged", 0, b"one")


def pull(
    offset: object = 0, *, code: int = PULL, form: Serialize = Serialize.JSON, port: int = 0, **fields: object
) -> Question:
    said = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **fields,
    }
    texts = {name: str(value) for name, value in said.items() if value is not None}
    return Question(code, texts, serialize=form, port=port)


def readings() -> Iterator[Question]:
    around = (0, UNITS_A_FILE, MESSAGES)
    offsets = {-5, *(each + by for each in around for by in (-33, -2, -1, 0, 1, 2, 700)), 1 << 40}
    for offset in sorted(offsets):
        for form in Serialize:
            yield pull(offset, form=form)
        yield pull(offset, queueId=1)
        yield pull(offset, queueId=2)
    for most in (1, 2, 31, 33, 1000, 3000, 0):
        yield pull(3, maxMsgNums=most)
        yield pull(3, maxMsgNums=most, subscription="Tag1")
        yield pull(3, maxMsgNums=most, subscription="nobody has it")
    for tags in ("Tag0", "Tag0||Tag2", " Tag0 || Tag2 ", "||Tag1", "|||Tag1", "Tag1||", "", "**", " ", " || x"):
        for kind in ("TAG", None, ""):
            yield pull(0, subscription=tags, expressionType=kind)
            yield pull(UNITS_A_FILE - 20, subscription=tags, expressionType=kind)
    for offset in range(0, 131, 7):
        yield pull(offset, queueId=1)
        yield pull(offset, queueId=1, subscription="Tag1")
    yield pull(topic="flagged")
    yield pull(consumerGroup="sent on")


def refusals(five: bool) -> Iterator[Question]:
    for code in (PULL, LITE_PULL) if five else (PULL,):  # ours answers lite pulls at 4.9, too
        yield pull(port=FAST, code=code)
        for queue_id in (-1, 4, 1 << 30):
            yield pull(queueId=queue_id, code=code)
        yield pull(topic="nowhere", code=code)
        yield pull(topic="closed", code=code)
        yield pull(consumerGroup="stopped", code=code)
        yield pull(code=code)
    for kind, text in (("SQL92", "a > 1"), ("SQL92", ""), ("SQL92", None), ("OTHER", "x"), ("TAG", "||")):
        yield pull(expressionType=kind, subscription=text)
    yield pull(sysFlag=0)
    yield pull(sysFlag=0, topic="nowhere", consumerGroup="stopped")
    for name in ("queueOffset", "maxMsgNums", "sysFlag", "queueId"):
        yield pull(**{name: "text"})


def goodbye() -> Iterator[Question]:
    """Pulls around the stay of a member; a client that is shut down still pulls after its goodbye was answered."""
    subscription = subscription_of(TOPIC, Subscription(), version_ms=7)
    yield Question(RequestCode.HEART_BEAT, body=heartbeat_of("127.0.0.1@1", GROUP, LAST, [subscription]))
    for version in (7, 8):
        yield pull(sysFlag=0, subVersion=version)
    yield pull(sysFlag=0, topic="flagged")
    yield Question(RequestCode.UNREGISTER_CLIENT, {"clientID": "127.0.0.1@1", "consumerGroup": GROUP})
    yield pull(sysFlag=0, subVersion=7)


def closed() -> Iterator[Question]:
    yield Question(UPDATE_CONFIG, body=b"brokerPermission=2\n")
    yield pull()
    yield pull(topic="nowhere", consumerGroup="unheard of")
    yield Question(UPDATE_CONFIG, body=b"brokerPermission=6\n")
    yield pull()


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_pulls_are_answered_as_rocketmqs_are(version: str, tmp_path: Path) -> None:
    need([version])
    sizes = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "mappedFileSizeConsumeQueue": QUEUE_BYTES}
    compat = "5" if rocketmq.is_five(version) else "4.9"
    first = tmp_path / "first"
    with RocketMQBroker(first, version, **sizes) as broker:
        fill(broker)
        broker.stop()
    wrong = []
    for name, slave in (("whole", {}), ("begun", {}), ("slave", {"brokerRole": "SLAVE", "brokerId": 1}),
                        ("reading", {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"})):  # fmt: skip
        for side in ("real", "ours"):
            store = tmp_path / f"{name}-{side}" / "store"
            shutil.copytree(first / "store", store)
            (store / "lock").unlink(missing_ok=True)
            if name == "begun":
                for path in sorted((store / "commitlog").iterdir())[:2]:
                    path.unlink()
        with ExitStack() as stack:
            real = stack.enter_context(RocketMQBroker(tmp_path / f"{name}-real", version, **sizes, **slave))
            own = {
                **sizes,
                **slave,
                "brokerName": "broker-a",
                "compat": compat,
                "ringSizeInBytes": 1 << 20,
                "maxMessageSize": 65536,
            }
            ours = stack.enter_context(LocalBroker(tmp_path / f"{name}-ours", **own))
            peers = [PullPeer(one.port, MASKS) for one in (real, ours)]
            for peer in peers:
                stack.callback(peer.close)
            questions = [*readings(), *refusals(rocketmq.is_five(version)), *goodbye(), *closed()]
            wrong += [f"{name}: {text}" for text in differences(peers[0], peers[1], questions)]
    assert not wrong, f"{len(wrong)} answers differ:\n" + "\n".join(wrong)[:20_000]
