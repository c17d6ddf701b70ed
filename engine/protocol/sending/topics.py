"""Topics that messages make: from a topic that others inherit from, or for retries and dead letters.

Implements: TopicConfigManager.createTopicInSendMessageMethod, createTopicInSendMessageBackMethod
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.protocol.sending.checks import PERM_INHERIT
from engine.protocol.tables.defaults import PERM_READ_WRITE
from store.compat import Line
from store.message.topics import AUTO_CREATE_TOPIC, RETRY_PREFIX
from store.tables.tables import topic_config

Json = dict[str, Any]
RETRY_QUEUES = DEAD_QUEUES = 1  # DLQ_NUMS_PER_GROUP


def inherited(
    topic: str,
    default_topic: str | None,
    queue_nums: int,
    sys_flag: int,
    topics: Mapping[str, Json],
    line: Line,
    *,
    auto_create: bool,
) -> Json | None:
    """A topic as its default topic has it; None where that is not to be inherited from."""
    of = topics.get(default_topic or "")
    if of is None or not of["perm"] & PERM_INHERIT or (default_topic == AUTO_CREATE_TOPIC and not auto_create):
        return None
    queues, perm = max(0, min(queue_nums, of["writeQueueNums"])), of["perm"] & ~PERM_INHERIT
    kind = of.get("topicFilterType", "SINGLE_TAG")
    return topic_config(topic, queues, queues, perm, line=line, topicFilterType=kind, topicSysFlag=sys_flag)


def of_first_message(
    topic: str,
    default_topic: str | None,
    queue_nums: int,
    sys_flag: int,
    topics: Mapping[str, Json],
    line: Line,
    *,
    auto_create: bool,
) -> Json | None:
    """Return what a message makes that is sent to a topic that is not there."""
    made = inherited(topic, default_topic, queue_nums, sys_flag, topics, line, auto_create=auto_create)
    if made is None and topic.startswith(RETRY_PREFIX):
        return given_back(topic, RETRY_QUEUES, sys_flag, line)
    return made


def given_back(topic: str, queue_nums: int, sys_flag: int, line: Line) -> Json:
    """A topic of retries, or of dead letters."""
    return topic_config(topic, queue_nums, queue_nums, PERM_READ_WRITE, line=line, topicSysFlag=sys_flag)
