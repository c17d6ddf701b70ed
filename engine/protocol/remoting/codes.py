"""What is asked and what is answered, by RocketMQ's numbers and names: every code that we send, answer or know.

Implements: RequestCode, ResponseCode, RemotingSysResponseCode (spec: remoting, 4 response codes, 5, 6, 8)
"""

from __future__ import annotations

from enum import IntEnum

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
