"""What is asked and what is answered, by RocketMQ's numbers and names: every code that we send, answer or know.

`KINDS` says of each request what it does, and so who may ask: `engine/protocol/access/rights.py`.

Implements: RequestCode, ResponseCode, RemotingSysResponseCode (spec: remoting, 4 response codes, 5, 6, 8)
"""

from __future__ import annotations

from enum import Enum, IntEnum

REQUEST_VERSION = 409  # MQVersion.V4_9_8: what every request of ours says that its sender is


class RequestCode(IntEnum):
    """What a request asks for."""

    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    GET_TIMER_CHECK_POINT = 60  # 5.x
    GET_TIMER_METRICS = 61  # 5.x
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217  # 5.x
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_MESSAGE_REQUEST_MODE = 402  # 5.x
    GET_BROKER_MEMBER_GROUP = 901  # 5.x
    BROKER_HEARTBEAT = 904  # 5.x
    GET_BROKER_HA_STATUS = 907  # 5.x
    GET_LOG_EXTENT = 29001  # ours: who the broker is, and what its log holds
    GET_LOG_DIGESTS = 29002  # ours: digests of a range of the log
    STEP_DOWN = 29003  # ours: a master is to become the slave of the one that takes its place


class ResponseCode(IntEnum):
    """How a request was answered."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    INVALID_PARAMETER = 29  # 5.x


class RequestKind(Enum):
    """What a request does to the server that is asked."""

    LOOK = "routes, lists, figures, heartbeats of clients: whoever may connect"
    TABLES = "what a slave copies from its master: whoever may connect"
    LOG = "what is in the log: whoever may follow it"
    SETTINGS = "reads settings: administrators"
    CHANGE = "changes or deletes: administrators"
    REGISTRATION = "what a broker says of itself to a name server: brokers"


_BY_KIND = {
    RequestKind.LOOK: (
        RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_LOG_EXTENT,
    ),
    RequestKind.TABLES: (
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    ),
    RequestKind.LOG: (RequestCode.GET_LOG_DIGESTS,),
    RequestKind.SETTINGS: (
        RequestCode.GET_BROKER_CONFIG, RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE,
    ),
    RequestKind.CHANGE: (
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.STEP_DOWN,
    ),
    RequestKind.REGISTRATION: (
        RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT,
    ),
}  # fmt: skip
KINDS: dict[int, RequestKind] = {code: kind for kind, codes in _BY_KIND.items() for code in codes}
