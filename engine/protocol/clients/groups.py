"""Groups and retry topics that a heartbeat, or a pull, makes.

Implements: SubscriptionGroupManager.findSubscriptionGroupConfig, TopicConfigManager.createTopicInSendMessageBackMethod
"""

from __future__ import annotations

from typing import Any

from engine.protocol.tables import light
from engine.protocol.tables.defaults import PERM_READ_WRITE, group_config
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import is_name
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN
from store.tables.tables import topic_config

GROUPS_MAX = TOPICS_MAX = 50_000  # what one frame takes in one table
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
UNIT_SUBSCRIBED = 2  # TopicSysFlag.FLAG_UNIT_SUB

Value = dict[str, Any]


def find_group(metadata: Metadata, group: str, *, makes: bool, now_ms: int) -> Value | None:
    """A group's configuration; one that nobody made is made where that is allowed (`makes`: autoCreate…)."""
    config = metadata.groups.get(group)
    if config is not None:
        return config
    line = metadata.identity.line
    if light.has(metadata.groups, group, metadata.identity):  # a light one, which is not kept
        return group_config(group, line)
    is_allowed = makes or group.startswith(SYSTEM_GROUP_PREFIX)
    if line.groups.checks_group_names and not TOPIC_PATTERN.fullmatch(group):
        is_allowed = False
    if not is_allowed or not is_name(group) or len(metadata.groups) >= GROUPS_MAX:
        return None
    config = group_config(group, line)
    metadata.set_group(config, now_ms)
    return config


def make_retry_topic(metadata: Metadata, group: Value, *, is_unit: bool, is_ordered: bool, now_ms: int) -> bool:
    """See that a group has its retry topic; whether it is new."""
    topic, line = RETRY_PREFIX + str(group["groupName"]), metadata.identity.line
    is_ordered = is_ordered and line.groups.retry_topics_are_ordered
    known = metadata.topics.get(topic)
    if known is not None:
        if line.groups.retry_topics_are_ordered and bool(known.get("order")) != is_ordered:
            metadata.set_topic({**known, "order": is_ordered}, now_ms)
        return False
    if len(metadata.topics) >= TOPICS_MAX:
        return False
    queues = int(group["retryQueueNums"])
    config = topic_config(
        topic,
        queues,
        queues,
        PERM_READ_WRITE,
        line=line,
        order=is_ordered,
        topicSysFlag=UNIT_SUBSCRIBED if is_unit else 0,
    )
    metadata.set_topic(config, now_ms)
    return True
