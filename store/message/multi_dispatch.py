"""Further queues that a message names: the `%LMQ%` queues of MQTT and their offsets, as the broker wrote them down.

Implements: MultiDispatchUtils, ConsumeQueue.multiDispatchLmqQueue (4.9.7 and 5.3.3)
Property INNER_MULTI_DISPATCH has the names, INNER_MULTI_QUEUE_OFFSET the offsets there; commas between. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from store.compat import QueueRules
from store.message.delay import SCHEDULE_TOPIC
from store.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from store.message.topics import RETRY_PREFIX, SYSTEM_PREFIX, is_lmq

SEPARATOR = ","
JAVA_LONG = re.compile(r"[+-]?[0-9]{1,18}").fullmatch


class Target(NamedTuple):
    """A queue besides the message's own, and the message's offset there."""

    name: str
    queue_id: int
    queue_offset: int


def targets(
    topic: str, queue_id: int, properties: Mapping[str, str], *, lmq: bool, rules: QueueRules
) -> list[Target] | None:
    """Return where else the message belongs.

    None when its two properties contradict each other: then RocketMQ leaves it out.

    `lmq`: the setting enableLmq. Without it, and for names without `%LMQ%`, the queue id is the message's own.
    """
    names, offsets = properties.get(MULTI_DISPATCH, ""), properties.get(MULTI_QUEUE_OFFSET, "")
    if not names.strip() or not offsets.strip():
        return []
    is_system = topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC
    if is_system and not rules.dispatches_system_topics:
        return []
    name_list, offset_list = _java_split(names), _java_split(offsets)
    if len(name_list) != len(offset_list) or not all(map(JAVA_LONG, offset_list)):
        return None
    return [
        Target(name, 0 if lmq and is_lmq(name) else queue_id, int(offset))
        for name, offset in zip(name_list, offset_list, strict=True)
        if rules.dispatches_slashed_names or "/" not in name
    ]


def _java_split(text: str) -> list[str]:
    """String.split: no empty parts at the end."""
    parts = text.rstrip(SEPARATOR)
    return parts.split(SEPARATOR) if parts else []
