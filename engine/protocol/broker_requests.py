"""A broker's answers to slaves, administrators and clients' heartbeats; anything else is answered "not supported".

Implements: AdminBrokerProcessor, ClientManageProcessor, as far as a log that others replicate needs them
spec: remoting, 6 metadata request bodies, 8 admin requests, 12 real master, our slave
Figures and settings come from the shell through `Facts`; what is to be saved or registered is left in
`metadata.changed` and `wants_registration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.protocol.metadata import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, Metadata, group_config
from engine.protocol.remoting import RemotingCommand
from engine.protocol.requests import (
    NO_PERMISSION,
    NO_REMARK,
    SUCCESS,
    SYSTEM_ERROR,
    Answerer,
    Handler,
    Json,
    Refused,
    body_of,
    number,
    required,
)
from store import fastjson
from store.broker_tables import topic_config
from store.record import MAX_TOPIC_BYTES
from store.topics import TOPIC_PATTERN, is_system_topic

ON_SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
PERMISSION = "brokerPermission"
CHANGEABLE = {PERMISSION: range(8), "registerNameServerPeriod": range(10_000, 60_001)}


class Facts(NamedTuple):
    """What only the shell knows, asked when it is needed."""

    runtime: Callable[[], Mapping[str, str]]
    ha_status: Callable[[], Json]
    settings: Callable[[], Mapping[str, str]]


class BrokerRequests(Answerer):
    """The requests of one broker."""

    def __init__(self, compat: str, metadata: Metadata, facts: Facts, *, is_slave: bool) -> None:
        super().__init__(compat)
        self.metadata, self._facts, self._is_slave = metadata, facts, is_slave
        self.changed_settings: dict[str, int] = {}
        self.wants_registration = False
        self.handlers: dict[int, Handler] = {
            17: self._update_topic, 215: self._delete_topic, 200: self._update_group, 207: self._delete_group,
            21: self._all_topics, 201: self._groups, 43: self._consumer_offsets, 45: self._delay_offsets,
            25: self._update_settings, 26: self._settings, 28: self._runtime, 300: self._groups_of_topic,
            34: self._heartbeat, 35: self._unregister_client,
        }  # fmt: skip
        if self.five:
            self.handlers |= {402: self._request_modes, 907: self._ha_status}

    @property
    def permission(self) -> int:
        """The broker's own: 4 read, 2 write."""
        return self.changed_settings.get(PERMISSION, 6)

    # what a slave asks

    def _all_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request, ext_fields={}, body=body_of(self.metadata.topics_body()))

    def _groups(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(GROUPS))

    def _consumer_offsets(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(CONSUMER_OFFSETS))

    def _delay_offsets(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self.metadata.value(DELAY_OFFSETS))

    def _request_modes(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, {"messageRequestModeMap": {}})

    # what an administrator asks

    def _require_master(self) -> None:
        if self._is_slave:
            raise Refused(SYSTEM_ERROR, ON_SLAVE)

    def _topic_of(self, request: RemotingCommand) -> str:
        topic = required(request, "topic")
        if not topic.strip():
            raise Refused(SYSTEM_ERROR, "The specified topic is blank.")
        if not TOPIC_PATTERN.fullmatch(topic):
            allowed = "allowing only ^[%|a-zA-Z0-9_-]+$"
            raise Refused(SYSTEM_ERROR, f"The specified topic contains illegal characters, {allowed}")
        if len(topic) > MAX_TOPIC_BYTES:
            raise Refused(SYSTEM_ERROR, "The specified topic is longer than topic max length.")
        own = (self.metadata.identity.cluster, self.metadata.identity.broker_name)
        if is_system_topic(topic) or topic in own:
            raise Refused(SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")
        return topic

    def _update_topic(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        topic, ext = self._topic_of(request), request.ext_fields or {}
        config = topic_config(
            topic, number(request, "readQueueNums"), number(request, "writeQueueNums"), number(request, "perm"),
            five=self.five, topicFilterType=required(request, "topicFilterType"),
            topicSysFlag=number(request, "topicSysFlag", 0), order=ext.get("order") == "true",
        )  # fmt: skip
        before = self.metadata.topics.get(topic, {})
        if self.five:
            config["attributes"] = _attributes(before.get("attributes") or {}, ext.get("attributes") or "")
        self.metadata.set_topic(config, now_ms)
        self.wants_registration = True
        return self.answered(request, SUCCESS, NO_REMARK)

    def _delete_topic(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        self.metadata.delete_topic(self._topic_of(request), now_ms)
        self.wants_registration = True
        return self.answered(request)

    def _update_group(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        told = fastjson.loads(request.body, "the group's configuration")
        if not isinstance(told, dict) or not isinstance(told.get("groupName"), str):
            raise Refused(SYSTEM_ERROR, "the body is no SubscriptionGroupConfig")
        known = group_config(told["groupName"], self.five)
        config = {**known, **{name: value for name, value in told.items() if name in known and value is not None}}
        self.metadata.set_group(config, now_ms)
        return self.answered(request)

    def _delete_group(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self._require_master()
        forget_offsets = (request.ext_fields or {}).get("removeOffset") == "true"
        self.metadata.delete_group(required(request, "groupName"), forget_offsets, now_ms)
        return self.answered(request)

    def _groups_of_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        topic = required(request, "topic")
        return self.with_json(request, {"groupList": sorted(g for t, g in self.metadata.offsets if t == topic)})

    def _update_settings(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        """Only what may change while all processes run; paths, sizes, ports and roles never."""
        lines = bytes(request.body).decode(errors="replace").splitlines()
        asked = [line.partition("=") for line in lines if "=" in line]
        wanted: dict[str, int] = {}
        for key, _is, text in asked:
            allowed = CHANGEABLE.get(key.strip())
            if allowed is None:
                raise Refused(NO_PERMISSION, f"{key.strip()} cannot change while the broker runs; set it in its file")
            if not text.strip().isdecimal() or int(text) not in allowed:
                raise Refused(SYSTEM_ERROR, f"{key.strip()}: a number from {allowed.start} to {allowed.stop - 1}")
            wanted[key.strip()] = int(text)
        self.changed_settings |= wanted
        if PERMISSION in wanted:
            self.metadata.next_version(now_ms)
            self.wants_registration = True
        return self.answered(request)

    def _settings(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        settings = {**self._facts.settings(), **{key: str(value) for key, value in self.changed_settings.items()}}
        text = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
        version = body_of(self.metadata.topics_body()["dataVersion"]).decode()
        return self.answered(request, ext_fields={"version": version}, body=text.encode())

    def _runtime(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, {"table": dict(self._facts.runtime())})

    def _ha_status(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.with_json(request, self._facts.ha_status())

    # what every client sends

    def _heartbeat(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        told = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        return self.answered(request, ext_fields=told if self.five else None)

    def _unregister_client(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        required(request, "clientID")
        return self.answered(request, ext_fields={})


def _attributes(before: Mapping[str, str], change: str) -> dict[str, str]:
    """5.x's `+key=value,-key`. Raises Refused."""
    found = dict(before)
    for part in filter(None, (piece.strip() for piece in change.split(","))):
        sign, (key, is_set, value) = part[0], part[1:].partition("=")
        if sign not in "+-" or not key or (sign == "+") != bool(is_set):
            raise Refused(SYSTEM_ERROR, f"attribute {part!r} is neither +key=value nor -key")
        found.pop(key, None)
        if sign == "+":
            found[key] = value
    return found
