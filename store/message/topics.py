"""Topics by their names: RocketMQ's own, those of retries and dead letters, multi-dispatch queues.

Implements: TopicValidator.isSystemTopic, isNotAllowedSendTopic, MixAll.isLmq, getRetryTopic, getDLQTopic
spec: store-formats, sections 8 and 16
"""

from __future__ import annotations

import re

from store.message.delay import SCHEDULE_TOPIC

TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")  # of the whole name

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC, TRACE_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC"
AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, SELF_TEST_TOPIC = "TBW102", "BenchmarkTest", "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC, CHECKPOINT_TOPIC = "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"
SYSTEM_PREFIX = "rmq_sys_"
TIMER_TOPIC = SYSTEM_PREFIX + "wheel_timer"
RETRY_PREFIX, DEAD_PREFIX, LMQ_PREFIX = "%RETRY%", "%DLQ%", "%LMQ%"

SYSTEM_TOPICS = frozenset({
    AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, TRACE_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC,
    SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, CHECKPOINT_TOPIC,
})  # fmt: skip
NOT_FOR_CLIENTS = frozenset({
    SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
})  # fmt: skip


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ's brokers make this topic for themselves. Retry and dead-letter topics are not among them.

    Nor are those named after a cluster or a broker, which a broker knows by its own settings only.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_not_for_clients(topic: str) -> bool:
    """Whether a broker refuses what a client sends to this topic."""
    return topic in NOT_FOR_CLIENTS


def is_lmq(name: str) -> bool:
    """Whether it names a multi-dispatch queue, whose queue id is always 0."""
    return name.startswith(LMQ_PREFIX)


def group_of(topic: str) -> str | None:
    """The consumer group whose retries or dead letters the topic holds; None for any other topic."""
    for prefix in (RETRY_PREFIX, DEAD_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None
