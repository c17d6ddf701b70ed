"""Batch queues (queue.type=BatchCQ): RocketMQ's 5.3.3 client and bare pulls get of ours what a real broker gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.conditions import await_that
from tests.interop.clients import CREATE_TOPIC, served
from tests.interop.needs import need
from tests.interop.remoting import GET_ROUTE, Client
from tests.interop.rocketmq import RealClient

VERSION, TOPIC = "5.3.3", "batches"
PULL, MAX_OFFSET = 11, 30
BATCHES = ((0, 3, 3), (3, 1, 1), (4, 40, 40), (44, 2, 2), (46, 1, 1), (47, 30, 15))  # first, count, of how many each
Seen = list[Any]


class Names:
    """Where a client finds brokers."""

    version = VERSION

    def __init__(self, address: str) -> None:
        self.address = address


def fixed(line: dict[str, Any]) -> dict[str, Any]:
    """Of what is said of a message what time and place do not change."""
    said = {name: value for name, value in line.items() if name != "msgId"}
    properties = {name: value for name, value in line.get("properties", {}).items() if name != "UNIQ_KEY"}
    return {**said, "properties": properties}


def make_topic(client: Client, names: Client) -> None:
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": "+queue.type=BatchCQ",
    }  # fmt: skip
    answer = client.request(CREATE_TOPIC, fields)
    assert answer["code"] == 0, answer
    await_that(lambda: names.request(GET_ROUTE, {"topic": TOPIC})["code"] == 0, "the name server knows it")


def pulled(client: Client, offset: int, count: int, tags: str) -> dict[str, Any]:
    """What a bare pull is answered with: which code, where it goes on, how much came."""
    fields = {
        "consumerGroup": "bare", "topic": TOPIC, "queueId": 0, "queueOffset": offset, "maxMsgNums": count, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": tags, "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    answer, body = client.exchange(PULL, fields)
    said = answer.get("extFields") or {}
    offsets = {name: said.get(name) for name in ("nextBeginOffset", "minOffset", "maxOffset")}
    return {"asked": (offset, count, tags), "code": answer["code"], "bytes": len(body), **offsets}


def play(home: Path, kind: str) -> Seen:
    seen: Seen = []
    with served(home, kind, ()) as there, Client(there.port) as client:
        with Client(int(there.address.rpartition(":")[2])) as names:
            make_topic(client, names)
        with RealClient(home / "client", Names(there.address)) as talking:
            for first, count, batch in BATCHES:
                talking.tell("produce", topic=TOPIC, first=first, count=count, batch=batch)
                lines, error = talking.rest()
                seen.append([[(line["n"], line["status"], line["queueOffset"]) for line in lines], error])
            end = {"topic": TOPIC, "queueId": 0}

            def shown() -> int:
                return int((client.request(MAX_OFFSET, end).get("extFields") or {}).get("offset", 0))

            wanted = sum(count if batch == count else batch for _, count, batch in BATCHES)
            await_that(lambda: shown() == wanted, f"{kind}: the queue ends at {wanted}")
            for tags in ("*", "Tag1"):
                seen.append([fixed(line) for line in talking.ask("consume", topic=TOPIC, tags=tags)])
        for offset in range(wanted + 2):
            seen += [pulled(client, offset, count, tags) for count in (1, 2, 32) for tags in ("*", "Tag2")]
    return seen


@pytest.mark.interop
@pytest.mark.peer
def test_what_clients_see_of_batch_queues_is_what_they_see_at_a_real_broker(tmp_path: Path) -> None:
    need([VERSION])
    real, ours = play(tmp_path / "real", VERSION), play(tmp_path / "ours", "ours 5")
    assert len(real) == len(ours)
    for theirs, here in zip(real, ours, strict=True):
        assert here == theirs
    bodies = [line for line in real[len(BATCHES)] if "properties" in line and "n" in line["properties"]]
    assert {int(line["properties"]["n"]) for line in bodies} >= set(range(47)), "the client unwrapped what was wrapped"
