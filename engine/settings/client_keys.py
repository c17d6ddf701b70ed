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
    Key("frontProcesses", "front_processes", "int", 1, 1, FRONTS_MAX, "processes that share listenPort",
        says="processes that share `listenPort` and serve clients' connections"),
    # sends
    Key("rejectTransactionMessage", "reject_transaction_message", "bool", False,
        says="half messages are refused"),
    Key("brokerFastFailureEnable", "broker_fast_failure_enable", "bool", True,
        says="requests that waited for too long are answered SYSTEM_BUSY, not served late"),
    Key("waitTimeMillsInSendQueue", "wait_in_send_queue_ms", "int", 200, 1, unit="ms",
        says="how long a send waits for room in the ring, before it is SYSTEM_BUSY"),
    Key("waitTimeMillsInTransactionQueue", "wait_in_transaction_queue_ms", "int", 3000, 1, unit="ms",
        says="how long the end of a transaction waits for room in the ring"),
    Key("osPageCacheBusyTimeOutMills", "page_cache_busy_timeout_ms", "int", 1000, 0, unit="ms",
        says="a writer that stands still for longer is busy: sends that wait for it are refused"),
    Key("sendThreadPoolQueueCapacity", "send_queue_capacity", "int", 10_000, 1, unit="sends in flight",
        says="sends of a front without an answer; above it clients are told to wait"),
    Key("pullThreadPoolQueueCapacity", "pull_queue_capacity", "int", 100_000, 1, unit="pulls in flight",
        says="pulls that a front holds until messages come; above it they are answered at once"),
    Key("sendBytesInFlightMax", "send_bytes_in_flight_max", "int", 64 * MIB, MIB, 1024 * MIB, "bytes",
        says="bytes of sends without an answer, of all connections of a front; above it clients are told to wait"),
    Key("startAcceptSendRequestTimeStamp", "accepts_sends_from_ms", "int", 0, 0, LONG_MAX, "ms since the epoch",
        says="until then sends are refused"),
    Key("storeReplyMessageEnable", "store_reply_message_enable", "bool", True,
        says="replies of request-reply are stored, too, not only passed on"),
    Key("traceTopicEnable", "trace_topic_enable", "bool", False,
        says="makes the topic of traces"),
    Key("msgTraceTopicName", "msg_trace_topic_name", "text", "RMQ_SYS_TRACE_TOPIC",
        says="the name of the topic of traces"),
    # pulls
    Key("longPollingEnable", "long_polling_enable", "bool", True,
        says="a pull that finds nothing is held until a message comes or its time is over"),
    Key("shortPollingTimeMills", "short_polling_time_ms", "int", 1000, 1, unit="ms",
        says="with longPollingEnable=false: how long such a pull is held"),
    Key("slaveReadEnable", "slave_read_enable", "bool", False,
        says="consumers that lag by more than the memory has are sent to a slave; a slave serves them"),
    Key("offsetCheckInSlave", "offset_check_in_slave", "bool", False,
        says="a slave corrects offsets that its queue does not have; else it leaves that to its master"),
    Key("maxTransferBytesOnMessageInMemory", "transfer_bytes_in_memory_max", "int", 256 * 1024, 1, unit="bytes",
        says="bytes that a pull gets of what is in memory"),
    Key("maxTransferCountOnMessageInMemory", "transfer_count_in_memory_max", "int", 32, 1, unit="messages",
        says="messages that a pull gets of what is in memory"),
    Key("maxTransferBytesOnMessageInDisk", "transfer_bytes_on_disk_max", "int", 64 * 1024, 1, unit="bytes",
        says="bytes that a pull gets of older messages"),
    Key("maxTransferCountOnMessageInDisk", "transfer_count_on_disk_max", "int", 8, 1, unit="messages",
        says="messages that a pull gets of older ones"),
    Key("accessMessageInMemoryMaxRatio", "memory_max_percent", "int", 40, 0, 100, "% of this host's memory",
        says="what of the log's end counts as being in memory"),
    Key("defaultQueryMaxNum", "query_max_num", "int", 32, 1, 10_000, "messages",
        says="messages that a query by key finds at most, where it does not say how many"),
    Key("waitTimeMillsInPullQueue", "wait_in_pull_queue_ms", "int", 5000, 1, unit="ms",
        says="how long a pull waits until a starting broker knows its topics, before it is SYSTEM_BUSY"),
    Key("disableConsumeIfConsumerReadSlowly", "disable_slow_consumers", "bool", False,
        says="a group that is too far behind may consume no more"),
    Key("consumerFallbehindThreshold", "consumer_fallbehind_max_bytes", "int", 16 * GIB, 0, LONG_MAX, "bytes",
        says="that distance, in bytes of the log"),
    # groups and offsets
    Key("waitTimeMillsInHeartbeatQueue", "wait_in_heartbeat_queue_ms", "int", 31_000, 1, unit="ms",
        says="how long a client's heartbeat may wait, before it is SYSTEM_BUSY"),
    Key("waitTimeMillsInAdminBrokerQueue", "wait_in_admin_queue_ms", "int", 5000, 1, unit="ms, 5.x",
        says="compat=5: how long a report waits, before it is SYSTEM_BUSY"),
    Key("autoCreateSubscriptionGroup", "auto_create_groups", "bool", True,
        says="a group's first heartbeat makes it"),
    Key("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", "bool", True,
        says="members of a group are told at once that others came or went"),
    Key("lockInStrictMode", "lock_in_strict_mode", "bool", False,  # 5.x; engine/remoting/peers/replica_locks.py
        says="compat=5: a queue is locked once a majority of the group's brokers say so"),
    Key("totalReplicas", "total_replicas", "int", 1, 1, REPLICAS_MAX, "of a group: half of them and one lock a queue",
        says="how many brokers that group has; half of them and one are the majority"),
    Key("useServerSideResetOffset", "use_server_side_reset_offset", "bool", None,  # 5.x: true
        says="compat=5: the broker sets offsets back itself; false: consumers that are online do"),
    Key("flushConsumerOffsetInterval", "flush_consumer_offset_interval_ms", "int", 5000, 1, unit="ms",
        says="how often the groups' offsets are written to their file"),
    Key("channelExpiredTimeout", "channel_expired_timeout_ms", "int", 120_000, 1, unit="ms",
        says="a client without a heartbeat for longer is gone"),
    # services of a master
    Key("flushDelayOffsetInterval", "flush_delay_offset_interval_ms", "int", 10_000, 1, unit="ms",
        says="how often it is written down how far each delay level is delivered"),
    Key("transactionTimeOut", "transaction_timeout_ms", "int", 6000, 0, unit="ms",
        says="how old a half message is when its producer is first asked"),
    Key("transactionCheckMax", "transaction_check_max", "int", 15, 1, unit="checks",
        says="how often a producer is asked; then the half message is given up"),
    Key("transactionCheckInterval", "transaction_check_interval_ms", "int", None, 1, unit="ms",
        says="how often it looks for half messages to ask about; by default 60,000, with compat=5 30,000"),
)  # fmt: skip
OWN_CLIENT_KEYS = frozenset({"frontProcesses", "sendBytesInFlightMax"})
