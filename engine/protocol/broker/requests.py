"""A broker's answers to slaves and administrators; anything else is answered "not supported".

Implements: AdminBrokerProcessor, ClientManageProcessor, as far as a log that others replicate needs them
spec: remoting, 6 metadata request bodies, 8 admin requests, 12 real master, our slave
Figures and settings come from the clients role through `ShownFacts`; what is to be saved, registered or set is left in
`metadata.changed`, `wants_registration` and `changed_settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.protocol.remoting.answers import (
    NO_REMARK,
    NULL_POINTER,
    REMOTING_EXCEPTION,
    Answerer,
    Handler,
    Json,
    Refused,
    Thrown,
    given,
    null_pointer,
    shown,
    whole_number,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables import topic_attributes
from engine.protocol.tables.defaults import group_config
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import is_name
from store.message.properties import MSG_REGION
from store.message.record import MAX_TOPIC_BYTES
from store.message.topics import TOPIC_PATTERN, is_system_topic
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS, REQUEST_MODES, TIMER_METRICS
from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from store.tables.java_fields import JavaFields
from store.tables.tables import topic_config

ON_SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
PERMISSION = "brokerPermission"
NO_CHECKPOINT, NO_METRICS = "The checkpoint is null", "The timer message store is null"
NO_RECALL = "recall failed, operation is forbidden"
TOPICS_MAX = GROUPS_MAX = 50_000  # what one frame takes in one table
BODY_BYTES_MAX = 64 * 1024  # of a group's configuration, of settings
GROUP_CONFIG = "the group's configuration"
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
TOPIC, CONFIG, KEY = '"topic"', '"config"', '"key"'  # names in what Java says
NULL_KEY = f"{NULL_POINTER}: {null_pointer('Object.hashCode()', KEY)}"


class Changeable(NamedTuple):
    """A setting that may change while the broker runs."""

    parsed: Callable[[str], int]  # its text as one word; raises ValueError
    allowed: str


class ShownFacts(NamedTuple):
    """Facts that only the clients role knows, asked for when needed."""

    runtime: Callable[[], Mapping[str, str]]
    ha_status: Callable[[], Json]
    settings: Callable[[], Mapping[str, str]]
    changeable: Mapping[str, Changeable] = {}
    why_not: Callable[[str], str] = "{} cannot change while the broker runs; set it in its file".format


class BrokerRequests(Answerer):
    """The requests of one broker."""

    def __init__(
        self, compat: str, metadata: Metadata, facts: ShownFacts, *, is_slave: bool, has_timers: bool = True
    ) -> None:
        super().__init__(compat)
        self._rules = self.line.broker
        self.metadata, self._facts, self._is_slave, self._has_timers = metadata, facts, is_slave, has_timers
        self.changed_settings: dict[str, int] = {}  # for the clients role to take
        self.wants_registration = False
        self.handlers: dict[int, Handler] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_settings,
            RequestCode.GET_BROKER_CONFIG: self._settings,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
        }
        if self._rules.serves_modes_and_timers:
            self.handlers |= {
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._request_modes,
                RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
                RequestCode.GET_TIMER_CHECK_POINT: self._timer_checkpoint,
                RequestCode.GET_TIMER_METRICS: self._timer_metrics,
                RequestCode.RECALL_MESSAGE: self._recall,
            }

    # what a slave asks

    def _all_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request, ext_fields={}, body=self.metadata.topics_json())

    def _groups(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request, body=self.metadata.groups_json())

    def _consumer_offsets(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(CONSUMER_OFFSETS))

    def _delay_offsets(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(DELAY_OFFSETS))

    def _request_modes(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(REQUEST_MODES))

    def _timer_checkpoint(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        if not self._has_timers:
            raise Refused(ResponseCode.SYSTEM_ERROR, NO_CHECKPOINT)
        return self.answered(request, body=self.metadata.timer_checkpoint.encode())

    def _timer_metrics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        if not self._has_timers:
            raise Refused(ResponseCode.SYSTEM_ERROR, NO_METRICS)
        return self.with_json(request, self.metadata.value(TIMER_METRICS))

    def _recall(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        """Refuse to cancel a message: RecallMessageProcessor with recallMessageEnable=false."""
        region = {MSG_REGION: self._facts.settings()["regionId"]}
        return self.answered(request, ResponseCode.NO_PERMISSION, NO_RECALL, region)

    # what an administrator asks

    def _require_master(self) -> None:
        """4.9's slaves refuse; 5.x's take a change, until their master's tables replace it."""
        if self._is_slave and not self._rules.slaves_take_changes:
            raise Refused(ResponseCode.SYSTEM_ERROR, ON_SLAVE)

    def _check_topic(self, topic: str | None, *, is_new: bool) -> str:
        """Raise Refused, in RocketMQ's words, for an invalid name; a topic to be deleted is checked only in 5.x."""
        refused = ResponseCode(self._rules.wrong_topic_code)
        if topic is None or not topic.strip():
            raise Refused(refused, "The specified topic is blank.")
        if is_new or self._rules.checks_names_to_delete:
            if not TOPIC_PATTERN.fullmatch(topic):
                allowed = "allowing only ^[%|a-zA-Z0-9_-]+$"
                raise Refused(refused, f"The specified topic contains illegal characters, {allowed}")
            if len(topic) > MAX_TOPIC_BYTES:
                raise Refused(refused, "The specified topic is longer than topic max length.")
        if is_system_topic(topic) or topic in (self.metadata.identity.cluster, self.metadata.identity.broker_name):
            raise Refused(refused, f"The topic[{topic}] is conflict with system topic.")
        return topic

    def _update_topic(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        kind, ext = given(request, "topicFilterType"), request.ext_fields
        if ext is not None and kind not in FILTER_TYPES:
            raise Thrown(f"{REMOTING_EXCEPTION}: topicFilterType = [{shown(kind)}] value invalid")
        if self._rules.topic_is_dereferenced and given(request, "topic") is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('String.startsWith(String)', TOPIC)}")
        topic = self._check_topic(given(request, "topic"), is_new=True)
        self._check_room(topic, self.metadata.topics, TOPICS_MAX)
        read, write, perm = (self._of_topic(request, name) for name in ("readQueueNums", "writeQueueNums", "perm"))
        config = topic_config(
            topic,
            read,
            write,
            perm,
            line=self.line,
            topicFilterType=kind,
            topicSysFlag=whole_number(request, "topicSysFlag", INT32_MIN, INT32_MAX) or 0,
        )
        if self.line.tables.topic_attributes:
            config["order"] = (given(request, "order") or "").lower() == "true"
            self._alter(config, given(request, "attributes") or "")
        is_same = config == self.metadata.topics.get(topic) and not given(request, "attributes")
        if is_same and self._rules.same_topic_is_kept:
            return self.answered(request, ResponseCode.SUCCESS, NO_REMARK)
        self.metadata.set_topic(config, now_ms)
        self.wants_registration = True
        return self.answered(request, ResponseCode.SUCCESS, NO_REMARK)

    def _check_room(self, name: str, table: Mapping[str, object], most: int) -> None:
        """Raise Refused where one entry more would not fit an answer that lists them all."""
        if name not in table and len(table) >= most:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there are {len(table)} already, {most} at most: delete some")

    def _of_topic(self, request: RemotingCommand, name: str) -> int:
        """Read a number of a topic's header. Raises Thrown or Refused, with Java's words, where it is invalid."""
        number = whole_number(request, name, INT32_MIN, INT32_MAX)
        if number is None:
            package = self.line.remoting.java_package
            getter = f"{package}.header.CreateTopicRequestHeader.get{name[0].upper()}{name[1:]}()"
            remark = null_pointer("java.lang.Integer.intValue()", f'the return value of "{getter}"')
            is_thrown = self._rules.wrong_number_is_thrown
            raise Thrown(f"{NULL_POINTER}: {remark}") if is_thrown else Refused(ResponseCode.SYSTEM_ERROR, remark)
        return number

    def _alter(self, config: dict[str, object], change: str) -> None:
        """Give a topic its attributes. Raises Refused."""
        before = self.metadata.topics.get(str(config["topicName"]))
        try:
            changes = topic_attributes.parsed(change)
            if changes.get(f"+{topic_attributes.MESSAGE_TYPE}") == topic_attributes.MIXED:
                raise Refused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
            known = None if before is None else before.get("attributes") or {}
            config["attributes"] = topic_attributes.altered(known, changes)
        except topic_attributes.WrongChange as wrong:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(wrong)) from None

    def _delete_topic(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        self.metadata.delete_topic(self._check_topic(given(request, "topic"), is_new=False), now_ms)
        self.wants_registration = True
        return self.answered(request)

    def _update_group(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        value = fastjson.sent(request.body, GROUP_CONFIG, BODY_BYTES_MAX)
        if value is None or value == []:  # which fastjson reads as no group, too
            if not self._rules.empty_group_is_thrown:
                return self.answered(request)
            name = "org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig.getGroupName()"
            raise Thrown(f"{NULL_POINTER}: {null_pointer(name, CONFIG)}")
        self.metadata.set_group(self._group_config(JavaFields(value, GROUP_CONFIG)), now_ms)
        return self.answered(request)

    def _group_config(self, fields: JavaFields) -> Json:
        """A group as it is to be, from what is said of it. Raises Refused, MalformedJson."""
        group = fields.text("groupName")
        if group is None:
            raise Thrown(NULL_KEY if self._rules.tells_hash_code else NULL_POINTER)
        if not is_name(group):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the group's name is invalid: printable, of 1 to 255 bytes")
        self._check_room(group, self.metadata.groups, GROUPS_MAX)
        config = _of_the_same_kinds(group_config(group, self.line), fields)
        if self.line.tables.group_policies:
            before = self.metadata.groups.get(group)
            try:
                topic_attributes.altered(None if before is None else {}, config["attributes"], {})
            except topic_attributes.WrongChange as wrong:
                raise Thrown(f"java.lang.RuntimeException: {wrong}") from None
            config["attributes"] = (before or {}).get("attributes") or {}
        return config

    def _delete_group(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        group = given(request, "groupName")
        if group is None:
            raise Thrown(NULL_KEY)
        forget_offsets = (given(request, self._rules.forget_offsets_field) or "").lower() == "true"
        self.metadata.delete_group(group, forget_offsets, now_ms)
        return self.answered(request)

    def _groups_of_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        topic = given(request, "topic")
        if topic is None:
            remark = null_pointer("String.equals(Object)", TOPIC)
            raise Thrown(NULL_KEY if self._rules.tells_hash_code else f"{NULL_POINTER}: {remark}")
        return self.with_json(request, {"groupList": self.metadata.groups_of(topic)})

    def _update_settings(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        """Change settings that may change while processes run; paths, sizes, ports and roles never do."""
        if len(request.body) > BODY_BYTES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the settings have more than {BODY_BYTES_MAX} bytes")
        lines = bytes(request.body).decode(errors="replace").splitlines()
        wanted: dict[str, int] = {}
        for key, _is, text in (line.partition("=") for line in lines if "=" in line):
            name = key.strip()
            setting = self._facts.changeable.get(name)
            if setting is None:
                raise Refused(ResponseCode.NO_PERMISSION, self._facts.why_not(name))
            try:
                wanted[name] = setting.parsed(text.strip())
            except ValueError:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"{name}: {setting.allowed}") from None
        self.changed_settings |= wanted
        if PERMISSION in wanted:
            self.metadata.next_version(now_ms)
            self.wants_registration = True
        return self.answered(request)

    def _settings(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        text = "".join(f"{key}={value}\n" for key, value in sorted(self._facts.settings().items()))
        version = self.metadata.topics_version_json().decode()
        return self.answered(request, ext_fields={"version": version}, body=text.encode())

    def _runtime(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, {"table": dict(self._facts.runtime())})

    def _ha_status(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self._facts.ha_status())


def _of_the_same_kinds(known: Json, fields: JavaFields) -> Json:
    """The fields that are known, with what is said of them, each of its kind. Raises Refused, MalformedJson."""
    return {name: _of_the_same_kind(name, default, fields) for name, default in known.items()}


def _of_the_same_kind(name: str, default: Any, fields: JavaFields) -> Any:
    if isinstance(default, bool):
        return fields.flag(name, default)
    if isinstance(default, int):
        return fields.number(name, default, INT64_MIN, INT64_MAX)
    if isinstance(default, str):
        return fields.text(name, default)
    value = fields.value(name)
    if not isinstance(value, type(default) | None):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{name} is not an object")
    return default if value is None else value
