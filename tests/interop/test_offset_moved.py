"""A group asks for an offset which its queue does not have: what a real broker writes about it, ours does, too."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from store.message.record import Message, decode
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
from tools.common.local_broker import LocalBroker

SECONDS = 120
UPDATE_TOPIC, UPDATE_GROUP, PULL, MAX_OFFSET, MOVED = 17, 200, 11, 30, 21
EVENTS = "OFFSET_MOVED_EVENT"
ASKED = (99, 3, 10, 4)  # of a queue with three messages: two that it does not have, one that is its end, two more


def pulled(client: Client, topic: str, offset: int) -> tuple[int, bytes]:
    fields = {
        "consumerGroup": "asks", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    header, body = client.exchange(PULL, fields)
    return int(header["code"]), body


def end_of(client: Client) -> int:
    """Where the queue ends: who waits by pulling makes events, too."""
    return int(client.request(MAX_OFFSET, {"topic": "asked", "queueId": 0})["extFields"]["offset"])


def messages(body: bytes) -> list[Message]:
    found = []
    while body:
        found.append(decode(body, 0))
        body = body[int.from_bytes(body[:4], "big") :]
    return found


def events(client: Client, side: str) -> list[dict[str, Any]]:
    """What is the same on both sides of each event that was written."""

    def are_there() -> list[Message]:
        code, body = pulled(client, EVENTS, 0)
        seen = messages(body) if code == 0 else []
        return seen if len(seen) >= len(ASKED) - 1 else []

    return [
        {
            "body": bytes(one.body),
            "properties": one.properties,
            "flag": one.flag,
            "sys flag": one.sys_flag,
            "queue": one.queue_id,
            "offset": one.queue_offset,
            "times": one.reconsume_times,
            "is own": one.born_host.port == one.store_host.port,
        }
        for one in await_that(are_there, f"{side} wrote the events", SECONDS, pause=0.1)
    ]


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_an_offset_that_a_queue_does_not_have_makes_the_same_event(version: str, tmp_path: Path) -> None:
    """Of 5.x it makes none: a message that is sent afterwards comes to its queue, and the events' is as empty."""
    need([version])
    five = rocketmq.is_five(version)
    sizes = {"mappedFileSizeCommitLog": 1 << 20, "brokerName": "broker-a"}
    keys = {**sizes, **rocketmq.PATIENCE, "compat": "5" if five else "4.9", "ringSizeInBytes": 1 << 20}
    written: list[list[Any]] = []
    with ExitStack() as stack:
        real = stack.enter_context(RocketMQBroker(tmp_path / "real", version, **sizes))
        ours = stack.enter_context(LocalBroker(tmp_path / "ours", **keys, maxMessageSize=65536))
        for side, port in (("RocketMQ", real.port), ("ours", ours.port)):
            client = stack.enter_context(Client(port))
            topic = {"topic": "asked", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                     "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
            assert client.request(UPDATE_TOPIC, topic)["code"] == 0
            assert client.exchange(UPDATE_GROUP, body=b'{"groupName":"asks"}')[0]["code"] == 0
            for _ in range(3):
                client.send("asked", 0, b"x")
            await_that(lambda client=client: end_of(client) == 3, "they are in the queue", pause=0.1)
            assert [pulled(client, "asked", offset)[0] == MOVED for offset in ASKED] == [True, False, True, True]
            if five:
                client.send("asked", 0, b"behind the events that are none")
                await_that(lambda client=client: end_of(client) == 4, "it is in the queue", pause=0.1)
                written.append([pulled(client, EVENTS, 0)[0]])
            else:
                written.append(events(client, side))
    assert written[1] == written[0]
    assert five or b'"offsetNew":3,"offsetRequest":99' in written[0][0]["body"]
