"""Files of topics and groups, of which only what changed is written anew: the bytes that the whole table makes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.protocol.tables.bodies import MAPPINGS
from engine.protocol.tables.defaults import PERM_READ_WRITE, Identity, group_config
from engine.protocol.tables.metadata import Metadata
from store.compat import LINES, line_of
from store.names import GROUPS, TOPICS
from store.tables import fastjson, json_files
from store.tables.steps import at_once
from store.tables.tables import TOPIC_TABLE, VERSION, DataVersion, topic_config, topics_value

NOW = 1_700_000_000_000


def change(metadata: Metadata, compat: str, generator: random.Random) -> None:
    topic, group, line = f"größe-{generator.randrange(30)}", f"g-{generator.randrange(30)}", line_of(compat)
    config = topic_config(topic, generator.randrange(1, 9), 4, 6, line=line)
    match generator.randrange(9):
        case 0:
            metadata.delete_topic(topic, NOW)
        case 1:
            metadata.set_order_topics({topic: "a:1"}, NOW)
        case 2:
            table = {topic: {**config, "readQueueNums": 12}}
            metadata.take_served_topics(metadata.served_topics(topics_value(table, metadata.versions[TOPICS])))
        case 3:
            metadata.delete_group(group, forget_offsets=False, now_ms=NOW)
        case 8:
            metadata.forbid(group, topic, 1, is_forbidden=generator.random() < 0.5, now_ms=NOW)
        case 4 | 5:
            metadata.set_group({**group_config(group, line), "retryQueueNums": generator.randrange(4)}, NOW)
        case _:
            metadata.set_topic(config, NOW)


def topics_body(metadata: Metadata, perm_mask: int) -> dict[str, Any]:
    """What is said of all topics, put together at once."""
    value = metadata.value(TOPICS)
    if perm_mask & PERM_READ_WRITE != PERM_READ_WRITE:
        masked = {topic: {**of, "perm": of["perm"] & perm_mask} for topic, of in value[TOPIC_TABLE].items()}
        value = {**value, TOPIC_TABLE: masked}
    if not metadata.identity.line.tables.static_topics:
        return value
    version = metadata.versions[TOPICS]
    head = {VERSION: version.value(), "mappingDataVersion": DataVersion(0, version.timestamp_ms, 0).value()}
    return {**head, TOPIC_TABLE: value[TOPIC_TABLE], **{name: {} for name in MAPPINGS}}


def check(metadata: Metadata) -> None:
    for name in (TOPICS, GROUPS):
        assert metadata.file_text(name) == json_files.encode(metadata.value(name))
    assert metadata.groups_json() == fastjson.dumps(metadata.value(GROUPS)).encode()
    for permission in (7, 6, 4):
        body: Any = topics_body(metadata, permission)
        assert metadata.topics_json(permission) == fastjson.dumps(body).encode()


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_the_bytes_are_those_of_the_whole_tables(compat: str) -> None:
    generator, identity = random.Random(7), Identity(LINES[compat], "DefaultCluster", "broker-a")
    metadata, other = Metadata(identity, {}, NOW), Metadata(identity, {}, NOW + 1)
    check(metadata)
    for turn in range(60):
        for _ in range(generator.randrange(12)):
            change(metadata, compat, generator)
        check(metadata)
        if turn % 20 == 10:
            change(other, compat, generator)
            other.set_group(group_config("other", line_of(compat)), NOW + turn)
            at_once(metadata.take_topics(other.value(TOPICS)))
            at_once(metadata.take_groups(other.value(GROUPS)))
        check(metadata)
