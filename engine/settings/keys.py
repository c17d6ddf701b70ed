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
        says="the cluster, as name servers tell it; replicas of ours follow a master of the same one only"),
    Key("brokerName", "broker_name", "text", None,
        says="the name that a master and its slaves share; by default the host's name"),
    Key("brokerId", "broker_id", "int", 0,
        says="0 is the master; each slave has another number above 0"),
    Key("brokerRole", "broker_role", "role", "ASYNC_MASTER",
        says="what it is: a master, one whose puts wait for slaves, or a slave"),
    Key("brokerIP1", "broker_ip1", "address", None,
        says="the address that clients are told, and that stands in messages; by default one of this host"),
    Key("brokerIP2", "broker_ip2", "address", None,
        says="the address at which slaves are told to find the log; by default brokerIP1"),
    Key("bindAddress", "bind_address", "address", None,  # of all three ports; engine/net/listeners.py
        says="the address at which all three ports listen; without it loopback alone where brokerIP1 is on "
             "loopback"),
    Key("listenPort", "listen_port", "int", 10911, 1, 65534,
        says="where clients connect; those that use the VIP channel at the port two below it"),
    Key("namesrvAddr", "name_servers", "addresses", "",
        says="the name servers at which it registers, and of which a slave learns its master"),
    Key("registerNameServerPeriod", "register_name_server_period_ms", "int", 30_000, 1, INT_MAX, "ms",
        says="how often it registers again, taken as 10,000 to 60,000"),
    Key("brokerPermission", "broker_permission", "int", 6, 0, 7, "4 read, 2 write, 1 inherit",
        says="what clients may do here: read, write or both; name servers tell them"),
    Key("compatibleWithOldNameSrv", "compatible_with_old_name_srv", "bool", True,  # by QUERY_DATA_VERSION
        says="with enableSlaveActingMaster: beats go as a request that name servers before 5 know, too"),
    Key("brokerHeartbeatInterval", "broker_heartbeat_interval_ms", "int", 1000, 100, INT_MAX, "ms",
        says="with enableSlaveActingMaster: how often it tells name servers that it lives"),
    Key("brokerNotActiveTimeoutMillis", "broker_not_active_timeout_ms", "int", 10_000, 1, INT_MAX, "ms",
        says="with enableSlaveActingMaster: after how much silence name servers forget it"),
    Key("forceRegister", "force_register", "bool", True,
        says="registers each time in full; false: asks first whether a name server has this version"),
    Key("autoCreateTopicEnable", "auto_create_topic_enable", "bool", True,
        says="a message to an unknown topic makes it, by the topic that its producer names"),
    Key("messageDelayLevel", "message_delay_level", "delays", DEFAULT_LEVELS,
        says="how long a message of each delay level waits, from level 1 on"),
    Key("haListenPort", "ha_listen_port", "int", None, 0, 65535, "0 lets the kernel choose",
        says="where slaves fetch the log; by default listenPort + 1"),
    # TLS: the first two are system properties of RocketMQ's; engine/net/tls.py
    Key("tls.server.mode", "tls_server_mode", "tls_mode", "permissive",
        says="whether its ports take TLS: never, beside plaintext, or nothing else"),
    Key("tls.config.file", "tls_config_file", "path", None,
        says="the properties file that names certificates and keys; without one no TLS is spoken"),
    Key("useTLS", "use_tls", "bool", None,
        says="its own connections, to name servers and to a master's ports, use TLS; by default where it "
             "enforces TLS itself"),
    Key("haTlsMode", "ha_tls_mode", "ha_tls_mode", "disabled",
        says="`enforcing`: mutual TLS at the HA port, between ours alone"),
    Key("haTlsConfigFile", "ha_tls_config_file", "path", None,
        says="the certificates of the HA port; by default those of `tls.config.file`"),
    # files
    Key("storePathRootDir", "store_path_root_dir", "path", "~/store",
        says="the directory of the store: log, queues, index, tables"),
    Key("storePathCommitLog", "store_path_commit_log", "path", None,
        says="the directory of the log's segments; by default `commitlog` in the store"),
    Key("mappedFileSizeCommitLog", "mapped_file_size_commit_log_bytes", "int", 1024 * MIB, 256, INT_MAX, "bytes",
        says="the size of a segment of the log; the same on a master and its slaves"),
    Key("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue_bytes", "int", 6_000_000, 20, INT_MAX, "bytes",
        says="the size of a consume queue's file, rounded up to whole entries of 20 bytes"),
    Key("messageIndexEnable", "message_index_enable", "bool", True,
        says="builds the index by keys; without it no message is found by its key"),
    Key("messageIndexSafe", "message_index_safe", "bool", False,
        says="after a crash the index is built again from its checkpoint, not from our own note of its end"),
    Key("maxHashSlotNum", "max_hash_slot_num", "int", 5_000_000, 1, 100_000_000, "slots",
        says="hash slots of an index file; the same as the files that are there"),
    Key("maxIndexNum", "max_index_num", "int", 20_000_000, 2, 80_000_000, "entries",
        says="entries of an index file; the same as the files that are there"),
    Key("mapperFileSizeBatchConsumeQueue", "batch_queue_file_bytes", "int", 13_800_000, 46, INT_MAX, "bytes",
        says="the size of a batch consume queue's file, in entries of 46 bytes"),
    Key("enableConsumeQueueExt", "enable_consume_queue_ext", "bool", False,
        says="writes queue extensions, with store time and tag codes that do not fit into an entry"),
    Key("mappedFileSizeConsumeQueueExt", "queue_ext_file_bytes", "int", 48 * MIB, 64, INT_MAX, "bytes",
        says="the size of a file of the queue extension"),
    Key("enableMultiDispatch", "enable_multi_dispatch", "bool", False,
        says="a message may name further queues by its property INNER_MULTI_DISPATCH"),
    Key("enableLmq", "enable_lmq", "bool", False,
        says="of those further queues the light ones, `%LMQ%...`, count their own offsets"),
    Key("maxLmqConsumeQueueNum", "light_queues_max", "int", 20_000, 0, INT_MAX, "queues",
        says="light queues, `%LMQ%...`, at most: a message that names one more is refused"),
    Key("maxMessageSize", "max_message_bytes", "int", 4 * MIB, 1, INT_MAX, "bytes",
        says="the longest body, a whole batch's too; longer ones are refused"),
    Key("defaultTopicQueueNums", "default_topic_queue_nums", "int", 8, 1, 1024, "queues",
        says="queues of the topic TBW102, by which others are made: at most so many get a new one"),
    Key("checkCRCOnRecover", "check_crc_on_recover", "bool", True,
        says="the start after a crash checks each body's CRC, not lengths alone"),
    # what is stored; engine.producer.broker_facts
    Key("regionId", "region_id", "text", "DefaultRegion",
        says="the region that is told to producers, and stored in messages with compat=5"),
    Key("traceOn", "trace_on", "bool", True,
        says="what producers are told: whether they send traces; stored in messages with compat=5"),
    Key("enabledAppendPropCRC", "enabled_append_prop_crc", "bool", False,
        says="compat=5 appends a CRC of a message's properties"),
    Key("timerWheelEnable", "timer_wheel_enable", "bool", True,
        says="compat=5: a slave copies how far its master's timer wheel is; timer messages are always refused"),
    Key("transactionOpMsgMaxSize", "transaction_op_msg_max_bytes", "int", 4096, 1, INT_MAX, "bytes",
        says="compat=5: the longest message that notes decided half messages"),
    Key("transactionOpBatchInterval", "transaction_op_batch_interval_ms", "int", 3000, 1, INT_MAX, "ms",
        says="compat=5: how long decided half messages are gathered for one note"),
    # flush
    Key("flushDiskType", "flush_disk_type", "flush_type", "ASYNC_FLUSH",
        says="whether PUT_OK waits until the message is on the master's disk (SYNC_FLUSH) or not"),
    Key("flushIntervalCommitLog", "flush_interval_commit_log_ms", "int", 500, 1, INT_MAX, "ms",
        says="how often the log is brought to disk with ASYNC_FLUSH"),
    Key("flushCommitLogTimed", "flush_commit_log_timed", "bool", True,
        says="false: a log that grows is looked at at once, not only each flushIntervalCommitLog"),
    Key("flushCommitLogLeastPages", "flush_commit_log_least_pages", "int", 4, 0, INT_MAX, "pages of 4 KiB",
        says="less than this is left for the next turn of the log's flushing"),
    Key("flushCommitLogThoroughInterval", "flush_commit_log_thorough_interval_ms", "int", 10_000, 0, INT_MAX, "ms",
        says="after this long the log is flushed, however little there is"),
    Key("flushIntervalConsumeQueue", "flush_interval_consume_queue_ms", "int", 1000, 1, INT_MAX, "ms",
        says="how often consume queues are brought to disk"),
    Key("flushConsumeQueueLeastPages", "flush_consume_queue_least_pages", "int", 2, 0, INT_MAX, "pages of 4 KiB",
        says="of a queue less than this is left for the next turn"),
    Key("flushConsumeQueueThoroughInterval", "flush_consume_queue_thorough_interval_ms", "int", 60_000, unit="ms",
        says="after this long all queues are flushed, however little there is"),
    Key("syncFlushTimeout", "sync_flush_timeout_ms", "int", 5000, 1, INT_MAX, "ms",
        says="how long a put waits for the disk with SYNC_FLUSH, before it is FLUSH_DISK_TIMEOUT"),
    # retention; the percentages are clamped as RocketMQ does it, in engine/protocol/store/retention.py
    Key("deleteWhen", "delete_when_hours", "hours", "04",
        says="the hours of the day, local time, in which expired files go"),
    Key("fileReservedTime", "file_reserved_hours", "int", 72, 0, INT_MAX, "hours",
        says="how long after it was last written a file is expired"),
    Key("diskMaxUsedSpaceRatio", "disk_max_used_space_percent", "int", 75, 0, INT_MAX, "%, taken as 10 to 95",
        says="above it expired files go at any hour"),
    Key("diskSpaceWarningLevelRatio", "disk_space_warning_level_percent", "int", 90, 0, 100, "%, 5.x: 35 to 90",
        says="above it the store is read-only: puts are refused until there is room"),
    Key("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_percent", "int", 85, 0, 100, "%, 5.x: 30 to 85",
        says="above it files go at any hour, with cleanFileForciblyEnable the young ones, too"),
    Key("cleanFileForciblyEnable", "clean_file_forcibly_enable", "bool", True,
        says="a disk that is too full costs files that are not expired"),
    Key("cleanResourceInterval", "clean_resource_interval_ms", "int", 10_000, 1, INT_MAX, "ms",
        says="how often it looks for files that may go"),
    Key("deleteCommitLogFilesInterval", "delete_commit_log_files_interval_ms", "int", 100, 0, INT_MAX, "ms",
        says="the pause between two segments that are deleted"),
    Key("deleteConsumeQueueFilesInterval", "delete_consume_queue_files_interval_ms", "int", 100, 0, INT_MAX, "ms",
        says="the pause between two files of queues that are deleted"),
    Key("deleteFileBatchMax", "delete_file_batch_max", "int", 10, 1, INT_MAX, "files",
        says="segments that a round deletes at most"),
    Key("destroyMapedFileIntervalForcibly", "destroy_mapped_file_interval_forcibly_ms", "int", 120_000, unit="ms",
        says="how long a file that is to go and that a reader holds waits for that reader"),
    Key("redeleteHangedFileInterval", "redelete_hanged_file_interval_ms", "int", 120_000, unit="ms",
        says="how often the deletion of a file that a reader held is tried again"),
    # replication
    Key("haMasterAddress", "ha_master_address", "host_port", None,
        says="of a slave: its master's HA port; without it name servers tell it"),
    Key("slaveTimeout", "slave_timeout_ms", "int", 3000, 1, INT_MAX, "ms",
        says="how long a put waits for slaves, before it is FLUSH_SLAVE_TIMEOUT"),
    Key("haSendHeartbeatInterval", "ha_send_heartbeat_interval_ms", "int", 5000, 1, INT_MAX, "ms",
        says="after how long without a frame master and slave send an empty one"),
    Key("haHousekeepingInterval", "ha_housekeeping_interval_ms", "int", 20_000, 1, INT_MAX, "ms",
        says="a replication connection that was silent for longer is closed"),
    Key("haReconnectInterval", "ha_reconnect_interval_ms", "int", 5000, 1, INT_MAX, "ms",
        says="ms until a slave tries its master again"),
    Key("haTransferBatchSize", "ha_transfer_batch_bytes", "int", 32 * 1024, 1, FRAME_BODY_BYTES_MAX, "bytes",
        says="the longest frame of the log that a slave is sent"),
    Key("haSlaveFallbehindMax", "ha_slave_fallbehind_max_bytes", "int", 256 * MIB, 0, INT_MAX, "bytes",
        says="a slave that lacks more is not in sync"),
    Key("inSyncReplicas", "in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "the master counted",
        says="replicas that have a message before PUT_OK, the master counted; by default 2 on a SYNC_MASTER"),
    Key("minInSyncReplicas", "min_in_sync_replicas", "int", None, 1, SENDERS_MAX + 1, "the master counted",
        says="with enableAutoInSyncReplicas: no fewer are waited for; by default 2, but never more than "
             "inSyncReplicas"),
    Key("enableAutoInSyncReplicas", "enable_auto_in_sync_replicas", "bool", False,
        says="compat=5 with enableSlaveActingMaster: a put waits for as many replicas as are in sync"),
    Key("enableSlaveActingMaster", "enable_slave_acting_master", "bool", False,
        says="compat=5 on a SYNC_MASTER: beats to name servers, and a put with too few replicas in sync is refused"),
    Key("haFlowControlEnable", "ha_flow_control_enable", "bool", False,
        says="bounds what each slave is sent by maxHaTransferByteInSecond"),
    Key("maxHaTransferByteInSecond", "max_ha_transfer_byte_in_second", "int", 100 * MIB, 1, BYTES_MAX, "bytes/s",
        says="that bound, for each slave"),
    Key("maxHaCatchUpByteInSecond", "max_ha_catch_up_byte_in_second", "int", 0, 0, BYTES_MAX, "bytes/s; 0: no bound",
        says="bytes a second for a replica that lacks more than 64 MiB"),
    Key("syncFromLastFile", "sync_from_last_file", "bool", False,
        says="an empty slave fetches the last segment alone, not the whole history"),
    Key("haStartFromMin", "ha_start_from_min", "bool", False,
        says="an empty RocketMQ slave gets the whole log, not its last segment"),
    Key("haSecretFile", "ha_secret_file", "path", None,
        says="a secret, the same on all replicas: nobody takes another one's name"),
    Key("haSecretRequired", "ha_secret_required", "bool", False,
        says="who does not prove that it knows the secret is not served, and not followed: no RocketMQ then"),
    Key("haAckFlushed", "ha_ack_flushed", "bool", False,
        says="a synchronous put waits until its replicas have it on disk (between ours)"),
    # metrics; without a port: 5557, or any free one where that is taken
    Key("metricsExporterType", "metrics_exporter_type", "exporter", "PROM",
        says="PROM serves `/metrics`, DISABLE does not; the others are taken as PROM"),
    Key("metricsPromExporterHost", "metrics_host", "address", "127.0.0.1",
        says="the address at which `/metrics` is served"),
    Key("metricsPromExporterPort", "metrics_port", "int", None, 0, 65535, "0 lets the kernel choose",
        says="its port; without one 5557, or any free one where that is taken"),
    Key("metricsOtelCardinalityLimit", "metrics_samples_max", "int", 50_000, 2, INT_MAX, "samples of one metric",
        says="samples of one metric; one more stands for the rest"),
    # who may connect and what for, from where: engine/protocol/access; this host always may, all of it
    Key("remotingAllowList", "remoting_allow_list", "allow_list", None,
        says="addresses and networks that may connect to `listenPort` and the port two below it; of a name "
             "server, to its port"),
    Key("adminAllowList", "admin_allow_list", "allow_list", None,
        says="who may also change and delete, and read settings; of a name server, too"),
    Key("haAllowList", "ha_allow_list", "allow_list", None,
        says="who may follow this broker's log"),
    Key("metricsAllowList", "metrics_allow_list", "allow_list", None,
        says="who may ask for `/metrics`"),
    Key("remotingConnectionsMax", "remoting_connections_max", "int", REMOTING_CONNECTIONS, 8, CONNECTIONS_MAX,
        says="connections at the remoting ports together; of too many the quietest go; of a name server, too"),
    Key("haCallersMax", "ha_callers_max", "int", HA_CALLERS, 8, CONNECTIONS_MAX,
        says="connections at the HA port that are not slaves yet; of too many the quietest go"),
    Key("metricsConnectionsMax", "metrics_connections_max", "int", METRICS_CONNECTIONS, 1, CONNECTIONS_MAX,
        says="connections at the port of `/metrics`; of too many the quietest go"),
    # our own
    Key("compat", "compat", "compat", OF_BROKERS,
        says="whose behaviour, where 4.9 and 5.x differ: `4.9` or `5`"),
    Key("regionPath", "region_path", "path", "/dev/shm",
        says="where shared memory lies"),
    Key("storeGroup", "store_group", "text", None,
        says="the group (name or number) whose members may read store and shared memory, and hold leases; "
             "empty: the group of the broker's user"),
    Key("ringSizeInBytes", "ring_bytes", "int", 16 * MIB, 64 * 1024, 1024 * MIB, "bytes",
        says="the ring of each"),
    Key("maxProducers", "producers_max", "int", 64, 1, 1024,
        says="producer processes at a time"),
    Key("affinity", "affinity", "affinity", None,
        says="CPUs of the broker: empty leaves it to the kernel, `sync` keeps the synchronous path on one, or "
             "`0,2-3`"),
    Key("promotedRole", "promoted_role", "role", "ASYNC_MASTER",
        says="what a slave becomes by `slipstream promote`: `ASYNC_MASTER` or `SYNC_MASTER`"),
    Key("columnarSidecar", "columnar_sidecar", "bool", False,
        says="builds Parquet side files of sealed segments, for reads of columns; needs the package pyarrow"),
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
