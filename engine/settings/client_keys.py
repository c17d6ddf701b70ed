"""The keys of what producers and consumers are served: front processes, sends, pulls, groups, delay, transactions.

spec: configuration, sections 2 to 5. Each is a line here and a field in client_settings.py.
"""

from __future__ import annotations

from engine.settings.key import Key

MIB, GIB = 1 << 20, 1 << 30
FRONTS_MAX = 8  # engine.board.cursors has words for so many
REPLICAS_MAX = 64
LONG_MAX = (1 << 63) - 1

CLIENT_KEYS = (
    Key("frontProcesses", "front_processes", "int", 1, 1, FRONTS_MAX, "processes that share listenPort"),
    # sends
    Key("rejectTransactionMessage", "reject_transaction_message", "bool", False),
    Key("brokerFastFailureEnable", "broker_fast_failure_enable", "bool", True),
    Key("waitTimeMillsInSendQueue", "wait_in_send_queue_ms", "int", 200, 1, unit="ms"),
    Key("waitTimeMillsInTransactionQueue", "wait_in_transaction_queue_ms", "int", 3000, 1, unit="ms"),
    Key("osPageCacheBusyTimeOutMills", "page_cache_busy_timeout_ms", "int", 1000, 0, unit="ms"),
    Key("sendThreadPoolQueueCapacity", "send_queue_capacity", "int", 10_000, 1, unit="sends in flight"),
    Key("pullThreadPoolQueueCapacity", "pull_queue_capacity", "int", 100_000, 1, unit="pulls in flight"),
    Key("sendBytesInFlightMax", "send_bytes_in_flight_max", "int", 64 * MIB, MIB, 1024 * MIB, "bytes"),
    Key("startAcceptSendRequestTimeStamp", "accepts_sends_from_ms", "int", 0, 0, LONG_MAX, "ms since the epoch"),
    Key("storeReplyMessageEnable", "store_reply_message_enable", "bool", True),
    Key("traceTopicEnable", "trace_topic_enable", "bool", False),
    Key("msgTraceTopicName", "msg_trace_topic_name", "text", "RMQ_SYS_TRACE_TOPIC"),
    # pulls
    Key("longPollingEnable", "long_polling_enable", "bool", True),
    Key("shortPollingTimeMills", "short_polling_time_ms", "int", 1000, 1, unit="ms"),
    Key("slaveReadEnable", "slave_read_enable", "bool", False),
    Key("offsetCheckInSlave", "offset_check_in_slave", "bool", False),
    Key("maxTransferBytesOnMessageInMemory", "transfer_bytes_in_memory_max", "int", 256 * 1024, 1, unit="bytes"),
    Key("maxTransferCountOnMessageInMemory", "transfer_count_in_memory_max", "int", 32, 1, unit="messages"),
    Key("maxTransferBytesOnMessageInDisk", "transfer_bytes_on_disk_max", "int", 64 * 1024, 1, unit="bytes"),
    Key("maxTransferCountOnMessageInDisk", "transfer_count_on_disk_max", "int", 8, 1, unit="messages"),
    Key("accessMessageInMemoryMaxRatio", "memory_max_percent", "int", 40, 0, 100, "% of this host's memory"),
    Key("defaultQueryMaxNum", "query_max_num", "int", 32, 1, 10_000, "messages"),
    Key("waitTimeMillsInPullQueue", "wait_in_pull_queue_ms", "int", 5000, 1, unit="ms"),
    Key("disableConsumeIfConsumerReadSlowly", "disable_slow_consumers", "bool", False),
    Key("consumerFallbehindThreshold", "consumer_fallbehind_max_bytes", "int", 16 * GIB, 0, LONG_MAX, "bytes"),
    # groups and offsets
    Key("waitTimeMillsInHeartbeatQueue", "wait_in_heartbeat_queue_ms", "int", 31_000, 1, unit="ms"),
    Key("waitTimeMillsInAdminBrokerQueue", "wait_in_admin_queue_ms", "int", 5000, 1, unit="ms, 5.x"),
    Key("autoCreateSubscriptionGroup", "auto_create_groups", "bool", True),
    Key("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", "bool", True),
    Key("lockInStrictMode", "lock_in_strict_mode", "bool", False),  # 5.x; engine/remoting/peers/replica_locks.py
    Key("totalReplicas", "total_replicas", "int", 1, 1, REPLICAS_MAX, "of a group: half of them and one lock a queue"),
    Key("useServerSideResetOffset", "use_server_side_reset_offset", "bool", None),  # 5.x: true
    Key("flushConsumerOffsetInterval", "flush_consumer_offset_interval_ms", "int", 5000, 1, unit="ms"),
    Key("channelExpiredTimeout", "channel_expired_timeout_ms", "int", 120_000, 1, unit="ms"),
    # services of a master
    Key("flushDelayOffsetInterval", "flush_delay_offset_interval_ms", "int", 10_000, 1, unit="ms"),
    Key("transactionTimeOut", "transaction_timeout_ms", "int", 6000, 0, unit="ms"),
    Key("transactionCheckMax", "transaction_check_max", "int", 15, 1, unit="checks"),
    Key("transactionCheckInterval", "transaction_check_interval_ms", "int", None, 1, unit="ms"),
)  # fmt: skip
OWN_CLIENT_KEYS = frozenset({"frontProcesses", "sendBytesInFlightMax"})
