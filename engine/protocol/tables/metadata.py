"""What a broker knows beside its messages: topics, consumer groups and offsets, delay offsets, each with its version.

Implements: TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager, as tables; SlaveSynchronize's merging
spec: store-formats, 16 config/*.json; remoting, 6 metadata request bodies
Bodies on the wire are the files' contents, compact. `changed` names the files that are to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from engine.protocol.tables.timer_state import TimerCheckpoint
from store.compat import Line
from store.errors import MalformedConfig
from store.message import topics
from store.message.delay import SCHEDULE_TOPIC
from store.names import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    DELETED_TOPICS,
    GROUPS,
    REQUEST_MODES,
    TIMER_CHECKPOINT,
    TIMER_METRICS,
    TOPICS,
)
from store.tables import fastjson
from store.tables import tables as broker_tables
from store.tables.fastjson import INT32_MAX, INT32_MIN
from store.tables.tables import DataVersion

FILES = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS, TIMER_METRICS, REQUEST_MODES, DELETED_TOPICS)
TIMING_COUNT, MODES = "timingCount", "messageRequestModeMap"
GROUP_SEPARATOR = broker_tables.GROUP_SEPARATOR
PERM_INHERIT, PERM_READ_WRITE = 1, 6
TOPIC_QUEUE_NUMS = 16  # of a topic that does not say
QUEUE_NUMS = ("readQueueNums", "writeQueueNums")
HASH_SET_CAPACITY = LOADED_CAPACITY = 8  # 16 buckets: a HashSet, and the map that fastjson makes from a file
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


def group_config(group: str, line: Line) -> Value:
    """One entry of subscriptionGroupTable, with RocketMQ's defaults."""
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
        (topics.SELF_TEST_TOPIC, 1, PERM_READ_WRITE), (topics.BENCHMARK_TOPIC, BENCHMARK_QUEUES, PERM_READ_WRITE),
        (of.cluster, CLUSTER_QUEUES, all_of_it), (of.broker_name, 1, all_of_it),
        (topics.OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE), (SCHEDULE_TOPIC, SCHEDULE_QUEUES, PERM_READ_WRITE),
        (f"{of.cluster}_REPLY_TOPIC", 1, PERM_READ_WRITE),
    ]  # fmt: skip
    if of.auto_create_topics:
        defaults.append((topics.AUTO_CREATE_TOPIC, of.default_topic_queue_nums, all_of_it))
    if of.line.tables.timer_topic and of.has_timers:
        defaults.append((topics.TIMER_TOPIC, 1, PERM_READ_WRITE))
    if of.line.tables.transaction_topics:
        defaults += [
            (topics.HALF_TOPIC, 1, PERM_READ_WRITE), (topics.OP_TOPIC, 1, PERM_READ_WRITE),
            (f"rmq_sys_REVIVE_LOG_{of.cluster}", REVIVE_QUEUES, PERM_READ_WRITE),
            (f"rmq_sys_SYNC_BROKER_MEMBER_{of.broker_name}", 1, PERM_INHERIT),
        ]  # fmt: skip
    return defaults


def _sound_topics(value: Value, line: Line) -> dict[str, Value]:
    """The topics of a file, or of an answer, each whole: what it does not say has RocketMQ's defaults."""
    sound = {}
    for topic, fields in broker_tables.topics(value, TOPICS).items():
        nums, perm = TOPIC_QUEUE_NUMS, PERM_READ_WRITE
        config = {**broker_tables.topic_config(topic, nums, nums, perm, line=line), **fields}
        wrong = [name for name in (*QUEUE_NUMS, "perm") if not _is_int(config[name])]
        if wrong or not isinstance(config.get("attributes") or {}, dict):
            raise MalformedConfig(TOPICS, f"{topic}: {', '.join(wrong) or 'attributes'} is of a wrong kind")
        sound[topic] = config
    return sound


def _is_int(value: object) -> bool:
    return type(value) is int and INT32_MIN <= value <= INT32_MAX


def _object(value: Value, name: str, path: str) -> Value:
    """A part of a file that is an object, or nothing. Raises MalformedConfig."""
    fields = value.get(name)
    if not isinstance(fields, dict | None):
        raise MalformedConfig(path, f"{name} is no object")
    return dict(fields or {})


