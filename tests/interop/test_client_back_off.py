"""Failed messages that are given back to RocketMQ's brokers: delivered again, or made dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from engine.clients.cluster import Cluster
from engine.clients.consuming.back_off import DEAD_LETTER, first_topic, resent, send_back_fields
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from store.message import properties
from store.message.record import Message, decode
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.rocketmq import RocketMQBroker

SECONDS, LEVELS = 60.0, " ".join(["1s"] * 18)
TOPIC = "orders"
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=rocketmq.VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQBroker]:
    """A broker whose delays are all one second."""
    need([request.param])
    home = tmp_path_factory.mktemp("broker")
    with RocketMQBroker(home, request.param, messageDelayLevel=LEVELS) as running:
        yield running


def asked(broker: RocketMQBroker, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
    async def exchange() -> RemotingCommand:
        address = f"127.0.0.1:{broker.port}"
        cluster = Cluster("", address, SECONDS, None)
        try:
            return await cluster.to(address).ask(code, fields, body)
        finally:
            await cluster.close()

    return asyncio.run(exchange())


def send(broker: RocketMQBroker, topic: str, body: bytes, texts: dict[str, str], **fields: int) -> None:
    header = {
        "a": "writers", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": str(time.time_ns() // 1_000_000),
        "h": "0", "i": properties.format(texts).decode(), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    header |= {name: str(value) for name, value in fields.items()}
    answer = asked(broker, RequestCode.SEND_MESSAGE_V2, header, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pulled(broker: RocketMQBroker, topic: str, group: str) -> list[Message]:
    """The messages of the topic's first queue."""
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    answer = asked(broker, RequestCode.PULL_MESSAGE, fields)
    body, messages, at = bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b"", [], 0
    while at < len(body):
        messages.append(decode(body, at))
        at += messages[-1].size
    return messages


def one(broker: RocketMQBroker, topic: str, group: str, wanted: Callable[[Message], bool]) -> Message:
    """The message that is wanted, once it was delivered."""
    found: list[Message] = []

    def is_there() -> bool:
        found[:] = filter(wanted, pulled(broker, topic, group))
        return bool(found)

    await_that(is_there, f"{topic} has the message")
    [message] = found
    return message


def failed(broker: RocketMQBroker, group: str) -> Message:
    """A message that the group's consumer could not consume."""
    send(broker, TOPIC, group.encode(), {"UNIQ_KEY": f"unique-{group}", "TAGS": "red"})
    return one(broker, TOPIC, group, lambda message: bytes(message.body) == group.encode())


def give_back(broker: RocketMQBroker, message: Message, group: str, **options: int) -> None:
    answer = asked(broker, RequestCode.CONSUMER_SEND_MSG_BACK, send_back_fields(message, group, "broker-a", **options))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def test_a_message_given_back_twice_comes_twice_and_counts_its_failures(broker: RocketMQBroker) -> None:
    group = "retrying"
    first = failed(broker, group)
    give_back(broker, first, group)
    for times in (1, 2):
        again = one(broker, f"%RETRY%{group}", group, lambda message: message.reconsume_times == times)  # noqa: B023
        assert (bytes(again.body), again.tags, first_topic(again, group)) == (group.encode(), "red", TOPIC)
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.message_id  # brokers do not read originMsgId
        give_back(broker, again, group)


@pytest.mark.parametrize("options", [{"level": DEAD_LETTER}, {"retries": 0}], ids=str)
def test_a_message_that_is_given_up_becomes_a_dead_letter(broker: RocketMQBroker, options: dict[str, int]) -> None:
    group = f"giving-up-{next(iter(options))}"
    give_back(broker, failed(broker, group), group, **options)
    dead = one(broker, f"%DLQ%{group}", group, lambda message: True)
    assert (bytes(dead.body), dead.properties["RETRY_TOPIC"]) == (group.encode(), TOPIC)


@pytest.mark.parametrize(("retries", "topic"), [(16, "%RETRY%"), (0, "%DLQ%")])
def test_a_failed_message_that_its_consumer_sends_itself_comes_again_or_is_dead(
    broker: RocketMQBroker, retries: int, topic: str
) -> None:
    group = f"sending-{retries}"
    first = failed(broker, group)
    again = resent(first, bytes(first.body), group, retries)
    send(broker, again.topic, again.body, again.properties, h=again.flag, j=again.reconsume_times,
         l=again.max_reconsume_times)  # fmt: skip
    mine = one(broker, topic + group, group, lambda message: True)
    assert (mine.reconsume_times, mine.properties["ORIGIN_MESSAGE_ID"]) == (1, f"unique-{group}")
    assert mine.properties["RETRY_TOPIC"] == TOPIC
