"""A name server's answers: each request of brokers, clients and administrators against the route table.

Implements: DefaultRequestProcessor, ClientRequestProcessor, KVConfigManager of the name server
spec: remoting, 5 name server
Bodies are fastjson's: fields in alphabetical order, integer keys bare where an old client may ask.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.protocol import register_body
from engine.protocol.remoting import MalformedFrame, RemotingCommand
from engine.protocol.requests import (
    NO_REMARK,
    QUERY_NOT_FOUND,
    SUCCESS,
    SYSTEM_ERROR,
    TOPIC_NOT_EXIST,
    Answerer,
    Json,
    Refused,
    body_of,
    number,
    required,
)
from engine.protocol.route_table import (
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    BrokerData,
    QueueData,
    Registration,
    Route,
    RouteTable,
)
from store import fastjson
from store.errors import MalformedData

STANDARD_JSON_VERSION = 401  # 4.9.4: from here on clients read quoted integer keys
CRC_MASK = 0x7FFFFFFF
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
FAQ = {
    "4.9": "\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
    "5": "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
}
KV_VALUES_MAX = 100_000

class NameServer(Answerer):
    """The state of a name server and its answers; `on_kv_change` is told when the key-value config is to be saved."""

    def __init__(
        self, compat: str = "5", kv: dict[str, dict[str, str]] | None = None,
        on_kv_change: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        super().__init__(compat)
        self.routes = RouteTable()
        self.kv: dict[str, dict[str, str]] = {} if kv is None else kv
        self._faq, self._on_kv_change = FAQ[compat], on_kv_change
        self.handlers = {
            100: self._put_kv, 101: self._get_kv, 102: self._delete_kv, 219: self._kv_list,
            103: self._register, 104: self._unregister, 904: self._heartbeat, 322: self._query_data_version,
            105: self._route, 106: self._cluster_info, 901: self._member_group,
            205: self._wipe_write_permission, 327: self._add_write_permission,
            206: self._all_topics, 216: self._delete_topic, 217: self._register_topic, 224: self._topics_of_cluster,
            304: self._system_topics, 311: self._unit_topics, 312: self._unit_sub_topics,
            313: self._unit_sub_un_unit_topics,
        }  # fmt: skip

    # brokers

    def _register(self, request: RemotingCommand, connection: int, now_ms: int) -> RemotingCommand:
        crc = number(request, "bodyCrc32", 0)
        if crc and zlib.crc32(request.body) & CRC_MASK != crc:
            raise Refused(SYSTEM_ERROR, "crc32 not match")
        acting = (request.ext_fields or {}).get("enableActingMaster")
        timeout = (request.ext_fields or {}).get("heartbeatTimeoutMillis")
        who = Registration(
            required(request, "clusterName"), required(request, "brokerName"), number(request, "brokerId"),
            required(request, "brokerAddr"), required(request, "haServerAddr"),
            number(request, "heartbeatTimeoutMillis") if timeout else None,
            None if acting is None else acting == "true", (request.ext_fields or {}).get("__ZONE_NAME"),
        )  # fmt: skip
        compressed = (request.ext_fields or {}).get("compressed") == "true"
        body = register_body.decode(request.body, compressed=compressed, version=request.version)
        told = self.routes.register(who, body, connection, now_ms)
        if told is None:
            raise Refused(SYSTEM_ERROR, "register broker failed")
        fields = {"haServerAddr": told.ha_server_address, "masterAddr": told.master_address}
        order = self.kv.get(ORDER_TOPICS)
        return self.answered(
            request, ext_fields={name: value for name, value in fields.items() if value is not None},
            body=b"" if order is None else body_of({"table": order}),
        )  # fmt: skip

    def _unregister(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        number(request, "brokerId")
        self.routes.unregister(
            required(request, "clusterName"), required(request, "brokerAddr"), required(request, "brokerName")
        )
        return self.answered(request)

    def _heartbeat(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self.routes.heard_of(required(request, "clusterName"), required(request, "brokerAddr"), now_ms)
        return self.answered(request)

    def _query_data_version(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        cluster, address = required(request, "clusterName"), required(request, "brokerAddr")
        changed = self.routes.is_changed(cluster, address, register_body.data_version_of(request.body))
        known = self.routes.heard_of(cluster, address, now_ms)
        body = b"" if known is None else body_of(known.as_json(self.five))
        return self.answered(request, ext_fields={"changed": "true" if changed else "false"}, body=body)

    def _member_group(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        cluster, name = required(request, "clusterName"), required(request, "brokerName")
        broker = self.routes.brokers.get(name)
        group = {"brokerAddrs": dict(broker.addresses) if broker else {}, "brokerName": name, "cluster": cluster}
        return self.answered(request, SUCCESS, NO_REMARK, body=body_of({"brokerMemberGroup": group}))

    # clients

    def _route(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        topic = required(request, "topic")
        route = self.routes.route(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{self._faq}"
            return self.answered(request, TOPIC_NOT_EXIST, remark)
        standard = (request.ext_fields or {}).get("acceptStandardJsonOnly") == "true"
        quoted = standard or request.version >= STANDARD_JSON_VERSION
        told = self._route_json(route)
        order = self.kv.get(ORDER_TOPICS, {}).get(topic)
        if order is not None:
            told["orderTopicConf"] = order
        return self.answered(request, body=body_of(told, bare_keys=not quoted))

    def _route_json(self, route: Route) -> Json:
        return {
            "brokerDatas": [self._broker_json(broker) for broker in route.brokers],
            "filterServerTable": {at: list(servers) for at, servers in route.filter_servers.items()},
            "queueDatas": [_queue_json(queue) for queue in route.queues],
        }

    def _broker_json(self, broker: BrokerData) -> Json:
        told: Json = {
            "brokerAddrs": dict(broker.addresses), "brokerName": broker.broker_name, "cluster": broker.cluster
        }  # fmt: skip
        if self.five:
            told["enableActingMaster"] = broker.enable_acting_master
            if broker.zone_name is not None:
                told["zoneName"] = broker.zone_name
        return told

    def _cluster_info(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        brokers = {name: self._broker_json(broker) for name, broker in self.routes.brokers.items()}
        clusters = {cluster: sorted(names) for cluster, names in self.routes.clusters.items()}
        return self.with_json(request, {"brokerAddrTable": brokers, "clusterAddrTable": clusters})

    # topics

    def _topics(
        self, request: RemotingCommand, topics: Iterable[str], broker_address: str | None = None
    ) -> RemotingCommand:
        told: Json = {} if broker_address is None else {"brokerAddr": broker_address}
        return self.with_json(request, {**told, "topicList": list(topics)})

    def _all_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics)

    def _topics_of_cluster(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_of_cluster(required(request, "cluster")))

    def _system_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        names = [name for cluster, brokers in self.routes.clusters.items() for name in (cluster, *sorted(brokers))]
        addresses = [at for broker in self.routes.brokers.values() for _id, at in sorted(broker.addresses.items())]
        return self._topics(request, names, addresses[0] if addresses else None)

    def _unit_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_FLAG, 0))

    def _unit_sub_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_SUB_FLAG, 0))

    def _unit_sub_un_unit_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_SUB_FLAG, UNIT_FLAG))

    def _delete_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        self.routes.delete_topic(required(request, "topic"), (request.ext_fields or {}).get("clusterName"))
        return self.answered(request)

    def _register_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        try:
            queues = [_queue_of(told) for told in fastjson.loads(request.body).get("queueDatas") or ()]
        except (KeyError, TypeError, ValueError, AttributeError, MalformedData) as reason:
            raise MalformedFrame("topic's route", str(reason)) from None
        self.routes.register_topic(required(request, "topic"), queues)
        return self.answered(request)

    def _wipe_write_permission(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        count = self.routes.wipe_write_permission(required(request, "brokerName"))
        return self.answered(request, ext_fields={"wipeTopicCount": str(count)})

    def _add_write_permission(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        count = self.routes.add_write_permission(required(request, "brokerName"))
        return self.answered(request, ext_fields={"addTopicCount": str(count)})

    # key-value config

    def _put_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace, key, value = (required(request, name) for name in ("namespace", "key", "value"))
        if sum(map(len, self.kv.values())) >= KV_VALUES_MAX:
            raise Refused(SYSTEM_ERROR, f"there are {KV_VALUES_MAX} values: delete some")
        self.kv.setdefault(namespace, {})[key] = value
        self._on_kv_change()
        return self.answered(request)

    def _get_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace, key = required(request, "namespace"), required(request, "key")
        value = self.kv.get(namespace, {}).get(key)
        if value is not None:
            return self.answered(request, ext_fields={"value": value})
        return self.answered(request, QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}", {})

    def _delete_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        self.kv.get(required(request, "namespace"), {}).pop(required(request, "key"), None)
        self._on_kv_change()
        return self.answered(request)

    def _kv_list(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace = required(request, "namespace")
        if namespace not in self.kv:
            raise Refused(QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return self.with_json(request, {"table": self.kv[namespace]})


def _queue_json(queue: QueueData) -> Json:
    return {
        "brokerName": queue.broker_name, "perm": queue.perm, "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag, "writeQueueNums": queue.write_queue_nums,
    }  # fmt: skip


def _queue_of(told: Mapping[str, Any]) -> QueueData:
    return QueueData(
        str(told["brokerName"]), int(told["readQueueNums"]), int(told["writeQueueNums"]), int(told["perm"]),
        int(told.get("topicSysFlag") or 0),
    )  # fmt: skip
