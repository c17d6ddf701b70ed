"""What is asked and what is answered, by RocketMQ's numbers and names: every code that we send, answer or know.

`KINDS` says of each request what it does, and so who may ask: `engine/protocol/access/rights.py`.

Implements: RequestCode, ResponseCode, RemotingSysResponseCode (spec: remoting, 4 response codes, 5, 6, 8)
"""

from __future__ import annotations

from enum import Enum, IntEnum

REQUEST_VERSION = 409  # MQVersion.V4_9_8: the version of its sender that every request of Slipstream's states


class RequestCode(IntEnum):
    """Codes of requests, with RocketMQ's names."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18  # 5.x
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39  # a broker's
    NOTIFY_CONSUMER_IDS_CHANGED = 40  # a broker's
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
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
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217  # 5.x
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220  # a broker's
    GET_CONSUMER_STATUS_FROM_CLIENT = 221  # a broker's
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225  # 5.x
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326  # a broker's
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343  # 5.x
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345  # 5.x
    GET_TOPIC_CONFIG = 351  # 5.x
    GET_SUBSCRIPTIONGROUP_CONFIG = 352  # 5.x
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353  # 5.x
    LITE_PULL_MESSAGE = 361  # 5.x
    RECALL_MESSAGE = 370  # 5.x
    GET_ALL_MESSAGE_REQUEST_MODE = 402  # 5.x
    GET_BROKER_MEMBER_GROUP = 901  # 5.x
    BROKER_HEARTBEAT = 904  # 5.x
    GET_BROKER_HA_STATUS = 907  # 5.x
    GET_LOG_EXTENT = 29001  # ours: who the broker is, and what its log holds
    GET_LOG_DIGESTS = 29002  # ours: digests of a range of the log
    GET_CLIENTS = 29004  # ours: who is connected, and how far groups are
    STEP_DOWN = 29003  # ours: a master is to become the slave of the one that takes its place


class ResponseCode(IntEnum):
    """The code of an answer."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29  # 5.x
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    ILLEGAL_OPERATION = 604  # 5.x


class RequestKind(Enum):
    """The effect of a request on the server that is asked."""

    LOOK = "routes, lists, figures, heartbeats of clients: every client that may connect"
    TABLES = "tables that a slave copies from its master: every client that may connect"
    MESSAGES = "sends, reads and marks messages, as producers and consumers do: every client that may connect"
    LOG = "content of the log: addresses that may follow it"
    SETTINGS = "reads settings: administrators"
    CHANGE = "changes or deletes: administrators"
    REGISTRATION = "what a broker sends to a name server: brokers"
    PUSH = "what a broker sends to its clients: a server answers that it does not know the code"


_BY_KIND = {
    RequestKind.LOOK: (
        RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_LOG_EXTENT, RequestCode.GET_CLIENTS,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.CHECK_CLIENT_CONFIG, RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.QUERY_CORRECTION_OFFSET, RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.QUERY_CONSUME_QUEUE, RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    ),
    RequestKind.MESSAGES: (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.RECALL_MESSAGE,
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
    ),
    RequestKind.TABLES: (
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    ),
    RequestKind.LOG: (RequestCode.GET_LOG_DIGESTS,),
    RequestKind.SETTINGS: (
        RequestCode.GET_BROKER_CONFIG, RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_NAMESRV_CONFIG,
    ),
    RequestKind.CHANGE: (
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.STEP_DOWN, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.CLONE_GROUP_OFFSET, RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.RESUME_CHECK_HALF_MESSAGE, RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    ),
    RequestKind.REGISTRATION: (
        RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT,
    ),
    RequestKind.PUSH: (
        RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    ),
}  # fmt: skip
KINDS: dict[int, RequestKind] = {code: kind for kind, codes in _BY_KIND.items() for code in codes}
