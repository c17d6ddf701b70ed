"""Topics as a file or an answer says them, each made whole: what it does not say has RocketMQ's defaults.

Implements: TopicConfig's defaults
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from engine.protocol.tables.defaults import PERM_READ_WRITE
from store.compat import Line
from store.errors import MalformedConfig
from store.names import TOPICS
from store.tables import tables as broker_tables
from store.tables.fastjson import INT32_MAX, INT32_MIN

TOPIC_QUEUE_NUMS = 16  # of a topic that does not say
QUEUE_NUMS = ("readQueueNums", "writeQueueNums")
Value = dict[str, Any]


def sound_topics(value: Value, line: Line) -> Generator[int, None, dict[str, Value]]:
    """The topics of a file, or of an answer; in steps. Raises MalformedConfig."""
    sound = {}
    topics = yield from broker_tables.topics_in_steps(value, TOPICS)
    for topic, fields in topics.items():
        nums, perm = TOPIC_QUEUE_NUMS, PERM_READ_WRITE
        config = {**broker_tables.topic_config(topic, nums, nums, perm, line=line), **fields}
        wrong = [name for name in (*QUEUE_NUMS, "perm") if not _is_int(config[name])]
        if wrong or not isinstance(config.get("attributes") or {}, dict):
            raise MalformedConfig(TOPICS, f"{topic}: {', '.join(wrong) or 'attributes'} is of a wrong kind")
        sound[topic] = config
        yield 1
    return sound


def _is_int(value: object) -> bool:
    return type(value) is int and INT32_MIN <= value <= INT32_MAX
