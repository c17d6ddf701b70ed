"""The keys of what producers and consumers are served: front processes, sends, pulls, groups, delay, transactions.

spec: configuration, sections 2 to 5. Each is an entry here and a field in client_settings.py.
"""

from __future__ import annotations

from engine.settings.key import Key

MIB, GIB = 1 << 20, 1 << 30
FRONTS_MAX = 8  # engine.board.cursors has words for so many
REPLICAS_MAX = 64
LONG_MAX = (1 << 63) - 1

CLIENT_KEYS = (
    Key("frontProcesses", "front_processes", "int", 1, 1, FRONTS_MAX, "processes",
        says="processes that share `listenPort` and serve clients' connections"),
    # sends
    Key("rejectTransactionMessage", "reject_transaction_message", "bool", False,
        says="refuse half messages"),
    Key("brokerFastFailureEnable", "broker_fast_failure_enable", "bool", True,
        says="answer requests that waited too long with SYSTEM_BUSY instead of serving them late"),
    Key("waitTimeMillsInSendQueue", "wait_in_send_queue_ms", "int", 200, 1, unit="ms",
        says="how long a send waits for room in the ring before it is answered SYSTEM_BUSY"),
    Key("waitTimeMillsInTransactionQueue", "wait_in_transaction_queue_ms", "int", 3000, 1, unit="ms",
        says="how long the end of a transaction waits for room in the ring"),
    Key("osPageCacheBusyTimeOutMills", "page_cache_busy_timeout_ms", "int", 1000, 0, unit="ms",
        says="refuse sends when the writer has not moved for longer than this and puts are waiting"),
    Key("sendThreadPoolQueueCapacity", "send_queue_capacity", "int", 10_000, 1, unit="sends in flight",
        says="maximum number of unanswered sends of a front; further sends are answered SYSTEM_BUSY"),
    Key("pullThreadPoolQueueCapacity", "pull_queue_capacity", "int", 100_000, 1, unit="pulls in flight",
        says="maximum number of pulls that a front holds until messages arrive; further pulls are answered "
             "SYSTEM_BUSY"),
    Key("sendBytesInFlightMax", "send_bytes_in_flight_max", "int", 64 * MIB, MIB, 1024 * MIB, "bytes",
        says="maximum size of all unanswered sends of a front; further sends are answered SYSTEM_BUSY"),
    Key("startAcceptSendRequestTimeStamp", "accepts_sends_from_ms", "int", 0, 0, LONG_MAX, "ms since the epoch",
        says="refuse sends before this time"),
    Key("storeReplyMessageEnable", "store_reply_message_enable", "bool", True,
        says="also store the replies of request-reply, not only pass them on"),
    Key("traceTopicEnable", "trace_topic_enable", "bool", False,
        says="create the topic for traces"),
    Key("msgTraceTopicName", "msg_trace_topic_name", "text", "RMQ_SYS_TRACE_TOPIC",
        says="name of the topic for traces"),
    # pulls
    Key("longPollingEnable", "long_polling_enable", "bool", True,
        says="hold a pull that finds nothing until a message arrives or its time is over"),
    Key("shortPollingTimeMills", "short_polling_time_ms", "int", 1000, 1, unit="ms",
        says="with longPollingEnable=false: how long such a pull is held"),
    Key("slaveReadEnable", "slave_read_enable", "bool", False,
        says="send consumers to a slave when their messages are no longer in the master's memory; a slave serves "
             "pulls"),
    Key("offsetCheckInSlave", "offset_check_in_slave", "bool", False,
        says="a slave corrects offsets that its queue does not have; false: it leaves that to its master"),
    Key("maxTransferBytesOnMessageInMemory", "transfer_bytes_in_memory_max", "int", 256 * 1024, 1, unit="bytes",
        says="maximum size of a pull's answer from messages in memory"),
    Key("maxTransferCountOnMessageInMemory", "transfer_count_in_memory_max", "int", 32, 1, unit="messages",
        says="maximum number of messages in a pull's answer from memory"),
    Key("maxTransferBytesOnMessageInDisk", "transfer_bytes_on_disk_max", "int", 64 * 1024, 1, unit="bytes",
        says="maximum size of a pull's answer from older messages"),
    Key("maxTransferCountOnMessageInDisk", "transfer_count_on_disk_max", "int", 8, 1, unit="messages",
        says="maximum number of messages in a pull's answer from older ones"),
    Key("accessMessageInMemoryMaxRatio", "memory_max_percent", "int", 40, 0, 100, "% of this host's memory",
        says="size of the log's newest part that counts as in memory"),
    Key("defaultQueryMaxNum", "query_max_num", "int", 32, 1, 10_000, "messages",
        says="maximum number of messages that a query by key returns when the query gives no number"),
    Key("waitTimeMillsInPullQueue", "wait_in_pull_queue_ms", "int", 5000, 1, unit="ms",
        says="how long a pull waits for a starting broker to know its topics before it is answered SYSTEM_BUSY"),
    Key("disableConsumeIfConsumerReadSlowly", "disable_slow_consumers", "bool", False,
        says="stop a group from consuming when it is too far behind"),
    Key("consumerFallbehindThreshold", "consumer_fallbehind_max_bytes", "int", 16 * GIB, 0, LONG_MAX, "bytes",
        says="that distance, in bytes of the log"),
    # groups and offsets
    Key("waitTimeMillsInHeartbeatQueue", "wait_in_heartbeat_queue_ms", "int", 31_000, 1, unit="ms",
        says="how long a client's heartbeat may wait before it is answered SYSTEM_BUSY"),
    Key("waitTimeMillsInAdminBrokerQueue", "wait_in_admin_queue_ms", "int", 5000, 1, unit="ms",
        says="compat=5: how long a request for a report may wait before it is answered SYSTEM_BUSY"),
    Key("autoCreateSubscriptionGroup", "auto_create_groups", "bool", True,
        says="create a consumer group at its first heartbeat"),
    Key("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", "bool", True,
        says="notify the members of a group at once when others join or leave"),
    Key("lockInStrictMode", "lock_in_strict_mode", "bool", False,  # 5.x; engine/remoting/peers/replica_locks.py
        says="compat=5: a queue is locked once a majority of the group's brokers grant the lock"),
    Key("totalReplicas", "total_replicas", "int", 1, 1, REPLICAS_MAX, "",
        says="number of brokers in that group; a majority is more than half of them"),
    Key("useServerSideResetOffset", "use_server_side_reset_offset", "bool", None,  # 5.x: true
        says="compat=5: the broker resets offsets itself; false: connected consumers do it. Default: true with "
             "compat=5"),
    Key("flushConsumerOffsetInterval", "flush_consumer_offset_interval_ms", "int", 5000, 1, unit="ms",
        says="time between writes of the groups' offsets to their file"),
    Key("channelExpiredTimeout", "channel_expired_timeout_ms", "int", 120_000, 1, unit="ms",
        says="time without a heartbeat after which a client is removed"),
    # services of a master
    Key("flushDelayOffsetInterval", "flush_delay_offset_interval_ms", "int", 10_000, 1, unit="ms",
        says="time between writes of the progress of each delay level"),
    Key("transactionTimeOut", "transaction_timeout_ms", "int", 6000, 0, unit="ms",
        says="age of a half message at which its producer is first asked about it"),
    Key("transactionCheckMax", "transaction_check_max", "int", 15, 1, unit="checks",
        says="how many times a producer is asked; then the half message is given up"),
    Key("transactionCheckInterval", "transaction_check_interval_ms", "int", None, 1, unit="ms",
        says="time between searches for half messages to ask about. Default: 60,000, with compat=5 30,000"),
)  # fmt: skip
OWN_CLIENT_KEYS = frozenset({"frontProcesses", "sendBytesInFlightMax"})
