"""Whether a pull may be served, in RocketMQ's order, with its codes and remarks; and what of the topic it is to get.

Implements: PullMessageProcessor.processRequest up to getMessage (spec: remoting, 7 and 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from engine.protocol.pulling.decision import PullBroker
from engine.protocol.pulling.header import PullFlag, PullHeader
from engine.protocol.pulling.subscription import (
    TagFilter,
    filter_of,
    filter_of_heartbeat,
    is_tag_type,
    is_understood,
)
from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.codes import ResponseCode
from store.message.host import Host

Json = dict[str, Any]
PERM_READ = 4
BROADCASTING = "BROADCASTING"
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"


class Forbidden(IntEnum):
    """The reasons that forbid a pull, like Java's ForbiddenType."""

    NOT_SAID = 0
    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING_DISABLED = 4
    SUBSCRIPTION = 5


class PullRefused(Refused):
    """Raised where a pull is not served; `fields` are the answer's."""

    def __init__(self, code: int, remark: str, forbidden: Forbidden = Forbidden.NOT_SAID) -> None:
        super().__init__(code, remark)
        self.forbidden = forbidden


class Pull(NamedTuple):
    """A pull that may be served."""

    header: PullHeader
    group: Json
    topic: Json
    tags: TagFilter


class Checks:
    """Decides by the tables of a front, which change under it: TopicConfig, SubscriptionGroupConfig, subscriptions."""

    def __init__(
        self,
        broker: PullBroker,
        topics: Mapping[str, Json],
        groups: Mapping[str, Json],
        subscriptions: Mapping[str, Json],
        forbidden: Mapping[str, Json],
    ) -> None:
        self._broker, self._rules, self._faq = broker, broker.line.pull, broker.line.naming.faq
        self._topics, self._groups, self._subscriptions = topics, groups, subscriptions
        self._forbidden = forbidden
        self._filters: dict[str, dict[str, tuple[Json, TagFilter]]] = {}  # by group and topic

    def of_broker(self, permission: int) -> None:
        """Raise PullRefused where this broker serves no such pulls at all."""
        if self._rules.slaves_refuse and self._broker.is_slave and not self._broker.slave_read_enable:
            raise PullRefused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if not permission & PERM_READ:
            remark = f"the broker[{self._broker.address}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark, Forbidden.BROKER)

    def knows(self, group: str) -> bool:
        """Whether there is such a group; if not, it may be made."""
        return group in self._groups

    def check(self, header: PullHeader, client: Host) -> Pull:
        """A pull of `client` that may be served. Raises PullRefused."""
        group = self._group_of(header.group)
        topic = self._topic_of(header, client)
        if header.flags & PullFlag.SUBSCRIPTION:
            tags = self._tags_of_request(header)
        else:
            tags = self._tags_of_heartbeat(header, group)
        return Pull(header, group, topic, tags)

    def _group_of(self, name: str) -> Json:
        group = self._groups.get(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {self._faq}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.get("consumeEnable", True):
            remark = f"subscription group no permission, {name}"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark, Forbidden.GROUP)
        return group

    def _topic_of(self, header: PullHeader, client: Host) -> Json:
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {self._faq}"
            raise PullRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.get("perm", 0) & PERM_READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark, Forbidden.TOPIC)
        queues = topic.get("readQueueNums", 0)
        if not 0 <= header.queue_id < queues:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:[{queues}]"
                f" consumer:[/{client.ip}:{client.port}]"
            )
            raise PullRefused(self._rules.queue_id_code, remark)
        return topic

    def _tags_of_request(self, header: PullHeader) -> TagFilter:
        kind = header.expression_type
        tags = filter_of(header.subscription, kind) if is_tag_type(kind) else None
        if tags is None and (is_tag_type(kind) or not is_understood(header.subscription, kind)):
            remark = "parse the consumer's subscription failed"
            raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        if tags is None:
            raise _not_supported(kind)
        return tags

    def _tags_of_heartbeat(self, header: PullHeader, group: Json) -> TagFilter:
        consumers = self._subscriptions.get(header.group)
        if consumers is None:
            remark = f"the consumer's group info not exist{self._faq}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.get("consumeBroadcastEnable", True) and consumers.get("messageModel") == BROADCASTING:
            remark = f"the consumer group[{header.group}] can not consume by broadcast way"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark, Forbidden.BROADCASTING_DISABLED)
        if self._forbidden and self._forbidden.get(header.group, {}).get(header.topic, 0) & PERM_READ:
            remark = f"the consumer group[{header.group}] is forbidden for topic[{header.topic}]"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark, Forbidden.SUBSCRIPTION)
        subscription = consumers.get("topics", {}).get(header.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{self._faq}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.get("subVersion", 0) < header.subscription_version:
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if not is_tag_type(subscription.get("expressionType")):
            raise _not_supported(subscription["expressionType"])
        return self._filter_of(header, subscription)

    def _filter_of(self, header: PullHeader, subscription: Json) -> TagFilter:
        """Return the filter of a subscription, made once for each version of it."""
        of_group = self._filters.setdefault(header.group, {})
        kept = of_group.get(header.topic)
        if kept is None or kept[0] is not subscription:
            kept = of_group[header.topic] = subscription, filter_of_heartbeat(subscription)
        return kept[1]

    def forget(self, group: str | None) -> None:
        """The subscriptions of a group, or of all, are others now."""
        if group is None:
            self._filters.clear()
        else:
            self._filters.pop(group, None)

    def fields_of(self, refused: PullRefused) -> dict[str, str] | None:
        """The fields of a refusal's answer; None where no header was made for it."""
        if refused.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_BUSY):
            return None
        if refused.forbidden and self._rules.forbidden_types:
            return {"forbiddenType": str(int(refused.forbidden))}
        return {}


def _not_supported(expression_type: str | None) -> PullRefused:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return PullRefused(ResponseCode.SYSTEM_ERROR, remark)