class Metadata:
    """All tables of one broker."""

    def __init__(self, identity: Identity, files: Mapping[str, Value], now_ms: int) -> None:
        """From the contents of its files, by their names. Raises MalformedConfig."""
        self.identity, self.changed = identity, set[str]()
        self.deleted_topics: set[str] = set()  # since topics.json was last saved
        self.set_topics: set[str] = set()  # the same: what the file says of them is older
        self.timer_checkpoint = TimerCheckpoint()
        self.delay_offsets_text: bytes | None = None  # as a master said it: a slave's file says it verbatim
        unset = DataVersion(0, now_ms, 0 if identity.line.tables.state_versions else None)
        values = {name: files.get(name) or {} for name in FILES}
        self.topics = _sound_topics(values[TOPICS], identity.line)
        self.gone_topics = broker_tables.deleted_topics(values[DELETED_TOPICS], DELETED_TOPICS)
        self.groups = broker_tables.groups(values[GROUPS], GROUPS)
        self.offsets = broker_tables.consumer_offsets(values[CONSUMER_OFFSETS], CONSUMER_OFFSETS)
        self.delay_offsets = broker_tables.delay_offsets(values[DELAY_OFFSETS], DELAY_OFFSETS)
        self._offsets_capacity = LOADED_CAPACITY if values[CONSUMER_OFFSETS] else broker_tables.OFFSET_CAPACITY
        self.versions = {name: DataVersion.of(values[name], name) or unset for name in FILES}
        self.timing_count: Value = _object(values[TIMER_METRICS], TIMING_COUNT, TIMER_METRICS)
        self.request_modes: Value = _object(values[REQUEST_MODES], MODES, REQUEST_MODES)
        self._served_changes = 0  # that no version tells
        self._topics_json: tuple[object, bytes] = None, b""  # of which state of the topics, and the text
        self._add_defaults()

    def _add_defaults(self) -> None:
        line = self.identity.line
        for topic, queues, perm in default_topics(self.identity):
            if topic not in self.topics:
                self.topics[topic] = broker_tables.topic_config(topic, queues, queues, perm, line=line)
        self.groups = {group: {**group_config(group, line), **config} for group, config in self.groups.items()}
        for group in (*SYSTEM_GROUPS, *([TRANSACTION_GROUP] if line.tables.transaction_topics else [])):
            self.groups.setdefault(group, group_config(group, line))

    # as files and bodies

    def value(self, name: str) -> Value:
        """What a file says."""
        version = self.versions[name]
        written_version = version if self.identity.line.tables.state_versions else None
        if name == TOPICS:
            return broker_tables.topics_value(self.topics, version)
        if name == GROUPS:
            return broker_tables.groups_value(self.groups, version)
        if name == DELAY_OFFSETS:
            return broker_tables.delay_offsets_value(self.delay_offsets, written_version)
        if name == TIMER_METRICS:
            return {broker_tables.VERSION: version.value(), TIMING_COUNT: self.timing_count}
        if name == DELETED_TOPICS:
            return broker_tables.deleted_topics_value(self.gone_topics)
        if name == REQUEST_MODES:
            return {MODES: self.request_modes}
        group_topics = self._group_topics() if self.identity.line.tables.topics_of_groups else None
        return broker_tables.consumer_offsets_value(self.offsets, written_version, group_topics, self._offsets_capacity)

    def _group_topics(self) -> dict[str, list[str]]:
        by_group: dict[str, list[str]] = {}
        for topic, group in self.offsets:
            by_group.setdefault(group, []).append(topic)
        return {group: broker_tables.java_order(names, HASH_SET_CAPACITY) for group, names in by_group.items()}

    def topics_body(self, perm_mask: int = 7) -> Value:
        """GET_ALL_TOPIC_CONFIG's answer and the registration's part; `perm_mask` is the broker's own permission."""
        value = self.value(TOPICS)
        if perm_mask & PERM_READ_WRITE != PERM_READ_WRITE:
            table = value[broker_tables.TOPIC_TABLE]
            masked = {topic: {**config, "perm": config["perm"] & perm_mask} for topic, config in table.items()}
            value = {**value, broker_tables.TOPIC_TABLE: masked}
        if not self.identity.line.tables.static_topics:
            return value
        version = self.versions[TOPICS]
        mapping = DataVersion(0, version.timestamp_ms, 0).value()
        return {
            broker_tables.VERSION: value[broker_tables.VERSION], "mappingDataVersion": mapping,
            broker_tables.TOPIC_TABLE: value[broker_tables.TOPIC_TABLE],
            "topicQueueMappingDetailMap": {}, "topicQueueMappingInfoMap": {},
        }  # fmt: skip

    def topics_json(self, perm_mask: int = 7) -> bytes:
        """`topics_body` as it is sent, made once for each state of the topics: with very many that takes a second."""
        perm_mask = 7 if perm_mask & PERM_READ_WRITE == PERM_READ_WRITE else perm_mask
        state = self.versions[TOPICS], self._served_changes, perm_mask
        if self._topics_json[0] != state:
            text = fastjson.dumps(self.topics_body(perm_mask)).encode("utf-8", "replace")
            self._topics_json = state, text
        return self._topics_json[1]

    def topics_version_json(self) -> bytes:
        """The version in it."""
        return fastjson.dumps(self.versions[TOPICS].value()).encode()

    # changes on a master

    def set_topic(self, config: Value, now_ms: int) -> None:
        """Create a topic, or replace its configuration."""
        self.topics[config["topicName"]] = config
        self.deleted_topics.discard(config["topicName"])
        self.set_topics.add(config["topicName"])
        self._is_there(config["topicName"])
        self._next(TOPICS, now_ms)

    def delete_topic(self, topic: str, now_ms: int) -> None:
        """Forget a topic's configuration, if there is one."""
        if self.topics.pop(topic, None) is not None:
            self.deleted_topics.add(topic)
            self.gone_topics.add(topic)
            self._next(TOPICS, now_ms)

    def set_order_topics(self, ordered: Mapping[str, str], now_ms: int) -> bool:
        """What a name server says of topics whose order matters; whether that is news."""
        news, taken_back = False, self.identity.line.tables.order_is_taken_back
        for topic, config in self.topics.items():
            is_ordered = topic in ordered
            if bool(config.get("order")) != is_ordered and (is_ordered or taken_back):
                config["order"], news = is_ordered, True
        if news:
            self._next(TOPICS, now_ms)
        return news

    def groups_of(self, topic: str) -> list[str]:
        """The groups that consumed a topic, in Java's order."""
        of_topic = {GROUP_SEPARATOR.join(key): key[1] for key in self.offsets if key[0] == topic}
        names = broker_tables.java_order(of_topic, self._offsets_capacity)
        return broker_tables.hash_map_order(of_topic[name] for name in names)

    def set_group(self, config: Value, now_ms: int) -> None:
        """Create a consumer group, or replace its configuration."""
        self.groups[config["groupName"]] = config
        self._next(GROUPS, now_ms)

    def delete_group(self, group: str, forget_offsets: bool, now_ms: int) -> None:
        """Forget a group's configuration, and if asked how far it consumed."""
        if self.groups.pop(group, None) is not None:
            self._next(GROUPS, now_ms)
        of_group = [key for key in self.offsets if key[1] == group]
        for key in of_group if forget_offsets else ():
            del self.offsets[key]
            self.changed.add(CONSUMER_OFFSETS)

    def take_served_topics(self, value: Value) -> bool:
        """Topics, and queues of them, that the writer added to the file; whether there are any.

        Raises MalformedConfig.
        """
        grown = False
        for topic, config in _sound_topics(value, self.identity.line).items():
            if topic not in self.topics and topic not in self.deleted_topics:
                self.topics[topic], grown = config, True
                self._is_there(topic)
            ours = config if topic in self.set_topics else self.topics.get(topic, config)
            for name in QUEUE_NUMS:
                if config[name] > ours[name]:
                    ours[name], grown = config[name], True
        self._served_changes += grown
        theirs, ours_now = DataVersion.of(value, TOPICS), self.versions[TOPICS]
        if theirs and (theirs.timestamp_ms, theirs.counter) > (ours_now.timestamp_ms, ours_now.counter):
            self.versions[TOPICS] = replace(ours_now, counter=theirs.counter, timestamp_ms=theirs.timestamp_ms)
        return grown

    def _is_there(self, topic: str) -> None:
        """It is a topic again, if it was deleted."""
        if topic in self.gone_topics:
            self.gone_topics.discard(topic)
            self.changed.add(DELETED_TOPICS)

    def reload(self, name: str, value: Value, now_ms: int) -> None:
        """Begin again with what one file says by now. Raises MalformedConfig."""
        values = {each: self.value(each) for each in FILES}
        fresh = Metadata(self.identity, {**values, name: value}, now_ms)
        kept = self.changed, self.deleted_topics, self.set_topics, self.timer_checkpoint
        vars(self).update(vars(fresh))
        self.changed, self.deleted_topics, self.set_topics, self.timer_checkpoint = kept
        self.changed.discard(name)

    def saved(self, name: str) -> None:
        """The file says what we say."""
        self.changed.discard(name)
        if name == TOPICS:
            self.deleted_topics.clear()
            self.set_topics.clear()

    def next_version(self, now_ms: int) -> None:
        """Say that the topics are to be registered again, although none changed."""
        self._next(TOPICS, now_ms)

    def _next(self, name: str, now_ms: int) -> None:
        self.versions[name] = self.versions[name].next(now_ms)
        self.changed.add(name)

    # what a slave takes from its master: data first, then the version, then the disk

    def take_topics(self, value: Value) -> bool:
        """The master's topics instead of ours, when their version differs. Raises MalformedConfig."""
        table, version = _sound_topics(value, self.identity.line), self._version_of(value, TOPICS)
        if version == self.versions[TOPICS]:
            return False
        self.topics = table
        self._took(TOPICS, version)
        return True

    def take_groups(self, value: Value) -> bool:
        """The master's groups instead of ours, when their version differs. Raises MalformedConfig."""
        table, version = broker_tables.groups(value, GROUPS), self._version_of(value, GROUPS)
        if version == self.versions[GROUPS]:
            return False
        self.groups = table
        self._took(GROUPS, version)
        return True

    def take_consumer_offsets(self, value: Value) -> bool:
        """The master's offsets instead of ours, groups that it has none of excepted. Raises MalformedConfig.

        They go back when the master's do: an administrator resets them there. From a master whose own table is behind
        what we took already (its version tells, where it has one), none goes back.
        """
        taken = broker_tables.consumer_offsets(value, CONSUMER_OFFSETS)
        version, ours = DataVersion.of(value, CONSUMER_OFFSETS), self.versions[CONSUMER_OFFSETS]
        before = {key: dict(offsets) for key, offsets in self.offsets.items()}
        is_stale = version is not None and version.is_behind(ours)
        for key, offsets in taken.items():
            kept = before.get(key, {}) if is_stale else {}
            furthest = {queue_id: max(offset, kept.get(queue_id, offset)) for queue_id, offset in offsets.items()}
            self.offsets[key] = {**kept, **furthest}
        self._offsets_capacity = broker_tables.OFFSET_CAPACITY  # RocketMQ makes another map
        if version is None or is_stale:
            version = ours
        if self.offsets == before and version == self.versions[CONSUMER_OFFSETS]:
            return False
        self._took(CONSUMER_OFFSETS, version)
        return True

    def take_delay_offsets(self, value: Value, text: bytes) -> bool:
        """The master's progress through the delay levels; its own words become the file. Raises MalformedConfig."""
        offsets = broker_tables.delay_offsets(value, DELAY_OFFSETS)
        version = DataVersion.of(value, DELAY_OFFSETS) or self.versions[DELAY_OFFSETS]
        if text == self.delay_offsets_text:
            return False
        self.delay_offsets, self.delay_offsets_text = offsets, text
        self._took(DELAY_OFFSETS, version)
        return True

    def take_timer_metrics(self, value: Value) -> bool:
        """How many messages of each topic wait in the master's timer wheel."""
        table, version = _object(value, TIMING_COUNT, TIMER_METRICS), self._version_of(value, TIMER_METRICS)
        if version == self.versions[TIMER_METRICS]:
            return False
        self.timing_count = table
        self._took(TIMER_METRICS, version)
        return True

    def take_request_modes(self, value: Value) -> bool:
        """The master's modes of consuming, pull or pop."""
        modes = _object(value, MODES, REQUEST_MODES)
        if modes == self.request_modes:
            return False
        self.request_modes = modes
        self.changed.add(REQUEST_MODES)
        return True

    def take_timer_checkpoint(self, body: bytes) -> bool:
        """How far the master's timer wheel is."""
        checkpoint = self.timer_checkpoint.following(TimerCheckpoint.decode(body))
        if checkpoint == self.timer_checkpoint:
            return False
        self.timer_checkpoint = checkpoint
        self.changed.add(TIMER_CHECKPOINT)
        return True

    def _took(self, name: str, version: DataVersion) -> None:
        state = (version.state_version or 0) if self.identity.line.tables.state_versions else None
        self.versions[name] = replace(version, state_version=state)
        self.changed.add(name)

    def _version_of(self, value: Value, name: str) -> DataVersion:
        """As we would note it: without a state version where brokers have none, with a 0 where it lacks one."""
        version = DataVersion.of(value, name) or DataVersion()
        state = (version.state_version or 0) if self.identity.line.tables.state_versions else None
        return replace(version, state_version=state)
