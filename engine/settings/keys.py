"""The keys that this broker uses: type, range, unit, default and field. One line each; nothing else knows their names.

spec: configuration. A new setting is a line here and a field in config.py.
Sizes and times are whole numbers, in the unit named; a default of None is worked out from other keys in config.py.
"""

from __future__ import annotations

from engine.settings.client_keys import CLIENT_KEYS, OWN_CLIENT_KEYS
from engine.settings.key import INT_MAX, Key
from engine.settings.log_settings import LOG_KEYS
from store.compat import OF_BROKERS
from store.message.delay import DEFAULT_LEVELS

MIB = 1 << 20
SENDERS_MAX = 8  # engine.board.cursors.HA_CONNECTIONS_MAX; a test compares them
REMOTING_CONNECTIONS, HA_CALLERS, METRICS_CONNECTIONS = 4096, 512, 32
CONNECTIONS_MAX = 65_536
BYTES_MAX = 1 << 60
FRAME_BODY_BYTES_MAX = 4 * MIB - 12  # what a Java slave's buffer holds

KEYS = (
    # identity and network
    Key("brokerClusterName", "broker_cluster_name", "text", "DefaultCluster"),
    Key("brokerName", "broker_name", "text", None),
    Key("brokerId", "broker_id", "int", 0),
    Key("brokerRole", "broker_role", "role", "ASYNC_MASTER"),
    Key("brokerIP1", "broker_ip1", "address", None),
    Key("brokerIP2", "broker_ip2", "address", None),
    Key("bindAddress", "bind_address", "address", None),  # of all three ports; engine/net/listeners.py
    Key("listenPort", "listen_port", "int", 10911, 1, 65534),
    Key("namesrvAddr", "name_servers", "addresses", ""),
    Key("registerNameServerPeriod", "register_name_server_period_ms", "int", 30_000, 1, INT_MAX, "ms"),
    Key("brokerPermission", "broker_permission", "int", 6, 0, 7, "4 read, 2 write, 1 inherit"),
    Key("compatibleWithOldNameSrv", "compatible_with_old_name_srv", "bool", True),  # by QUERY_DATA_VERSION
    Key("brokerHeartbeatInterval", "broker_heartbeat_interval_ms", "int", 1000, 100, INT_MAX, "ms"),
    Key("brokerNotActiveTimeoutMillis", "broker_not_active_timeout_ms", "int", 10_000, 1, INT_MAX, "ms"),
    Key("forceRegister", "force_register", "bool", True),
    Key("autoCreateTopicEnable", "auto_create_topic_enable", "bool", True),
    Key("messageDelayLevel", "message_delay_level", "delays", DEFAULT_LEVELS),
    Key("haListenPort", "ha_listen_port", "int", None, 0, 65535, "0 lets the kernel choose"),
    # TLS: the first two are system properties of RocketMQ's; engine/net/tls.py
    Key("tls.server.mode", "tls_server_mode", "tls_mode", "permissive"),
    Key("tls.config.file", "tls_config_file", "path", None),
    Key("useTLS", "use_tls", "bool", None),  # of our own connections; none given: where tls.server.mode is enforcing
    Key("haTlsMode", "ha_tls_mode", "ha_tls_mode", "disabled"),
    Key("haTlsConfigFile", "ha_tls_config_file", "path", None),  # none given: tls.config.file
    # files
    Key("storePathRootDir", "store_path_root_dir", "path", "~/store"),
    Key("storePathCommitLog", "store_path_commit_log", "path", None),
    Key("mappedFileSizeCommitLog", "mapped_file_size_commit_log_bytes", "int", 1024 * MIB, 256, INT_MAX, "bytes"),
    Key("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue_bytes", "int", 6_000_000, 20, INT_MAX, "bytes"),
    Key("messageIndexEnable", "message_index_enable", "bool", True),
    Key("messageIndexSafe", "message_index_safe", "bool", False),
    Key("maxHashSlotNum", "max_hash_slot_num", "int", 5_000_000, 1, 100_000_000, "slots"),
    Key("maxIndexNum", "max_index_num", "int", 20_000_000, 2, 80_000_000, "entries"),
    Key("mapperFileSizeBatchConsumeQueue", "batch_queue_file_bytes", "int", 13_800_000, 46, INT_MAX, "bytes"),
    Key("enableConsumeQueueExt", "enable_consume_queue_ext", "bool", False),
    Key("mappedFileSizeConsumeQueueExt", "queue_ext_file_bytes", "int", 48 * MIB, 64, INT_MAX, "bytes"),
    Key("enableMultiDispatch", "enable_multi_dispatch", "bool", False),
    Key("enableLmq", "enable_lmq", "bool", False),
    Key("maxMessageSize", "max_message_bytes", "int", 4 * MIB, 1, INT_MAX, "bytes"),
    Key("defaultTopicQueueNums", "default_topic_queue_nums", "int", 8, 1, 1024, "queues"),
    Key("checkCRCOnRecover", "check_crc_on_recover", "bool", True),
    # what is stored; engine.producer.broker_facts
    Key("regionId", "region_id", "text", "DefaultRegion"),
    Key("traceOn", "trace_on", "bool", True),
    Key("enabledAppendPropCRC", "enabled_append_prop_crc", "bool", False),
    Key("timerWheelEnable", "timer_wheel_enable", "bool", True),
    Key("transactionOpMsgMaxSize", "transaction_op_msg_max_bytes", "int", 4096, 1, INT_MAX, "bytes"),
    Key("transactionOpBatchInterval", "transaction_op_batch_interval_ms", "int", 3000, 1, INT_MAX, "ms"),
    # flush
    Key("flushDiskType", "flush_disk_type", "flush_type", "ASYNC_FLUSH"),
    Key("flushIntervalCommitLog", "flush_interval_commit_log_ms", "int", 500, 1, INT_MAX, "ms"),
    Key("flushCommitLogTimed", "flush_commit_log_timed", "bool", True),
    Key("flushCommitLogLeastPages", "flush_commit_log_least_pages", "int", 4, 0, INT_MAX, "pages of 4 KiB"),
    Key("flushCommitLogThoroughInterval", "flush_commit_log_thorough_interval_ms", "int", 10_000, 0, INT_MAX, "ms"),
    Key("flushIntervalConsumeQueue", "flush_interval_consume_queue_ms", "int", 1000, 1, INT_MAX, "ms"),
    Key("flushConsumeQueueLeastPages", "flush_consume_queue_least_pages", "int", 2, 0, INT_MAX, "pages of 4 KiB"),
    Key("flushConsumeQueueThoroughInterval", "flush_consume_queue_thorough_interval_ms", "int", 60_000, unit="ms"),
    Key("syncFlushTimeout", "sync_flush_timeout_ms", "int", 5000, 1, INT_MAX, "ms"),
    # retention; the percentages are clamped as RocketMQ does it, in engine/protocol/store/retention.py
    Key("deleteWhen", "delete_when_hours", "hours", "04"),
    Key("fileReservedTime", "file_reserved_hours", "int", 72, 0, INT_MAX, "hours"),
    Key("diskMaxUsedSpaceRatio", "disk_max_used_space_percent", "int", 75, 0, INT_MAX, "%, taken as 10 to 95"),
    Key("diskSpaceWarningLevelRatio", "disk_space_warning_level_percent", "int", 90, 0, 100, "%, 5.x: 35 to 90"),
    Key("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_percent", "int", 85, 0, 100, "%, 5.x: 30 to 85"),
    Key("cleanFileForciblyEnable", "clean_file_forcibly_enable", "bool", True),
    Key("cleanResourceInterval", "clean_resource_interval_ms", "int", 10_000, 1, INT_MAX, "ms"),
    Key("deleteCommitLogFilesInterval", "delete_commit_log_files_interval_ms", "int", 100, 0, INT_MAX, "ms"),
    Key("deleteConsumeQueueFilesInterval", "delete_consume_queue_files_interval_ms", "int", 100, 0, INT_MAX, "ms"),
    Key("deleteFileBatchMax", "delete_file_batch_max", "int", 10, 1, INT_MAX, "files"),
    Key("destroyMapedFileIntervalForcibly", "destroy_mapped_file_interval_forcibly_ms", "int", 120_000, unit="ms"),
    Key("redeleteHangedFileInterval", "redelete_hanged_file_interval_ms", "int", 120_000, unit="ms"),
    # replication
    Key("haMasterAddress", "ha_master_address", "host_port", None),
    Key("slaveTimeout", "slave_timeout_ms", "int", 3000, 1, INT_MAX, "ms"),
    Key("haSendHeartbeatInterval", "ha_send_heartbeat_interval_ms", "int", 5000, 1, INT_MAX, "ms"),
    Key("haHousekeepingInterval", "ha_housekeeping_interval_ms", "int", 20_000, 1, INT_MAX, "ms"),
    Key("haReconnectInterval", "ha_reconnect_interval_ms", "int", 5000, 1, INT_MAX, "ms"),
    Key("haTransferBatchSize", "ha_transfer_batch_bytes", "int", 32 * 1024, 1, FRAME_BODY_BYTES_MAX, "bytes"),
    Key("haSlaveFallbehindMax", "ha_slave_fallbehind_max_bytes", "int", 256 * MIB, 0, INT_MAX, "bytes"),
    Key("inSyncReplicas", "in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "the master counted"),
    Key("minInSyncReplicas", "min_in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "the master counted"),
    Key("enableAutoInSyncReplicas", "enable_auto_in_sync_replicas", "bool", False),
    Key("enableSlaveActingMaster", "enable_slave_acting_master", "bool", False),
    Key("haFlowControlEnable", "ha_flow_control_enable", "bool", False),
    Key("maxHaTransferByteInSecond", "max_ha_transfer_byte_in_second", "int", 100 * MIB, 1, BYTES_MAX, "bytes/s"),
    Key("maxHaCatchUpByteInSecond", "max_ha_catch_up_byte_in_second", "int", 0, 0, BYTES_MAX, "bytes/s; 0: no bound"),
    Key("syncFromLastFile", "sync_from_last_file", "bool", False),
    Key("haStartFromMin", "ha_start_from_min", "bool", False),
    Key("haSecretFile", "ha_secret_file", "path", None),
    Key("haSecretRequired", "ha_secret_required", "bool", False),
    Key("haAckFlushed", "ha_ack_flushed", "bool", False),
    # metrics; without a port: 5557, or any free one where that is taken
    Key("metricsExporterType", "metrics_exporter_type", "exporter", "PROM"),
    Key("metricsPromExporterHost", "metrics_host", "address", "127.0.0.1"),
    Key("metricsPromExporterPort", "metrics_port", "int", None, 0, 65535, "0 lets the kernel choose"),
    Key("metricsOtelCardinalityLimit", "metrics_samples_max", "int", 50_000, 2, INT_MAX, "samples of one metric"),
    # who may connect and what for, from where: engine/protocol/access; this host always may, all of it
    Key("remotingAllowList", "remoting_allow_list", "allow_list", None),
    Key("adminAllowList", "admin_allow_list", "allow_list", None),
    Key("haAllowList", "ha_allow_list", "allow_list", None),
    Key("metricsAllowList", "metrics_allow_list", "allow_list", None),
    Key("remotingConnectionsMax", "remoting_connections_max", "int", REMOTING_CONNECTIONS, 8, CONNECTIONS_MAX),
    Key("haCallersMax", "ha_callers_max", "int", HA_CALLERS, 8, CONNECTIONS_MAX),  # those that wait for a slot
    Key("metricsConnectionsMax", "metrics_connections_max", "int", METRICS_CONNECTIONS, 1, CONNECTIONS_MAX),
    # our own
    Key("compat", "compat", "compat", OF_BROKERS),
    Key("regionPath", "region_path", "path", "/dev/shm"),
    Key("storeGroup", "store_group", "text", None),
    Key("ringSizeInBytes", "ring_bytes", "int", 16 * MIB, 64 * 1024, 1024 * MIB, "bytes"),
    Key("maxProducers", "producers_max", "int", 64, 1, 1024),
    Key("affinity", "affinity", "affinity", None),
    Key("promotedRole", "promoted_role", "role", "ASYNC_MASTER"),  # of a slave, once it is promoted
    *LOG_KEYS,
    *CLIENT_KEYS,
)
OWN_KEYS = OWN_CLIENT_KEYS | frozenset(
    """
    compat regionPath storeGroup ringSizeInBytes maxProducers affinity haReconnectInterval remotingAllowList
    adminAllowList haAllowList metricsAllowList remotingConnectionsMax haCallersMax metricsConnectionsMax
    promotedRole haTlsMode haTlsConfigFile maxHaCatchUpByteInSecond haStartFromMin haSecretFile haAckFlushed
    haSecretRequired logLevel logForm logFile logFileMaxBytes logFilesKept
    """.split()
)

# Other names of the same setting: without a warning, and with one.
SYNONYMS = {"haMaxGapNotInSync": "haSlaveFallbehindMax"}
OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
