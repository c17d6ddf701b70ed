"""The keys of what producers and consumers are served: front processes, sends, pulls, groups, delay, transactions.

spec: configuration, sections 2 to 5. A new setting is a field here.
"""

from __future__ import annotations

from engine.settings.key import key, keys_of
from engine.settings.log_settings import LogSettings

MIB, GIB = 1 << 20, 1 << 30
FRONTS_MAX = 8  # engine.shared_memory.cursors has words for so many
REPLICAS_MAX = 64
LONG_MAX = (1 << 63) - 1


class ClientSettings(LogSettings):
    """The part of `BrokerConfig` about clients."""

    front_processes: int = key(
        "frontProcesses",
        1,
        1,
        FRONTS_MAX,
        unit="processes",
        says="processes that share `listenPort` and serve clients' connections",
    )
    # sends
    reject_transaction_message: bool = key("rejectTransactionMessage", False, says="refuse half messages")
    broker_fast_failure_enable: bool = key(
        "brokerFastFailureEnable",
        True,
        says="answer requests that waited too long with SYSTEM_BUSY instead of serving them late",
    )
    wait_in_send_queue_ms: int = key(
        "waitTimeMillsInSendQueue",
        200,
        1,
        unit="ms",
        says="how long a send waits for room in the ring before it is answered SYSTEM_BUSY",
    )
    wait_in_transaction_queue_ms: int = key(
        "waitTimeMillsInTransactionQueue",
        3000,
        1,
        unit="ms",
        says="how long the end of a transaction waits for room in the ring",
    )
    page_cache_busy_timeout_ms: int = key(
        "osPageCacheBusyTimeOutMills",
        1000,
        unit="ms",
        says="refuse sends when the writer has not moved for longer than this and puts are waiting",
    )
    send_queue_capacity: int = key(
        "sendThreadPoolQueueCapacity",
        10_000,
        1,
        unit="sends in flight",
        says="maximum number of unanswered sends of a front; further sends are answered SYSTEM_BUSY",
    )
    pull_queue_capacity: int = key(
        "pullThreadPoolQueueCapacity",
        100_000,
        1,
        unit="pulls in flight",
        says="maximum number of pulls that a front holds until messages arrive; further pulls are answered SYSTEM_BUSY",
    )
    send_bytes_in_flight_max: int = key(
        "sendBytesInFlightMax",
        64 * MIB,
        MIB,
        1024 * MIB,
        unit="bytes",
        says="maximum size of all unanswered sends of a front; further sends are answered SYSTEM_BUSY",
    )
    accepts_sends_from_ms: int = key(
        "startAcceptSendRequestTimeStamp",
        0,
        0,
        LONG_MAX,
        unit="ms since the epoch",
        says="refuse sends before this time",
    )
    store_reply_message_enable: bool = key(
        "storeReplyMessageEnable", True, says="also store the replies of request-reply, not only pass them on"
    )
    trace_topic_enable: bool = key("traceTopicEnable", False, says="create the topic for traces")
    msg_trace_topic_name: str = key("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", says="name of the topic for traces")
    # pulls
    long_polling_enable: bool = key(
        "longPollingEnable", True, says="hold a pull that finds nothing until a message arrives or its time is over"
    )
    short_polling_time_ms: int = key(
        "shortPollingTimeMills", 1000, 1, unit="ms", says="with longPollingEnable=false: how long such a pull is held"
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        False,
        says="send consumers to a slave when their messages are no longer in the master's memory; a slave serves pulls",
    )
    offset_check_in_slave: bool = key(
        "offsetCheckInSlave",
        False,
        says="a slave corrects offsets that its queue does not have; false: it leaves that to its master",
    )
    transfer_bytes_in_memory_max: int = key(
        "maxTransferBytesOnMessageInMemory",
        256 * 1024,
        1,
        unit="bytes",
        says="maximum size of a pull's answer from messages in memory",
    )
    transfer_count_in_memory_max: int = key(
        "maxTransferCountOnMessageInMemory",
        32,
        1,
        unit="messages",
        says="maximum number of messages in a pull's answer from memory",
    )
    transfer_bytes_on_disk_max: int = key(
        "maxTransferBytesOnMessageInDisk",
        64 * 1024,
        1,
        unit="bytes",
        says="maximum size of a pull's answer from older messages",
    )
    transfer_count_on_disk_max: int = key(
        "maxTransferCountOnMessageInDisk",
        8,
        1,
        unit="messages",
        says="maximum number of messages in a pull's answer from older ones",
    )
    memory_max_percent: int = key(
        "accessMessageInMemoryMaxRatio",
        40,
        0,
        100,
        unit="% of this host's memory",
        says="size of the log's newest part that counts as in memory",
    )
    query_max_num: int = key(
        "defaultQueryMaxNum",
        32,
        1,
        10_000,
        unit="messages",
        says="maximum number of messages that a query by key returns when the query gives no number",
    )
    wait_in_pull_queue_ms: int = key(
        "waitTimeMillsInPullQueue",
        5000,
        1,
        unit="ms",
        says="how long a pull waits for a starting broker to know its topics before it is answered SYSTEM_BUSY",
    )
    disable_slow_consumers: bool = key(
        "disableConsumeIfConsumerReadSlowly", False, says="stop a group from consuming when it is too far behind"
    )
    consumer_fallbehind_max_bytes: int = key(
        "consumerFallbehindThreshold", 16 * GIB, 0, LONG_MAX, unit="bytes", says="that distance, in bytes of the log"
    )
    # groups and offsets
    wait_in_heartbeat_queue_ms: int = key(
        "waitTimeMillsInHeartbeatQueue",
        31_000,
        1,
        unit="ms",
        says="how long a client's heartbeat may wait before it is answered SYSTEM_BUSY",
    )
    wait_in_admin_queue_ms: int = key(
        "waitTimeMillsInAdminBrokerQueue",
        5000,
        1,
        unit="ms",
        says="compat=5: how long a request for a report may wait before it is answered SYSTEM_BUSY",
    )
    auto_create_groups: bool = key(
        "autoCreateSubscriptionGroup", True, says="create a consumer group at its first heartbeat"
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable", True, says="notify the members of a group at once when others join or leave"
    )
    lock_in_strict_mode: bool = key(  # 5.x; engine/remoting/peers/replica_locks.py
        "lockInStrictMode",
        False,
        says="compat=5: a queue is locked once a majority of the group's brokers grant the lock",
    )
    total_replicas: int = key(
        "totalReplicas",
        1,
        1,
        REPLICAS_MAX,
        unit="",
        says="number of brokers in that group; a majority is more than half of them",
    )
    use_server_side_reset_offset: bool = key(  # 5.x: true
        "useServerSideResetOffset",
        None,
        says="compat=5: the broker resets offsets itself; false: connected consumers do it. Default: true with "
        "compat=5",
    )
    flush_consumer_offset_interval_ms: int = key(
        "flushConsumerOffsetInterval",
        5000,
        1,
        unit="ms",
        says="time between writes of the groups' offsets to their file",
    )
    channel_expired_timeout_ms: int = key(
        "channelExpiredTimeout", 120_000, 1, unit="ms", says="time without a heartbeat after which a client is removed"
    )
    # services of a master
    flush_delay_offset_interval_ms: int = key(
        "flushDelayOffsetInterval", 10_000, 1, unit="ms", says="time between writes of the progress of each delay level"
    )
    transaction_timeout_ms: int = key(
        "transactionTimeOut",
        6000,
        unit="ms",
        says="age of a half message at which its producer is first asked about it",
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        15,
        1,
        unit="checks",
        says="how many times a producer is asked; then the half message is given up",
    )
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval",
        None,
        1,
        unit="ms",
        says="time between searches for half messages to ask about. Default: 60,000, with compat=5 30,000",
    )


CLIENT_KEYS = keys_of(ClientSettings)
OWN_CLIENT_KEYS = frozenset({"frontProcesses", "sendBytesInFlightMax"})
