"""A broker's answers to administrators about its tables: several topics or groups at once, one of each, lists of names.

Implements: AdminBrokerProcessor.updateAndCreateTopicList, updateAndCreateSubscriptionGroupList, queryTopicsByConsumer,
    getTopicConfig, getSubscriptionGroup, getSystemTopicListFromBroker, updateAndGetGroupForbidden (18, 225, 305, 343,
    351, 352, 353)
"""

from __future__ import annotations

from typing import Any

from engine.protocol.broker.requests import FILTER_TYPES, GROUPS_MAX, NULL_KEY, TOPICS_MAX, BrokerRequests
from engine.protocol.remoting.answers import NULL_POINTER, Json, Refused, Thrown, body_of, given, null_pointer
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.defaults import default_topics
from store.message import topics
from store.message.delay import SCHEDULE_TOPIC
from store.tables import fastjson
from store.tables.java_fields import JavaFields, text_of
from store.tables.tables import hash_map_order, topic_config

LIST_BYTES_MAX = 4 << 20
GROUP = '"group"'
PERM_READ = 4
LISTED_TOPICS = (  # as TopicValidator adds them
    topics.AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, topics.BENCHMARK_TOPIC, topics.HALF_TOPIC, topics.TRACE_TOPIC,
    topics.OP_TOPIC, topics.CHECK_MAX_TOPIC, topics.SELF_TEST_TOPIC, topics.OFFSET_MOVED_TOPIC, topics.CHECKPOINT_TOPIC,
)  # fmt: skip
NUMBERS = {"readQueueNums": 16, "writeQueueNums": 16, "perm": 6, "topicSysFlag": 0}  # with RocketMQ's defaults


class AdminRequests(BrokerRequests):
    """The requests of one broker, with those of administrators that its tables answer."""

    def __init__(self, *args: Any, address: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address = address
        self.handlers |= {RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics}
        if self.line.admin.serves_lists:
            self.handlers |= {
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._update_topics,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._update_groups,
                RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
                RequestCode.GET_TOPIC_CONFIG: self._topic,
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
                RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbid,
            }

    def _system_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        own = [topic for topic, _queues, _perm in default_topics(self.metadata.identity)]
        of_all = [topic for topic in LISTED_TOPICS if topic not in self.line.admin.unlisted_topics]
        listed = dict.fromkeys([*of_all, *own])
        return self.with_json(request, {"topicList": hash_map_order(listed)})

    def _topics_of_group(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        group = given(request, "group")
        if group is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('String.equals(Object)', GROUP)}")
        listed = hash_map_order(topic for topic, of_group in self.metadata.offsets if of_group == group)
        return self.with_json(request, {"brokerAddr": self._address, "topicList": listed})

    def _topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        topic = given(request, "topic")
        if topic is None:
            raise Thrown(NULL_KEY)
        config = self.metadata.topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return self.with_json(request, dict(sorted(config.items())))

    def _group(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        group = given(request, "group")
        if group is None:
            raise Thrown(NULL_KEY)
        config = self.metadata.groups.get(group)
        if config is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return self.with_json(request, dict(sorted(config.items())))

    def _forbid(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        group, topic, readable = (given(request, name) for name in ("group", "topic", "readable"))
        if group is None or topic is None:
            raise Thrown(NULL_KEY)
        of_group = self.metadata.forbidden.get(group, {})
        if readable is not None:
            is_forbidden = readable.lower() != "true"
            if is_forbidden and topic not in of_group and sum(map(len, self.metadata.forbidden.values())) >= TOPICS_MAX:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"more than {TOPICS_MAX} topics are forbidden: allow some")
            self.metadata.forbid(group, topic, PERM_READ, is_forbidden=is_forbidden, now_ms=now_ms)
        is_readable = not self.metadata.forbidden.get(group, {}).get(topic, 0) & PERM_READ
        body = body_of({"group": group, "readable": is_readable, "topic": topic})
        return self.answered(request, remark="", body=body)

    # several at once

    def _listed(self, request: RemotingCommand, name: str) -> list[JavaFields]:
        value = fastjson.sent(request.body, name, LIST_BYTES_MAX)
        fields = None if value is None else JavaFields(value, name)
        if fields is None or fields.value(name) is None:
            what = f'"{name}"'
            raise Thrown(f"{NULL_POINTER}: {null_pointer('java.util.List.iterator()', what)}")
        return list(fields.objects(name, max(TOPICS_MAX, GROUPS_MAX)))

    def _update_topics(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        configs: list[Json] = []
        for fields in self._listed(request, "topicConfigList"):
            config, change = self._config_of(fields)
            if config == self.metadata.topics.get(config["topicName"]) and not change:
                return self.answered(request)  # RocketMQ leaves the rest of the list out, too
            configs.append(config)
            self._alter(config, change)
        self._check_all(configs)
        for config in configs:
            self.metadata.set_topic(config, now_ms)
        self.wants_registration = True
        return self.answered(request)

    def _check_all(self, configs: list[Json]) -> None:
        new = {config["topicName"] for config in configs} - self.metadata.topics.keys()
        if len(self.metadata.topics) + len(new) > TOPICS_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"more than {TOPICS_MAX} topics: delete some")

    def _config_of(self, fields: JavaFields) -> tuple[Json, str]:
        """Return the config of one topic in the list, and the changes of its attributes."""
        topic = self._check_topic(fields.text("topicName"), is_new=True)
        numbers = {key: fields.number(key, default) for key, default in NUMBERS.items()}
        kind = fields.one_of("topicFilterType", FILTER_TYPES) or FILTER_TYPES[0]
        attributes = fields.value("attributes") or {}
        if not isinstance(attributes, dict):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{topic}: attributes is not an object")
        config = topic_config(
            topic,
            numbers["readQueueNums"],
            numbers["writeQueueNums"],
            numbers["perm"],
            line=self.line,
            topicFilterType=kind,
            topicSysFlag=numbers["topicSysFlag"],
            order=fields.flag("order"),
        )
        texts = {key: text_of(value) for key, value in attributes.items()}
        change = ",".join(f"{key}={text}" if key.startswith("+") else key for key, text in texts.items())
        return config, change

    def _update_groups(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        listed = self._listed(request, "groupConfigList")
        if len(self.metadata.groups) + len(listed) > GROUPS_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"more than {GROUPS_MAX} groups: delete some")
        configs = [self._group_config(fields) for fields in listed]
        for config in configs:
            self.metadata.set_group(config, now_ms)
        return self.answered(request)
