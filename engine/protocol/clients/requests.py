"""What clients say of themselves, and ask of each other: heartbeats, goodbyes, members of a group, locks of queues.

Implements: ClientManageProcessor, ConsumerManageProcessor.getConsumerListByGroup, AdminBrokerProcessor.lockBatchMQ
spec: remoting, 7 requests from clients
What is to be sent is left in the managers' notices and hang_ups; topics to be registered in `wants_registration`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.protocol.clients import lock_bodies
from engine.protocol.clients.client_tables import Member, TooMany
from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.heartbeat import TAG, ConsumerData, HeartbeatData, checked_config_of, heartbeat_of
from engine.protocol.clients.lock_bodies import LockRequest
from engine.protocol.clients.locks import RebalanceLockManager
from engine.protocol.clients.producers import ProducerManager
from engine.protocol.remoting.answers import (
    NULL_POINTER,
    Answerer,
    Json,
    Refused,
    Thrown,
    given,
    null_pointer,
    required,
    shown,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import ONEWAY_FLAG, RemotingCommand
from engine.protocol.remoting.places import Place
from engine.protocol.tables import light
from engine.protocol.tables.defaults import PERM_READ_WRITE, group_config
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import is_name
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN
from store.tables import fastjson
from store.tables.tables import topic_config

# Groups and retry topics that a heartbeat, or a pull, makes.
#
# Implements: SubscriptionGroupManager.findSubscriptionGroupConfig,
#     TopicConfigManager.createTopicInSendMessageBackMethod
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


SUPPORTS_V2, IS_CHANGED = "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"
NOTIFIES = "notifyConsumerIdsChangedEnable"


class ClientRequests(Answerer):
    """The requests of one broker's clients. `clock_ms` is monotonic."""

    def __init__(
        self,
        compat: str,
        metadata: Metadata,
        consumers: ConsumerManager,
        producers: ProducerManager,
        locks: RebalanceLockManager,
        clock_ms: Callable[[], int],
        *,
        makes_groups: bool,
    ) -> None:
        super().__init__(compat)
        self.metadata, self.consumers, self.producers, self.locks = metadata, consumers, producers, locks
        self._clock_ms, self._makes_groups = clock_ms, makes_groups
        self.wants_registration = False
        self.handlers = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
        }

    def group(self, name: str, now_ms: int) -> Json | None:
        """Return a group's settings, made where allowed, like findSubscriptionGroupConfig."""
        return find_group(self.metadata, name, makes=self._makes_groups, now_ms=now_ms)

    def notice(self, group: str) -> RemotingCommand:
        """Return the request that notifies a member that its group changed."""
        fields = {"consumerGroup": group}
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        return RemotingCommand(code, flag=ONEWAY_FLAG, ext_fields=fields, version=self.version)

    # who is there

    def _heartbeat(self, request: RemotingCommand, channel: int, now_ms: int) -> RemotingCommand:
        heartbeat = heartbeat_of(request.body, now_ms)
        member = (channel, heartbeat.client_id, request.language, request.version, self._clock_ms())
        is_changed = False
        try:
            for data in heartbeat.consumers:
                is_changed |= self._note_fingerprint(data, heartbeat)
                self._register(data, Member(*member), heartbeat, now_ms)
            for group in heartbeat.producers:
                self.producers.register(group, Member(*member))
        except TooMany as too_many:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(too_many)) from None
        if not self.line.broker.heartbeat_is_answered:
            return self.answered(request)
        is_changed |= not heartbeat.fingerprint  # of a client that does not say, the answer is always that
        return self.answered(request, ext_fields={SUPPORTS_V2: "true", IS_CHANGED: str(is_changed).lower()})

    def _register(self, data: ConsumerData, member: Member, heartbeat: HeartbeatData, now_ms: int) -> None:
        """Register a consumer in one of its groups."""
        config = self.group(data.group, now_ms)
        if config is None and not self.line.groups.registers_without_group:
            return
        if config is not None:
            ordered = any(self.metadata.topics.get(one.topic, {}).get("order") for one in data.subscriptions)
            self.wants_registration |= make_retry_topic(
                self.metadata, config, is_unit=data.unit_mode, is_ordered=ordered, now_ms=now_ms
            )
        says_all = not (self.line.groups.fingerprints and heartbeat.fingerprint and heartbeat.without_sub)
        notifies = config is None or bool(config[NOTIFIES])
        self.consumers.register(member, data, notifies=notifies, with_subscriptions=says_all)
        self.consumers.groups[data.group].fingerprint = heartbeat.fingerprint

    def _note_fingerprint(self, data: ConsumerData, heartbeat: HeartbeatData) -> bool:
        """Whether somebody of the group said otherwise before, or what "nothing changed" is about is not known here."""
        group = self.consumers.groups.get(data.group)
        if group is None or group.fingerprint is None:
            return heartbeat.without_sub
        return group.fingerprint != heartbeat.fingerprint

    def _unregister(self, request: RemotingCommand, channel: int, now_ms: int) -> RemotingCommand:
        client_id = required(request, "clientID")
        if (group := given(request, "producerGroup")) is not None:
            self.producers.unregister(group, channel)
        if (group := given(request, "consumerGroup")) is not None:
            config = self.group(group, now_ms)
            notifies = config is None or bool(config[NOTIFIES])
            self.consumers.unregister(group, channel, client_id, notifies=notifies)
        return self.answered(request, ext_fields={})

    def _members(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        name = given(request, "consumerGroup")
        if name is None:
            key = null_pointer("Object.hashCode()", '"key"')
            raise Thrown(f"{NULL_POINTER}: {key}" if self.line.broker.tells_hash_code else NULL_POINTER)
        group = self.consumers.groups.get(name)
        if group is None or not group.members:
            remark = f"no consumer for this group, {name}"
            return self.answered(request, ResponseCode.SYSTEM_ERROR, remark, ext_fields={})
        body = fastjson.dumps({"consumerIdList": group.client_ids}).encode("utf-8", "replace")
        return self.answered(request, ext_fields={}, body=body)

    def _check_config(self, request: RemotingCommand, _channel: int, now_ms: int) -> RemotingCommand:
        """Check a subscription's filter: only tags are supported."""
        subscription = checked_config_of(request.body, now_ms).subscription
        if subscription is not None and subscription.expression_type not in (None, "", TAG):
            remark = f"The broker does not support consumer to filter message by {shown(subscription.expression_type)}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return self.answered(request)

    # locks

    def _lock(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        return self.locked(request, self.try_lock(lock_bodies.request_of(request.body)))

    def _unlock(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        self.unlock(lock_bodies.request_of(request.body))
        return self.answered(request)

    def try_lock(self, asked: LockRequest) -> list[Place]:
        """Lock the queues for a client; return those it has. Raises Refused."""
        try:
            return self.locks.lock(asked.group, asked.queues, asked.client_id, self._clock_ms())
        except TooMany as too_many:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(too_many)) from None

    def unlock(self, asked: LockRequest) -> None:
        """Unlock the queues at this broker."""
        self.locks.unlock(asked.group, asked.queues, asked.client_id)

    def locked(self, request: RemotingCommand, queues: list[Place]) -> RemotingCommand:
        """The answer that these are the client's."""
        return self.with_json(request, lock_bodies.answer_value(queues))
