"""Messages that name light queues on a running broker: how many queues there may be."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import NoQueueLeft
from engine.producer.producer import Producer
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import RemotingClient
from store.message.record import decode
from store.put.draft import starts_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 256 * 1024, "ringSizeInBytes": 1 << 20,
    "enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": 3,
}  # fmt: skip
FIELDS = {
    "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "j": "0",
    "k": "false", "m": "false",
}  # fmt: skip


def naming(*queues: str) -> str:
    return "INNER_MULTI_DISPATCH\x01" + ",".join(f"%LMQ%{queue}" for queue in queues) + "\x02"


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_message_that_names_one_light_queue_too_many_is_refused(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        with RemotingClient(f"127.0.0.1:{broker.port}", timeout=60) as client:

            def sent(text: str) -> RemotingCommand:
                return client.invoke(RemotingCommand(310, ext_fields=FIELDS | {"i": text}, body=b"x"))

            assert sent(naming("a", "b", "c")).code == ResponseCode.SUCCESS
            refused = sent(naming("a", "d"))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert str(refused.remark).startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and")
            assert sent(naming("c", "b")).code == ResponseCode.SUCCESS, "these are there"
            assert sent("").code == ResponseCode.SUCCESS
        with Producer(broker.store, timeout=60) as producer:
            with pytest.raises(NoQueueLeft, match="maxLmqConsumeQueueNum light queues exist"):
                producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%d"})
            producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    with (
        LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker,
        Producer(broker.store, timeout=60) as producer,
        pytest.raises(NoQueueLeft, match="maxLmqConsumeQueueNum"),
    ):
        producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%d"})
    light = [path.name for path in (broker.store / "consumequeue").iterdir() if path.name.startswith("%LMQ%")]
    assert sorted(light) == ["%LMQ%a", "%LMQ%b", "%LMQ%c"]


def consumed(client: RemotingClient, topic: str, group: str, offset: int, *, hold_ms: int = 0) -> RemotingCommand:
    """A pull that carries its subscription, as RocketMQ's client pulls light queues."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if hold_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return client.invoke(RemotingCommand(11, ext_fields=fields))


@pytest.mark.parametrize("compat", ["4.9", "5"])
@pytest.mark.parametrize("group", ["g", "%LMQ%me"])
def test_a_light_queue_is_read_and_its_offsets_are_kept(tmp_path: Path, compat: str, group: str) -> None:
    with (
        LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker,
        RemotingClient(f"127.0.0.1:{broker.port}", timeout=60) as client,
    ):
        if group == "g":
            made = client.invoke(RemotingCommand(200, body=b'{"groupName":"g"}'))
            assert made.code == ResponseCode.SUCCESS
        assert consumed(client, "%LMQ%a", group, 0).code == ResponseCode.PULL_NOT_FOUND, "it has no message yet"
        holding = RemotingClient(f"127.0.0.1:{broker.port}", timeout=60)
        with holding, ThreadPoolExecutor() as pool:
            held = pool.submit(consumed, holding, "%LMQ%a", group, 0, hold_ms=50_000)
            for body in (b"one", b"two"):
                sent = RemotingCommand(310, ext_fields=FIELDS | {"i": naming("a", "b")}, body=body)
                assert client.invoke(sent).code == ResponseCode.SUCCESS
            assert held.result().code == ResponseCode.SUCCESS, "the message wakes it"

        def found() -> list[tuple[bytes, str]]:
            answer = consumed(client, "%LMQ%a", group, 0)
            assert answer.code == ResponseCode.SUCCESS
            records = bytes(answer.body)
            messages = [decode(records, at) for at in starts_of(records)]
            return [(bytes(message.body), message.properties["INNER_MULTI_QUEUE_OFFSET"]) for message in messages]

        await_that(lambda: len(found()) == 2, "both are in the queue")
        assert found() == [(b"one", "0,0"), (b"two", "1,1")]
        place = {"consumerGroup": group, "topic": "%LMQ%a", "queueId": "0"}
        commit = client.invoke(RemotingCommand(15, ext_fields=place | {"commitOffset": "2"}))
        assert (commit.code, commit.remark) == (ResponseCode.SUCCESS, None)
        asked = client.invoke(RemotingCommand(14, ext_fields=place))
        assert (asked.code, asked.ext_fields) == (ResponseCode.SUCCESS, {"offset": "2"})
        assert (client.invoke(RemotingCommand(30, ext_fields=place)).ext_fields or {})["offset"] == "2"
        beyond = client.invoke(RemotingCommand(11, ext_fields=place | {
            "queueId": "1", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }))  # fmt: skip
        assert beyond.code == (29 if compat == "5" else 1) and "readQueueNums:[1]" in str(beyond.remark)
        unknown = consumed(client, "no-light-topic", group, 0)
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    topics = json.loads((broker.store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert not [topic for topic in topics if topic.startswith("%LMQ%")], "no light topic is kept"
