"""Light queues (enableLmq) beside RocketMQ's 4.9.7 and 5.3.3: the same requests, the same answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, differences
from tests.interop.rocketmq import RocketMQBroker
from tests.interop.test_send_answers import properties, sent
from tools.common.local_broker import LocalBroker

SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "brokerName": "broker-a",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "messageDelayLevel": " ".join(["1h"] * 18),
    "transactionCheckInterval": 10**9,
    "flushConsumerOffsetInterval": 500,
}
OURS = {"mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
# In a record, as JSON writes its bytes: the port of where it was born, when it was stored, the port of who stored it.
_BYTE, _HOST = r"(?:\\u00..|\\[^u]|[^\\])", r"\\u007f\\u0000\\u0000\\u0001"
OWN = rf"{_HOST}{_BYTE}{{4}}\\u0000\\u0000{_BYTE}{{6}}{_HOST}{_BYTE}{{4}}"
MASKS = {r"127\.0\.0\.1:\d+": "IT", OWN: "OWN", r'\\"timestamp\\":\d+': "WHEN"}
LIGHT, GROUPS = ("%LMQ%a", "%LMQ%b"), ("%LMQ%me", "usual")


def pulled(topic: str, group: str, offset: int, **fields: str) -> Question:
    asked = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        **fields,
    }
    return Question(11, asked, settles=True)


def story() -> Iterator[Question]:
    """Each light queue read, committed and asked about by a light group and by a usual one."""
    for number in range(4):
        named = "%LMQ%a,%LMQ%b" if number % 2 else "%LMQ%a"
        yield sent(properties=properties(INNER_MULTI_DISPATCH=named))
    for topic in LIGHT:
        place = {"topic": topic, "queueId": "0"}
        yield Question(30, place, settles=True)
        yield Question(31, place, settles=True)
        for group in GROUPS:
            whose = {**place, "consumerGroup": group}
            for offset in (0, 1, 4, 9):
                yield pulled(topic, group, offset)
            yield pulled(topic, group, 0, queueId="1")
            yield pulled(topic, group, 0, subscription="Tag1")
            yield Question(14, whose)
            yield Question(15, {**whose, "commitOffset": "2"})
            yield Question(14, whose)
            yield Question(15, {**whose, "topic": "no-topic", "commitOffset": "2"})
    yield Question(43, {})
    yield sent(topic="%LMQ%c", queueId=1)
    yield pulled("no-light-topic", "usual", 0)


def kept(broker: RocketMQBroker | LocalBroker) -> str:
    path = broker.store / "config" / "lmqConsumerOffset.json"
    return re.sub(r'"timestamp":\d+', "", path.read_text()) if path.exists() else ""


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_light_queues_are_answered_as_rocketmq_does(version: str, tmp_path: Path) -> None:
    need([version])
    five = rocketmq.is_five(version)
    with ExitStack() as stack:
        real = stack.enter_context(RocketMQBroker(tmp_path / "real", version, **SETTINGS))
        settings = {"compat": "5" if five else "4.9", **OURS, **SETTINGS, **rocketmq.PATIENCE}
        ours = stack.enter_context(LocalBroker(tmp_path / "ours", **settings))
        peers = [Peer(one.port, {rf"(7F000001){one.port:08X}": r"\1PORT", **MASKS}) for one in (real, ours)]
        for peer in peers:
            stack.callback(peer.close)
        unlike = differences(peers[0], peers[1], story())
        assert not unlike, f"{len(unlike)} answers differ:\n" + "\n".join(unlike)
        await_that(lambda: kept(real) == kept(ours) != "", "the files are the same")
        stack.pop_all().close()
        (ours.store / "config" / "consumerOffset.json").unlink()
        with LocalBroker(tmp_path / "ours", **settings) as ours:
            peer = Peer(ours.port)
            whose = {"topic": "%LMQ%a", "queueId": "0", "consumerGroup": "%LMQ%me"}
            assert peer.ask(Question(14, whose)).ext_fields == {"offset": "2"}, "RocketMQ's file alone says it, too"
            peer.close()
