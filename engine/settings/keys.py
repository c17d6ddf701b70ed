"""The keys that this broker uses: type, range, unit, default, field, what each does. Nothing else knows their names.

spec: configuration. A new setting is an entry here and a field in config.py.
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
    Key("brokerClusterName", "broker_cluster_name", "text", "DefaultCluster",
        says="name of the cluster, as name servers list it; a Slipstream slave follows only a master of the same "
             "cluster"),
    Key("brokerName", "broker_name", "text", None,
        says="name that a master and its slaves share. Default: the host's name"),
    Key("brokerId", "broker_id", "int", 0,
        says="0 for the master; a different number above 0 for each of its slaves"),
    Key("brokerRole", "broker_role", "role", "ASYNC_MASTER",
        says="role of the broker: a master, a master whose puts wait for slaves (SYNC_MASTER), or a slave"),
    Key("brokerIP1", "broker_ip1", "address", None,
        says="address that clients connect to; it is stored in each message. Default: an address of this host"),
    Key("brokerIP2", "broker_ip2", "address", None,
        says="address at which slaves fetch the log. Default: `brokerIP1`"),
    Key("bindAddress", "bind_address", "address", None,  # of all three ports; engine/net/listeners.py
        says="address at which the remoting and HA ports listen. Default: loopback if `brokerIP1` is on loopback, "
             "else all addresses"),
    Key("listenPort", "listen_port", "int", 10911, 1, 65534,
        says="port for clients; clients that use the VIP channel connect to the port two below it"),
    Key("namesrvAddr", "name_servers", "addresses", "",
        says="name servers to register at; a slave also learns its master's address from them"),
    Key("registerNameServerPeriod", "register_name_server_period_ms", "int", 30_000, 1, INT_MAX, "ms",
        says="time between registrations; values are limited to 10,000 to 60,000"),
    Key("brokerPermission", "broker_permission", "int", 6, 0, 7, "4 read, 2 write, 1 inherit",
        says="what clients may do on this broker; name servers pass it on to them"),
    Key("compatibleWithOldNameSrv", "compatible_with_old_name_srv", "bool", True,  # by QUERY_DATA_VERSION
        says="with enableSlaveActingMaster: send heartbeats as a request that name servers before 5 also know"),
    Key("brokerHeartbeatInterval", "broker_heartbeat_interval_ms", "int", 1000, 100, INT_MAX, "ms",
        says="with enableSlaveActingMaster: time between heartbeats to name servers"),
    Key("brokerNotActiveTimeoutMillis", "broker_not_active_timeout_ms", "int", 10_000, 1, INT_MAX, "ms",
        says="with enableSlaveActingMaster: name servers remove this broker after this long without a heartbeat"),
    Key("forceRegister", "force_register", "bool", True,
        says="send the whole registration each time; false: first ask whether the name server already has this "
             "version"),
    Key("autoCreateTopicEnable", "auto_create_topic_enable", "bool", True,
        says="create an unknown topic at its first message, from the template topic that the producer names"),
    Key("messageDelayLevel", "message_delay_level", "delays", DEFAULT_LEVELS,
        says="delay of each level, from level 1 on"),
    Key("haListenPort", "ha_listen_port", "int", None, 0, 65535, "0 lets the kernel choose",
        says="port at which slaves fetch the log. Default: `listenPort` + 1"),
    # TLS: the first two are system properties of RocketMQ's; engine/net/tls.py
    Key("tls.server.mode", "tls_server_mode", "tls_mode", "permissive",
        says="whether the ports accept TLS: never, in addition to plaintext, or only TLS"),
    Key("tls.config.file", "tls_config_file", "path", None,
        says="properties file that names certificates and private keys; without it the ports do not accept TLS"),
    Key("useTLS", "use_tls", "bool", None,
        says="use TLS to name servers and to the master's ports. Default: true if `tls.server.mode` is enforcing"),
    Key("haTlsMode", "ha_tls_mode", "ha_tls_mode", "disabled",
        says="`enforcing`: require mutual TLS at the HA port; only Slipstream brokers can do that"),
    Key("haTlsConfigFile", "ha_tls_config_file", "path", None,
        says="properties file with the certificates of the HA port. Default: `tls.config.file`"),
    # files
    Key("storePathRootDir", "store_path_root_dir", "path", "~/store",
        says="directory of the store: log, queues, index, tables"),
    Key("storePathCommitLog", "store_path_commit_log", "path", None,
        says="directory of the log's segments. Default: `commitlog` in the store"),
    Key("mappedFileSizeCommitLog", "mapped_file_size_commit_log_bytes", "int", 1024 * MIB, 256, INT_MAX, "bytes",
        says="size of a segment of the log; must be the same on a master and its slaves"),
    Key("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue_bytes", "int", 6_000_000, 20, INT_MAX, "bytes",
        says="size of a consume queue file, rounded up to whole entries of 20 bytes"),
    Key("messageIndexEnable", "message_index_enable", "bool", True,
        says="build the index by keys; without it no message can be found by its key"),
    Key("messageIndexSafe", "message_index_safe", "bool", False,
        says="after a crash, rebuild the index from the checkpoint instead of from the broker's own mark of its end"),
    Key("maxHashSlotNum", "max_hash_slot_num", "int", 5_000_000, 1, 100_000_000, "slots",
        says="hash slots of an index file; must match existing files"),
    Key("maxIndexNum", "max_index_num", "int", 20_000_000, 2, 80_000_000, "entries",
        says="entries of an index file; must match existing files"),
    Key("mapperFileSizeBatchConsumeQueue", "batch_queue_file_bytes", "int", 13_800_000, 46, INT_MAX, "bytes",
        says="size of a batch consume queue file, in whole entries of 46 bytes"),
    Key("enableConsumeQueueExt", "enable_consume_queue_ext", "bool", False,
        says="write queue extension files, with the store time and tag codes that do not fit into an entry"),
    Key("mappedFileSizeConsumeQueueExt", "queue_ext_file_bytes", "int", 48 * MIB, 64, INT_MAX, "bytes",
        says="size of a queue extension file"),
    Key("enableMultiDispatch", "enable_multi_dispatch", "bool", False,
        says="let a message name further queues in its property INNER_MULTI_DISPATCH"),
    Key("enableLmq", "enable_lmq", "bool", False,
        says="let the light queues among those further queues (`%LMQ%...`) count their own offsets"),
    Key("maxLmqConsumeQueueNum", "light_queues_max", "int", 20_000, 0, INT_MAX, "queues",
        says="maximum number of light queues (`%LMQ%...`); a message that names one more is refused"),
    Key("maxMessageSize", "max_message_bytes", "int", 4 * MIB, 1, INT_MAX, "bytes",
        says="maximum size of a body, or of a whole batch; larger ones are refused"),
    Key("defaultTopicQueueNums", "default_topic_queue_nums", "int", 8, 1, 1024, "queues",
        says="queues of the template topic TBW102: the maximum number of queues of an automatically created topic"),
    Key("checkCRCOnRecover", "check_crc_on_recover", "bool", True,
        says="after a crash, check the CRC of each body at the start; false: check lengths only"),
    # what is stored; engine.producer.broker_facts
    Key("regionId", "region_id", "text", "DefaultRegion",
        says="region sent to producers; with compat=5 it is also stored in messages"),
    Key("traceOn", "trace_on", "bool", True,
        says="whether producers send traces; with compat=5 it is also stored in messages"),
    Key("enabledAppendPropCRC", "enabled_append_prop_crc", "bool", False,
        says="compat=5: append a CRC of the message's properties"),
    Key("timerWheelEnable", "timer_wheel_enable", "bool", True,
        says="compat=5: a slave copies the progress of its master's timer wheel; timer messages are always refused"),
    Key("transactionOpMsgMaxSize", "transaction_op_msg_max_bytes", "int", 4096, 1, INT_MAX, "bytes",
        says="compat=5: maximum size of a message that records committed or rolled-back half messages"),
    Key("transactionOpBatchInterval", "transaction_op_batch_interval_ms", "int", 3000, 1, INT_MAX, "ms",
        says="compat=5: time to collect committed or rolled-back half messages for one record"),
    # flush
    Key("flushDiskType", "flush_disk_type", "flush_type", "ASYNC_FLUSH",
        says="SYNC_FLUSH: PUT_OK waits until the message is on the master's disk; ASYNC_FLUSH: it does not wait"),
    Key("flushIntervalCommitLog", "flush_interval_commit_log_ms", "int", 500, 1, INT_MAX, "ms",
        says="with ASYNC_FLUSH: time between flushes of the log"),
    Key("flushCommitLogTimed", "flush_commit_log_timed", "bool", True,
        says="true: check the log for unflushed data only every `flushIntervalCommitLog`; false: also whenever it "
             "grows"),
    Key("flushCommitLogLeastPages", "flush_commit_log_least_pages", "int", 4, 0, INT_MAX, "pages of 4 KiB",
        says="minimum amount of unflushed log for a flush; less waits for a later round"),
    Key("flushCommitLogThoroughInterval", "flush_commit_log_thorough_interval_ms", "int", 10_000, 0, INT_MAX, "ms",
        says="time after which the log is flushed however little is unflushed"),
    Key("flushIntervalConsumeQueue", "flush_interval_consume_queue_ms", "int", 1000, 1, INT_MAX, "ms",
        says="time between flushes of consume queues"),
    Key("flushConsumeQueueLeastPages", "flush_consume_queue_least_pages", "int", 2, 0, INT_MAX, "pages of 4 KiB",
        says="minimum amount of unflushed data for a flush of a queue; less waits for a later round"),
    Key("flushConsumeQueueThoroughInterval", "flush_consume_queue_thorough_interval_ms", "int", 60_000, unit="ms",
        says="time after which all queues are flushed however little is unflushed"),
    Key("syncFlushTimeout", "sync_flush_timeout_ms", "int", 5000, 1, INT_MAX, "ms",
        says="with SYNC_FLUSH: how long a put waits for the disk before it returns FLUSH_DISK_TIMEOUT"),
    # retention; the percentages are clamped as RocketMQ does it, in engine/protocol/store/retention.py
    Key("deleteWhen", "delete_when_hours", "hours", "04",
        says="hours of the day, in local time, in which expired files are deleted"),
    Key("fileReservedTime", "file_reserved_hours", "int", 72, 0, INT_MAX, "hours",
        says="time after its last write at which a file expires"),
    Key("diskMaxUsedSpaceRatio", "disk_max_used_space_percent", "int", 75, 0, INT_MAX, "%, limited to 10 to 95",
        says="disk usage above which expired files are deleted at any hour"),
    Key("diskSpaceWarningLevelRatio", "disk_space_warning_level_percent", "int", 90, 0, 100,
        "%, with compat=5 limited to 35 to 90",
        says="disk usage above which the store is read-only: puts are refused until there is room"),
    Key("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_percent", "int", 85, 0, 100,
        "%, with compat=5 limited to 30 to 85",
        says="disk usage above which files are deleted at any hour, with cleanFileForciblyEnable also files not yet"
             " expired"),
    Key("cleanFileForciblyEnable", "clean_file_forcibly_enable", "bool", True,
        says="when the disk is too full, also delete files that have not expired"),
    Key("cleanResourceInterval", "clean_resource_interval_ms", "int", 10_000, 1, INT_MAX, "ms",
        says="time between checks for files to delete"),
    Key("deleteCommitLogFilesInterval", "delete_commit_log_files_interval_ms", "int", 100, 0, INT_MAX, "ms",
        says="pause between the deletion of two segments"),
    Key("deleteConsumeQueueFilesInterval", "delete_consume_queue_files_interval_ms", "int", 100, 0, INT_MAX, "ms",
        says="pause between the deletion of two queue files"),
    Key("deleteFileBatchMax", "delete_file_batch_max", "int", 10, 1, INT_MAX, "files",
        says="maximum number of segments deleted in one round"),
    Key("destroyMapedFileIntervalForcibly", "destroy_mapped_file_interval_forcibly_ms", "int", 120_000, unit="ms",
        says="how long the deletion of a file waits for a reader that holds it"),
    Key("redeleteHangedFileInterval", "redelete_hanged_file_interval_ms", "int", 120_000, unit="ms",
        says="time between attempts to delete a file that a reader held"),
    # replication
    Key("haMasterAddress", "ha_master_address", "host_port", None,
        says="for a slave: its master's HA port. Default: the address that name servers give"),
    Key("slaveTimeout", "slave_timeout_ms", "int", 3000, 1, INT_MAX, "ms",
        says="how long a put waits for slaves before it returns FLUSH_SLAVE_TIMEOUT"),
    Key("haSendHeartbeatInterval", "ha_send_heartbeat_interval_ms", "int", 5000, 1, INT_MAX, "ms",
        says="time without a frame after which master and slave send an empty one"),
    Key("haHousekeepingInterval", "ha_housekeeping_interval_ms", "int", 20_000, 1, INT_MAX, "ms",
        says="time without a frame after which a replication connection is closed"),
    Key("haReconnectInterval", "ha_reconnect_interval_ms", "int", 5000, 1, INT_MAX, "ms",
        says="time before a slave connects to its master again"),
    Key("haTransferBatchSize", "ha_transfer_batch_bytes", "int", 32 * 1024, 1, FRAME_BODY_BYTES_MAX, "bytes",
        says="maximum size of a frame of the log sent to a slave"),
    Key("haSlaveFallbehindMax", "ha_slave_fallbehind_max_bytes", "int", 256 * MIB, 0, INT_MAX, "bytes",
        says="a slave that lacks more of the log than this is not in sync"),
    Key("inSyncReplicas", "in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "including the master",
        says="replicas that must have a message before PUT_OK, including the master. Default: 2 on a SYNC_MASTER, "
             "else 1"),
    Key("minInSyncReplicas", "min_in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "including the master",
        says="with enableAutoInSyncReplicas: the minimum. Default on a SYNC_MASTER: 2, or `inSyncReplicas` if that "
             "is less; else 1"),
    Key("enableAutoInSyncReplicas", "enable_auto_in_sync_replicas", "bool", False,
        says="compat=5 with enableSlaveActingMaster: a put waits for as many replicas as are in sync"),
    Key("enableSlaveActingMaster", "enable_slave_acting_master", "bool", False,
        says="compat=5 on a SYNC_MASTER: send heartbeats to name servers; refuse puts with too few replicas in sync"),
    Key("haFlowControlEnable", "ha_flow_control_enable", "bool", False,
        says="limit what is sent to each slave to `maxHaTransferByteInSecond`"),
    Key("maxHaTransferByteInSecond", "max_ha_transfer_byte_in_second", "int", 100 * MIB, 1, BYTES_MAX, "bytes/s",
        says="that limit, for each slave"),
    Key("maxHaCatchUpByteInSecond", "max_ha_catch_up_byte_in_second", "int", 0, 0, BYTES_MAX, "bytes/s; 0 for no limit",
        says="limit for each replica that lacks more than 64 MiB"),
    Key("syncFromLastFile", "sync_from_last_file", "bool", False,
        says="an empty slave fetches only the last segment, not the whole history"),
    Key("haStartFromMin", "ha_start_from_min", "bool", False,
        says="send the whole log to an empty RocketMQ slave, not only the last segment"),
    Key("haSecretFile", "ha_secret_file", "path", None,
        says="file with a secret, the same on all replicas, which stops another host from posing as one of them. "
             "Default: none"),
    Key("haSecretRequired", "ha_secret_required", "bool", False,
        says="require every HA peer to prove that it knows the secret; RocketMQ brokers cannot, so they are refused"),
    Key("haAckFlushed", "ha_ack_flushed", "bool", False,
        says="a synchronous put waits until its replicas have it on disk (Slipstream replicas only)"),
    # metrics
    Key("metricsExporterType", "metrics_exporter_type", "exporter", "PROM",
        says="PROM serves `/metrics`, DISABLE does not; other values mean PROM"),
    Key("metricsPromExporterHost", "metrics_host", "address", "127.0.0.1",
        says="address of the `/metrics` port"),
    Key("metricsPromExporterPort", "metrics_port", "int", None, 0, 65535, "0 lets the kernel choose",
        says="port of `/metrics`. Default: 5557, or any free port if that is taken"),
    Key("metricsOtelCardinalityLimit", "metrics_samples_max", "int", 50_000, 2, INT_MAX, "samples of one metric",
        says="maximum number of samples of one metric; one more sample stands for the rest"),
    # access: engine/protocol/access; this host may always do everything
    Key("remotingAllowList", "remoting_allow_list", "allow_list", None,
        says="addresses and networks that may connect to `listenPort` and the port two below it. Default: all. "
             "Also a name-server setting"),
    Key("adminAllowList", "admin_allow_list", "allow_list", None,
        says="addresses and networks that may also change and delete, and read settings. Default: this host. "
             "Also a name-server setting"),
    Key("haAllowList", "ha_allow_list", "allow_list", None,
        says="addresses and networks that may follow this broker's log. Default: all"),
    Key("metricsAllowList", "metrics_allow_list", "allow_list", None,
        says="addresses and networks that may read `/metrics`. Default: all"),
    Key("remotingConnectionsMax", "remoting_connections_max", "int", REMOTING_CONNECTIONS, 8, CONNECTIONS_MAX,
        says="maximum number of connections at the remoting ports; a new one closes the one idle longest. Also a "
             "name-server setting"),
    Key("haCallersMax", "ha_callers_max", "int", HA_CALLERS, 8, CONNECTIONS_MAX,
        says="maximum number of HA connections without a slave slot; a new one closes one from the network that has"
             " the most"),
    Key("metricsConnectionsMax", "metrics_connections_max", "int", METRICS_CONNECTIONS, 1, CONNECTIONS_MAX,
        says="maximum number of connections at the `/metrics` port; a new one closes the oldest"),
    # Slipstream's own
    Key("compat", "compat", "compat", OF_BROKERS,
        says="RocketMQ version to follow where 4.9 and 5.x differ"),
    Key("regionPath", "region_path", "path", "/dev/shm",
        says="directory for shared memory"),
    Key("storeGroup", "store_group", "text", None,
        says="group (name or number) whose members may read the store and shared memory, and hold leases. Default: "
             "the group of the broker's user"),
    Key("ringSizeInBytes", "ring_bytes", "int", 16 * MIB, 64 * 1024, 1024 * MIB, "bytes",
        says="size of each producer's ring"),
    Key("maxProducers", "producers_max", "int", 64, 1, 1024,
        says="maximum number of producer processes at a time"),
    Key("affinity", "affinity", "affinity", None,
        says="CPUs of the broker. Default: `sync` (synchronous path on one CPU) on slaves and a SYNC_MASTER, else "
             "empty (kernel decides)"),
    Key("promotedRole", "promoted_role", "role", "ASYNC_MASTER",
        says="role that `slipstream promote` gives a slave: ASYNC_MASTER or SYNC_MASTER"),
    Key("columnarSidecar", "columnar_sidecar", "bool", False,
        says="build Parquet side files of sealed segments, for reads of columns; needs the package pyarrow"),
    *LOG_KEYS,
    *CLIENT_KEYS,
)  # fmt: skip
OWN_KEYS = OWN_CLIENT_KEYS | frozenset(
    """
    compat regionPath storeGroup ringSizeInBytes maxProducers affinity haReconnectInterval remotingAllowList
    adminAllowList haAllowList metricsAllowList remotingConnectionsMax haCallersMax metricsConnectionsMax
    promotedRole haTlsMode haTlsConfigFile maxHaCatchUpByteInSecond haStartFromMin haSecretFile haAckFlushed
    haSecretRequired logLevel logForm logFile logFileMaxBytes logFilesKept columnarSidecar
    """.split()
)

# Other names of the same setting: without a warning, and with one.
SYNONYMS = {"haMaxGapNotInSync": "haSlaveFallbehindMax"}
OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
