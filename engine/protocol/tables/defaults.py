"""The topics and consumer groups that every broker has by default, and the default settings of a group.

Implements: TopicConfigManager.init, SubscriptionGroupManager.init
"""

from __future__ import annotations

from typing import Any, NamedTuple

from store.compat import Line
from store.message import topics
from store.message.delay import SCHEDULE_TOPIC

PERM_INHERIT, PERM_READ_WRITE = 1, 6
BENCHMARK_QUEUES, SCHEDULE_QUEUES, CLUSTER_QUEUES, REVIVE_QUEUES = 1024, 18, 16, 8
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)  # fmt: skip
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

Value = dict[str, Any]


class Identity(NamedTuple):
    """Whose metadata it is, and in which line's form."""

    line: Line
    cluster: str
    broker_name: str
    default_topic_queue_nums: int = 8
    auto_create_topics: bool = True
    has_timers: bool = False  # 5.x's timer wheel, which has a topic
    trace_topic: str = ""  # where clients send what they trace; empty: nowhere of its own
    has_light_queues: bool = False  # enableLmq: light topics and groups are there without an entry


def group_config(group: str, line: Line) -> Value:
    """Return an entry of subscriptionGroupTable, with RocketMQ's defaults."""
    config: Value = {
        "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
        "groupName": group, "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }  # fmt: skip
    if line.tables.group_policies:
        policy = {"type": "CUSTOMIZED"}
        config |= {"attributes": {}, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15, "groupSysFlag": 0}
        config["groupRetryPolicy"] = policy
    return config


def default_topics(of: Identity) -> list[tuple[str, int, int]]:
    """(topic, queues, perm) that every broker has."""
    all_of_it = PERM_READ_WRITE | PERM_INHERIT
    defaults = [
        (topics.SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
        (topics.BENCHMARK_TOPIC, BENCHMARK_QUEUES, PERM_READ_WRITE),
        (of.cluster, CLUSTER_QUEUES, all_of_it),
        (of.broker_name, 1, all_of_it),
        (topics.OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE),
        (SCHEDULE_TOPIC, SCHEDULE_QUEUES, PERM_READ_WRITE),
        (f"{of.cluster}_REPLY_TOPIC", 1, PERM_READ_WRITE),
    ]
    if of.trace_topic:
        defaults.append((of.trace_topic, 1, PERM_READ_WRITE))
    if of.auto_create_topics:
        defaults.append((topics.AUTO_CREATE_TOPIC, of.default_topic_queue_nums, all_of_it))
    if of.line.tables.timer_topic and of.has_timers:
        defaults.append((topics.TIMER_TOPIC, 1, PERM_READ_WRITE))
    if of.line.tables.transaction_topics:
        defaults += [
            (topics.HALF_TOPIC, 1, PERM_READ_WRITE),
            (topics.OP_TOPIC, 1, PERM_READ_WRITE),
            (f"rmq_sys_REVIVE_LOG_{of.cluster}", REVIVE_QUEUES, PERM_READ_WRITE),
            (f"rmq_sys_SYNC_BROKER_MEMBER_{of.broker_name}", 1, PERM_INHERIT),
        ]
    return defaults
