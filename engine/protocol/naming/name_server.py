"""A name server's answers: each request of brokers, clients and administrators against the route table.

Implements: DefaultRequestProcessor, ClientRequestProcessor, KVConfigManager of the name server
spec: remoting, 5 name server
Bodies are fastjson's: fields in alphabetical order, integer keys bare where an old client may ask.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping

from engine.protocol.naming.live_settings import LiveSettings
from engine.protocol.naming.route_table import (
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    BrokerData,
    QueueData,
    Registration,
    Route,
    RouteTable,
)
from engine.protocol.remoting.answers import (
    NO_REMARK,
    NULL_POINTER,
    REMOTING_EXCEPTION,
    Answerer,
    Json,
    Refused,
    Thrown,
    body_of,
    given,
    null_pointer,
    required,
    shown,
    whole_number,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand
from engine.protocol.tables import register_body
from engine.protocol.tables.register_body import TOPIC_BYTES_MAX, RegisterBody, is_name
from store.compat import OF_NAME_SERVERS
from store.message.properties import CRC_MASK
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields
from store.tables.tables import KEY_VALUES, WIPED, DataVersion, hash_map_order

STANDARD_JSON_VERSION = 401  # 4.9.4: from here on clients read quoted integer keys
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
KV_ENTRIES_MAX, KV_VALUE_BYTES_MAX, KV_BYTES_MAX = 20_000, 64 * 1024, 2 * 1024 * 1024
LARGE_BODY_BYTES, LARGE_BODIES_MAX = 64 * 1024, 2
ROUTE = "topic's route"
ROUTE_BYTES_MAX = 1024 * 1024  # of a topic that is registered by hand


class NameServer(Answerer):
    """The state of a name server and its answers; `changes` counts what is to be saved of what it keeps."""

    def __init__(
        self,
        compat: str = OF_NAME_SERVERS,
        kv: dict[str, dict[str, str]] | None = None,
        *,
        order_message_enable: bool = False,
        support_acting_master: bool = False,
        shown: Mapping[str, str] | None = None,
        wiped: dict[str, DataVersion] | None = None,
    ) -> None:
        super().__init__(compat)
        self.routes = RouteTable(self.line, support_acting_master=support_acting_master, wiped=wiped)
        self.kv: dict[str, dict[str, str]] = {} if kv is None else kv
        self._bodies: dict[tuple[bytes, bool, int], RegisterBody] = {}  # the last large ones read
        self._kv_bodies: dict[str, bytes] = {}  # by namespace, until a value of it changes
        self._kv_bytes = sum(_bytes_of(*pair) for of in self.kv.values() for pair in of.items())
        self._rules, self._order_message_enable, self._kv_changes = self.line.naming, order_message_enable, 0
        self.settings = LiveSettings(
            self._rules,
            shown or {},
            {"orderMessageEnable": order_message_enable, "supportActingMaster": support_acting_master},
            {"orderMessageEnable": self._set_order, "supportActingMaster": self.routes.support_acting_master},
        )
        self.handlers = {
            RequestCode.GET_NAMESRV_CONFIG: self._show_settings,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._change_settings,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_un_unit_topics,
        }
        if self._rules.heartbeats:
            self.handlers |= {
                RequestCode.BROKER_HEARTBEAT: self._heartbeat,
                RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
                RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            }

    @property
    def changes(self) -> int:
        """How often anything changed that `kept` returns."""
        return self._kv_changes + self.routes.wiped_changes

    def kept(self) -> Json:
        """Return what a name server's file holds."""
        wiped = {name: version.value() for name, version in self.routes.wiped.items()}
        return {KEY_VALUES: self.kv, **({WIPED: wiped} if wiped else {})}

    # settings

    def _set_order(self, value: bool) -> None:
        self._order_message_enable = value

    def _show_settings(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request, body=self.settings.text().encode())

    def _change_settings(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        self.settings.change(bytes(request.body))
        return self.answered(request)

    # brokers

    def _register(self, request: RemotingCommand, connection: int, now_ms: int) -> RemotingCommand:
        """Unlike there, a broker without cluster, name or address is refused: it would stay in the lists for ever."""
        crc = whole_number(request, "bodyCrc32") or 0
        if crc and zlib.crc32(request.body) & CRC_MASK != crc:
            return self.answered(request, ResponseCode.SYSTEM_ERROR, "crc32 not match", {})
        body = self._registered_body(request)
        acting, broker_id = given(request, "enableActingMaster"), self._broker_id(request, "Register")
        who = Registration(
            required(request, "clusterName"),
            required(request, "brokerName"),
            broker_id,
            required(request, "brokerAddr"),
            required(request, "haServerAddr"),
            whole_number(request, "heartbeatTimeoutMillis"),
            None if acting is None else acting.lower() == "true",
            given(request, "__ZONE_NAME"),
        )
        names = (who.cluster, who.broker_name, who.address, who.ha_server_address or "-", who.zone_name or "-")
        no_room = None if all(map(is_name, names)) else "a name in it is invalid"
        no_room = no_room or self.routes.no_room_for(who, body, connection)
        if no_room is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"register broker failed: {no_room}")
        master = self.routes.register(who, body, connection, now_ms)
        if master is None:
            return self.answered(request, ResponseCode.SYSTEM_ERROR, "register broker failed", {})
        fields = {"haServerAddr": master.ha_server_address, "masterAddr": master.master_address}
        return self.answered(
            request,
            ext_fields={name: value for name, value in fields.items() if value is not None},
            body=self._kv_body(ORDER_TOPICS) or b"",
        )

    def work_ahead(self, request: RemotingCommand) -> RegisterBody | MalformedFrame | None:
        """Return what a registration's body says: up to some ten MB of JSON.

        Brokers repeat themselves: the last large ones are kept, so that one that took too long is there next time."""
        if request.code != RequestCode.REGISTER_BROKER:
            return None
        compressed = (given(request, "compressed") or "").lower() == "true"
        body = hashlib.blake2b(request.body).digest() if len(request.body) >= LARGE_BODY_BYTES else b""
        key = body, compressed, request.version
        if body and key in self._bodies:
            return self._bodies[key]
        try:
            decoded = register_body.decode(request.body, compressed=compressed, version=request.version, line=self.line)
        except MalformedFrame as malformed:
            return malformed
        if body:
            while len(self._bodies) >= LARGE_BODIES_MAX:
                del self._bodies[next(iter(self._bodies))]
            self._bodies[key] = decoded
        return decoded

    def _registered_body(self, request: RemotingCommand) -> RegisterBody:
        body = self._ahead or self.work_ahead(request)
        if not isinstance(body, RegisterBody):
            raise Thrown(f"{REMOTING_EXCEPTION}: Failed to decode RegisterBrokerBody")
        return body

    def _broker_id(self, request: RemotingCommand, header: str) -> int:
        """Return the request's broker id. Raises Thrown, in Java's words, without one."""
        number = whole_number(request, "brokerId")
        if number is None:
            package = self.line.remoting.java_package
            name = f"{package}.header.namesrv.{header}BrokerRequestHeader.getBrokerId()"
            remark = null_pointer("java.lang.Long.longValue()", f'the return value of "{name}"')
            raise Thrown(f"{NULL_POINTER}: {remark}")
        return number

    def _unregister(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        by_id = self._rules.unregisters_by_id
        broker_id = self._broker_id(request, "UnRegister") if by_id else whole_number(request, "brokerId")
        cluster, address, name = (given(request, field) or "" for field in ("clusterName", "brokerAddr", "brokerName"))
        self.routes.unregister(cluster, address, name, broker_id)
        return self.answered(request)

    def _heartbeat(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        self.routes.heard_of(*self._place(request), now_ms)
        return self.answered(request)

    def _place(self, request: RemotingCommand) -> tuple[str, str]:
        """Cluster and address of a broker. Raises Thrown where it cannot do without."""
        for name in ("clusterName", "brokerAddr") if self._rules.requires_place else ():
            if given(request, name) is None:
                remark = null_pointer("String.length()", f'"this.{name}"')
                raise Thrown(f"{NULL_POINTER}: {remark}")
        return given(request, "clusterName") or "", given(request, "brokerAddr") or ""

    def _query_data_version(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        place = self._place(request)
        changed = self.routes.is_changed(*place, register_body.data_version_of(request.body, self.line))
        if self._rules.changed_is_sign_of_life or not changed:
            self.routes.heard_of(*place, now_ms)
        known = self.routes.version_of(*place)
        body = b"" if known is None else body_of(known.value())
        return self.answered(request, ext_fields={"changed": "true" if changed else "false"}, body=body)

    def _member_group(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        cluster, name = given(request, "clusterName"), given(request, "brokerName")
        broker = self.routes.brokers.get(name or "")
        named = {key: text for key, text in (("brokerName", name), ("cluster", cluster)) if text is not None}
        group = {"brokerAddrs": _addresses(broker) if broker else {}, **named}
        return self.answered(request, ResponseCode.SUCCESS, NO_REMARK, body=body_of({"brokerMemberGroup": group}))

    # clients

    def _route(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        topic = given(request, "topic")
        route = self.routes.route(topic or "")
        if route is None:
            remark = f"No topic route info in name server for the topic: {shown(topic)}{self._rules.faq}"
            return self.answered(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        standard = (given(request, "acceptStandardJsonOnly") or "").lower() == "true"
        quoted = standard or request.version >= STANDARD_JSON_VERSION
        fields = self._route_json(route)
        order = self.kv.get(ORDER_TOPICS, {}).get(topic or "")
        if self._order_message_enable and order is not None:
            fields = dict(sorted({**fields, "orderTopicConf": order}.items()))
        if quoted:
            fields["brokerDatas"] = [
                {**of, "brokerAddrs": dict(sorted(of["brokerAddrs"].items()))} for of in fields["brokerDatas"]
            ]
        return self.answered(request, body=body_of(fields, bare_keys=not quoted))

    def _route_json(self, route: Route) -> Json:
        return {
            "brokerDatas": [self._broker_json(broker) for broker in route.brokers],
            "filterServerTable": {at: list(servers) for at, servers in route.filter_servers.items()},
            "queueDatas": [_queue_json(queue) for queue in route.queues],
        }

    def _broker_json(self, broker: BrokerData) -> Json:
        fields: Json = {"brokerAddrs": _addresses(broker), "brokerName": broker.broker_name, "cluster": broker.cluster}
        if self._rules.acting_masters:
            fields["enableActingMaster"] = broker.enable_acting_master
            if broker.zone_name is not None:
                fields["zoneName"] = broker.zone_name
        return fields

    def _cluster_info(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        brokers = {broker.broker_name: self._broker_json(broker) for broker in self.routes.all_brokers()}
        return self.with_json(request, {"brokerAddrTable": brokers, "clusterAddrTable": self.routes.all_clusters()})

    # topics

    def _topics(
        self, request: RemotingCommand, topics: Iterable[str], broker_address: str | None = None
    ) -> RemotingCommand:
        fields: Json = {} if broker_address is None else {"brokerAddr": broker_address}
        return self.with_json(request, {**fields, "topicList": list(topics)})

    def _all_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.list_of(self.routes.all_topics()))

    def _topics_of_cluster(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_of_cluster(given(request, "cluster") or ""))

    def _system_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        names = (name for cluster, brokers in self.routes.all_clusters().items() for name in (cluster, *brokers))
        addresses = [at for broker in self.routes.all_brokers() for at in _addresses(broker).values()]
        return self._topics(request, self.routes.list_of(dict.fromkeys(names)), addresses[0] if addresses else None)

    def _unit_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_FLAG, 0))

    def _unit_sub_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_SUB_FLAG, 0))

    def _unit_sub_un_unit_topics(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._topics(request, self.routes.topics_with_flags(UNIT_SUB_FLAG, UNIT_FLAG))

    def _delete_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        self.routes.delete_topic(given(request, "topic") or "", given(request, "clusterName"))
        return self.answered(request)

    def _register_topic(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        try:
            value = fastjson.sent(request.body, ROUTE, ROUTE_BYTES_MAX)
            listed = () if value is None else JavaFields(value, ROUTE).objects("queueDatas", ROUTE_BYTES_MAX)
            queues = [_queue_of(queue) for queue in listed]
        except MalformedJson as reason:
            raise MalformedFrame(ROUTE, reason.reason) from None
        topic = given(request, "topic") or ""
        if queues and not is_name(topic, TOPIC_BYTES_MAX):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the topic's name is invalid")
        self.routes.register_topic(topic, queues)
        return self.answered(request)

    def _wipe_write_permission(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        count = self.routes.wipe_write_permission(given(request, "brokerName") or "")
        return self.answered(request, ext_fields={"wipeTopicCount": str(count)})

    def _add_write_permission(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        count = self.routes.add_write_permission(given(request, "brokerName") or "")
        return self.answered(request, ext_fields={"addTopicCount": str(count)})

    # key-value config

    def _put_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace, key, value = (given(request, name) for name in ("namespace", "key", "value"))
        if namespace is None or key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if value is None:
            return self._forget_kv(request, namespace, key)
        before = self.kv.get(namespace, {}).get(key)
        grown = _bytes_of(key, value) - (0 if before is None else _bytes_of(key, before))
        self._check_kv(namespace, key, value, grown, is_new=before is None)
        self.kv.setdefault(namespace, {})[key] = value
        self._kv_bytes += grown
        self._kv_changed(namespace)
        return self.answered(request)

    def _check_kv(self, namespace: str, key: str, value: str, grown: int, *, is_new: bool) -> None:
        """Raise Refused for a value that may not be kept, or finds no room."""
        if not (is_name(namespace) and is_name(key, TOPIC_BYTES_MAX)):
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is not a valid name")
        if len(value.encode()) > KV_VALUE_BYTES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the value has more than {KV_VALUE_BYTES_MAX} bytes")
        if is_new and len(self.kv) + sum(map(len, self.kv.values())) >= KV_ENTRIES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there are {KV_ENTRIES_MAX} values: delete some")
        if grown > 0 and self._kv_bytes + grown > KV_BYTES_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the values have {self._kv_bytes} bytes, {KV_BYTES_MAX} at most: delete some",
            )

    def _forget_kv(self, request: RemotingCommand, namespace: str, key: str) -> RemotingCommand:
        value = self.kv.get(namespace, {}).pop(key, None)
        if value is not None:
            self._kv_bytes -= _bytes_of(key, value)
            self._kv_changed(namespace)
        return self.answered(request)

    def _kv_changed(self, namespace: str) -> None:
        self._kv_bodies.pop(namespace, None)
        self._kv_changes += 1

    def _get_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace, key = given(request, "namespace"), given(request, "key")
        value = self.kv.get(namespace or "", {}).get(key or "")
        if value is not None:
            return self.answered(request, ext_fields={"value": value})
        remark = f"No config item, Namespace: {shown(namespace)} Key: {shown(key)}"
        return self.answered(request, ResponseCode.QUERY_NOT_FOUND, remark, {})

    def _delete_kv(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        return self._forget_kv(request, given(request, "namespace") or "", given(request, "key") or "")

    def _kv_list(self, request: RemotingCommand, _connection: int, _now_ms: int) -> RemotingCommand:
        namespace = given(request, "namespace")
        body = self._kv_body(namespace or "")
        if body is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {shown(namespace)}")
        return self.answered(request, body=body)

    def _kv_body(self, namespace: str) -> bytes | None:
        """The values of a namespace; None without it."""
        table = self.kv.get(namespace)
        if table is not None and namespace not in self._kv_bodies:
            self._kv_bodies[namespace] = body_of({"table": {key: table[key] for key in hash_map_order(table)}})
        return self._kv_bodies.get(namespace)


def _bytes_of(key: str, value: str) -> int:
    return len(key.encode()) + len(value.encode())


def _addresses(broker: BrokerData) -> dict[int, str]:
    return {broker_id: broker.addresses[broker_id] for broker_id in hash_map_order(broker.addresses)}


def _queue_json(queue: QueueData) -> Json:
    return {
        "brokerName": queue.broker_name, "perm": queue.perm, "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag, "writeQueueNums": queue.write_queue_nums,
    }  # fmt: skip


def _queue_of(fields: JavaFields) -> QueueData:
    read, write, perm, flag = map(fields.number, ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"))
    broker = fields.text("brokerName")
    if broker is None:
        raise MalformedJson(ROUTE, "a queue has no brokerName")
    return QueueData(broker, read, write, perm, flag)
