"""A store opened in a program gives what RocketMQ's own classes read from it, bodies as they were sent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from slipstream import open_store
from store.errors import NoBroker, NotAStore, OffsetOutOfRange
from store.message.record import SysFlag
from store.reading.extent import require_running
from store.reading.opened import NoSuchTopic, OpenStore, ReadMessage
from tests.store.golden import STORES, manifest_lines, unpack


@pytest.fixture(params=STORES, ids="-".join)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OpenStore, list[dict[str, Any]]]:
    """A store, and the manifest's line of each of its messages."""
    version, name = request.param
    lines = [json.loads(line) for line in manifest_lines(version, name)]
    return open_store(unpack(version, name, tmp_path)), [line for line in lines if line["kind"] == "message"]


def is_batch(line: dict[str, Any]) -> bool:
    return bool(line["sysFlag"] & SysFlag.INNER_BATCH)


def summary(message: ReadMessage) -> tuple[Any, ...]:
    body = hashlib.sha256(message.body).hexdigest()
    place = message.physical_offset, message.topic, message.queue_id, message.queue_offset
    return (*place, message.tags, message.keys, message.properties, message.born_timestamp_ms, body)


def expected(line: dict[str, Any]) -> tuple[Any, ...]:
    place = line["physicalOffset"], line["topic"], line["queueId"], line["queueOffset"]
    return (*place, line["tags"], line["keys"], line["properties"], line["bornTimestamp"], line["bodySha256"])


def test_messages_are_those_of_rocketmq(opened: tuple[OpenStore, list[dict[str, Any]]]) -> None:
    store, lines = opened
    batches = {line["physicalOffset"]: int(line["properties"]["INNER_NUM"]) for line in lines if is_batch(line)}
    messages = list(store.messages())
    alone = [message for message in messages if message.physical_offset not in batches]
    assert [summary(message) for message in alone] == [expected(line) for line in lines if not is_batch(line)]
    for offset, count in batches.items():
        inside = [message for message in messages if message.physical_offset == offset]
        assert len(inside) == count and len({message.queue_offset for message in inside}) == count
        assert store.at(offset) is None
    assert not store.is_live and store.offsets()[0] == lines[0]["physicalOffset"]
    assert sum(topic.messages for topic in store.topics().values()) == len(lines)


def test_messages_are_found_by_topic_offset_and_key(opened: tuple[OpenStore, list[dict[str, Any]]]) -> None:
    store, lines = opened
    one = next(line for line in lines[len(lines) // 2 :] if not is_batch(line))
    offset, topic = one["physicalOffset"], one["topic"]
    of_topic = [message.physical_offset for message in store.messages(topic, start=offset)]
    behind = [line["physicalOffset"] for line in lines if line["topic"] == topic and line["physicalOffset"] >= offset]
    assert sorted(set(of_topic)) == behind
    message = store.at(offset)
    assert message is not None and summary(message) == expected(one) and store.at(offset + 1) is None
    keyed = next(line for line in lines if line["keys"] and not is_batch(line))
    newest = store.find(keyed["keys"].split()[0], keyed["topic"], limit=1000)
    assert keyed["physicalOffset"] in [each.physical_offset for each in newest]
    with pytest.raises(OffsetOutOfRange):
        next(store.messages(start=store.offsets()[1] + 1))


def test_a_topic_that_no_store_has_is_an_error_and_one_without_messages_is_not(tmp_path: Path) -> None:
    version, name = STORES[0]
    root = unpack(version, name, tmp_path)
    store = open_store(root)
    topic = next(iter(store.topics()))
    with pytest.raises(NoSuchTopic, match=f"did you mean {topic!r}"):
        list(store.messages(topic + "x"))
    with pytest.raises(NoSuchTopic):
        list(store.messages("../commitlog"))
    assert not list(store.messages(topic, start=store.offsets()[1]))


def test_a_directory_that_is_missing_is_not_a_store_without_a_broker(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="no such directory"):
        require_running(tmp_path / "typo")
    with pytest.raises(NoBroker):
        require_running(tmp_path)


def test_a_folder_that_is_no_store_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        open_store(tmp_path)
