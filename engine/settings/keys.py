"""The keys that this broker uses: type, range, unit, default, field, what each does. Nothing else knows their names.

spec: configuration. A new setting is a field here.
Sizes and times are whole numbers, in the unit named; a default of None is worked out from other keys in config.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from engine.settings.client_keys import CLIENT_KEYS, OWN_CLIENT_KEYS, ClientSettings
from engine.settings.key import key, keys_of
from engine.settings.log_settings import LOG_KEYS
from store.compat import OF_BROKERS
from store.message.delay import DEFAULT_LEVELS

if TYPE_CHECKING:
    from pathlib import Path

    from engine.protocol.access.allow_list import AllowList
    from engine.settings.tls_mode import TlsMode

MIB = 1 << 20
SENDERS_MAX = 8  # engine.shared_memory.cursors.HA_CONNECTIONS_MAX; a test compares them
REMOTING_CONNECTIONS, HA_CALLERS, METRICS_CONNECTIONS = 4096, 512, 32
CONNECTIONS_MAX = 65_536
BYTES_MAX = 1 << 60
FRAME_BODY_BYTES_MAX = 4 * MIB - 12  # what a Java slave's buffer holds

PUTTING_SERVICES = 2  # delay and transactions


class BrokerRole(StrEnum):
    """Roles of a broker, in RocketMQ's words."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(StrEnum):
    """Whether an answer waits for the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerConfig(ClientSettings):
    """The settings of one broker, which do not change."""

    # identity and network
    broker_cluster_name: str = key(
        "brokerClusterName",
        "DefaultCluster",
        says="name of the cluster, as name servers list it; a Slipstream slave follows only a master of the same "
        "cluster",
    )
    broker_name: str = key("brokerName", None, says="name that a master and its slaves share. Default: the host's name")
    broker_id: int = key("brokerId", 0, says="0 for the master; a different number above 0 for each of its slaves")
    broker_role: BrokerRole = key(
        "brokerRole",
        "ASYNC_MASTER",
        says="role of the broker: a master, a master whose puts wait for slaves (SYNC_MASTER), or a slave",
    )
    broker_ip1: str = key(
        "brokerIP1",
        None,
        kind="address",
        says="address that clients connect to; it is stored in each message. Default: an address of this host",
    )
    broker_ip2: str = key(
        "brokerIP2", None, kind="address", says="address at which slaves fetch the log. Default: `brokerIP1`"
    )
    bind_address: str | None = key(  # of all three ports; engine/net/listeners.py
        "bindAddress",
        None,
        kind="address",
        says="address at which the remoting and HA ports listen. Default: loopback if `brokerIP1` is on loopback, "
        "else all addresses",
    )
    listen_port: int = key(
        "listenPort",
        10911,
        1,
        65534,
        says="port for clients; clients that use the VIP channel connect to the port two below it",
    )
    name_servers: tuple[str, ...] = key(
        "namesrvAddr", "", says="name servers to register at; a slave also learns its master's address from them"
    )
    fetch_name_servers_by_dns: bool = key(
        "fetchNameSrvAddrByDnsLookup",
        False,
        says="take `namesrvAddr` as one HOST:PORT, and register at each address that DNS has for that host",
    )
    update_name_server_addr_period_ms: int = key(
        "updateNameServerAddrPeriod", 120_000, 1000, unit="ms", says="time between two look-ups in DNS"
    )
    fetch_name_servers_by_address_server: bool = key(
        "fetchNamesrvAddrByAddressServer",
        False,
        says="without `namesrvAddr`: ask an address server for the name servers, by HTTP",
    )
    fetch_namesrv_interval_ms: int = key(
        "fetchNamesrvAddrInterval", 10_000, 1000, unit="ms", says="time between two questions to the address server"
    )
    namesrv_domain: str = key(  # system properties of RocketMQ's JVMs
        "rocketmq.namesrv.domain",
        "jmenv.tbsite.net",
        says="host of the address server, or HOST:PORT; without a port, 8080",
    )
    namesrv_domain_subgroup: str = key(
        "rocketmq.namesrv.domain.subgroup",
        "nsaddr",
        says="last part of the address server's path: `/rocketmq/nsaddr`",
    )
    register_name_server_period_ms: int = key(
        "registerNameServerPeriod",
        30_000,
        1,
        unit="ms",
        says="time between registrations; values are limited to 10,000 to 60,000",
    )
    broker_permission: int = key(
        "brokerPermission",
        6,
        0,
        7,
        unit="4 read, 2 write, 1 inherit",
        says="what clients may do on this broker; name servers pass it on to them",
    )
    compatible_with_old_name_srv: bool = key(  # by QUERY_DATA_VERSION
        "compatibleWithOldNameSrv",
        True,
        says="with enableSlaveActingMaster: send heartbeats as a request that name servers before 5 also know",
    )
    broker_heartbeat_interval_ms: int = key(
        "brokerHeartbeatInterval",
        1000,
        100,
        unit="ms",
        says="with enableSlaveActingMaster: time between heartbeats to name servers",
    )
    broker_not_active_timeout_ms: int = key(
        "brokerNotActiveTimeoutMillis",
        10_000,
        1,
        unit="ms",
        says="with enableSlaveActingMaster: name servers remove this broker after this long without a heartbeat",
    )
    force_register: bool = key(
        "forceRegister",
        True,
        says="send the whole registration each time; false: first ask whether the name server already has this version",
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable",
        True,
        says="create an unknown topic at its first message, from the template topic that the producer names",
    )
    message_delay_level: str = key(
        "messageDelayLevel", DEFAULT_LEVELS, kind="delays", says="delay of each level, from level 1 on"
    )
    ha_listen_port: int = key(
        "haListenPort",
        None,
        0,
        65535,
        unit="0 lets the kernel choose",
        says="port at which slaves fetch the log. Default: `listenPort` + 1",
    )
    # TLS: the first two are system properties of RocketMQ's; engine/net/tls.py
    tls_server_mode: TlsMode = key(
        "tls.server.mode",
        "permissive",
        kind="tls_mode",
        says="whether the ports accept TLS: never, in addition to plaintext, or only TLS",
    )
    tls_config_file: Path | None = key(
        "tls.config.file",
        None,
        says="properties file that names certificates and private keys; without it the ports do not accept TLS",
    )
    use_tls: bool = key(
        "useTLS",
        None,
        says="use TLS to name servers and to the master's ports. Default: true if `tls.server.mode` is enforcing",
    )
    ha_tls_mode: TlsMode = key(
        "haTlsMode",
        "disabled",
        kind="ha_tls_mode",
        says="`enforcing`: require mutual TLS at the HA port; only Slipstream brokers can do that",
    )
    ha_tls_config_file: Path | None = key(
        "haTlsConfigFile", None, says="properties file with the certificates of the HA port. Default: `tls.config.file`"
    )
    # files
    store_path_root_dir: Path = key(
        "storePathRootDir", "~/store", says="directory of the store: log, queues, index, tables"
    )
    store_path_commit_log: Path = key(
        "storePathCommitLog", None, says="directory of the log's segments. Default: `commitlog` in the store"
    )
    mapped_file_size_commit_log_bytes: int = key(
        "mappedFileSizeCommitLog",
        1024 * MIB,
        256,
        unit="bytes",
        says="size of a segment of the log; must be the same on a master and its slaves",
    )
    mapped_file_size_consume_queue_bytes: int = key(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        20,
        unit="bytes",
        says="size of a consume queue file, rounded up to whole entries of 20 bytes",
    )
    message_index_enable: bool = key(
        "messageIndexEnable", True, says="build the index by keys; without it no message can be found by its key"
    )
    message_index_safe: bool = key(
        "messageIndexSafe",
        False,
        says="after a crash, rebuild the index from the checkpoint instead of from the broker's own mark of its end",
    )
    max_hash_slot_num: int = key(
        "maxHashSlotNum",
        5_000_000,
        1,
        100_000_000,
        unit="slots",
        says="hash slots of an index file; must match existing files",
    )
    max_index_num: int = key(
        "maxIndexNum",
        20_000_000,
        2,
        80_000_000,
        unit="entries",
        says="entries of an index file; must match existing files",
    )
    batch_queue_file_bytes: int = key(
        "mapperFileSizeBatchConsumeQueue",
        13_800_000,
        46,
        unit="bytes",
        says="size of a batch consume queue file, in whole entries of 46 bytes",
    )
    enable_consume_queue_ext: bool = key(
        "enableConsumeQueueExt",
        False,
        says="write queue extension files, with the store time and tag codes that do not fit into an entry",
    )
    queue_ext_file_bytes: int = key(
        "mappedFileSizeConsumeQueueExt", 48 * MIB, 64, unit="bytes", says="size of a queue extension file"
    )
    enable_multi_dispatch: bool = key(
        "enableMultiDispatch", False, says="let a message name further queues in its property INNER_MULTI_DISPATCH"
    )
    enable_lmq: bool = key(
        "enableLmq", False, says="let the light queues among those further queues (`%LMQ%...`) count their own offsets"
    )
    light_queues_max: int = key(
        "maxLmqConsumeQueueNum",
        20_000,
        unit="queues",
        says="maximum number of light queues (`%LMQ%...`); a message that names one more is refused",
    )
    max_message_bytes: int = key(
        "maxMessageSize",
        4 * MIB,
        1,
        unit="bytes",
        says="maximum size of a body, or of a whole batch; larger ones are refused",
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums",
        8,
        1,
        1024,
        unit="queues",
        says="queues of the template topic TBW102: the maximum number of queues of an automatically created topic",
    )
    check_crc_on_recover: bool = key(
        "checkCRCOnRecover",
        True,
        says="after a crash, check the CRC of each body at the start; false: check lengths only",
    )
    # what is stored; engine.producer.broker_facts
    region_id: str = key(
        "regionId", "DefaultRegion", says="region sent to producers; with compat=5 it is also stored in messages"
    )
    trace_on: bool = key(
        "traceOn", True, says="whether producers send traces; with compat=5 it is also stored in messages"
    )
    enabled_append_prop_crc: bool = key(
        "enabledAppendPropCRC", False, says="compat=5: append a CRC of the message's properties"
    )
    timer_wheel_enable: bool = key(
        "timerWheelEnable",
        True,
        says="compat=5: a slave copies the progress of its master's timer wheel; timer messages are always refused",
    )
    transaction_op_msg_max_bytes: int = key(
        "transactionOpMsgMaxSize",
        4096,
        1,
        unit="bytes",
        says="compat=5: maximum size of a message that records committed or rolled-back half messages",
    )
    transaction_op_batch_interval_ms: int = key(
        "transactionOpBatchInterval",
        3000,
        1,
        unit="ms",
        says="compat=5: time to collect committed or rolled-back half messages for one record",
    )
    # flush
    flush_disk_type: FlushDiskType = key(
        "flushDiskType",
        "ASYNC_FLUSH",
        says="SYNC_FLUSH: PUT_OK waits until the message is on the master's disk; ASYNC_FLUSH: it does not wait",
    )
    flush_interval_commit_log_ms: int = key(
        "flushIntervalCommitLog", 500, 1, unit="ms", says="with ASYNC_FLUSH: time between flushes of the log"
    )
    flush_commit_log_timed: bool = key(
        "flushCommitLogTimed",
        True,
        says="true: check the log for unflushed data only every `flushIntervalCommitLog`; false: also whenever it "
        "grows",
    )
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages",
        4,
        unit="pages of 4 KiB",
        says="minimum amount of unflushed log for a flush; less waits for a later round",
    )
    flush_commit_log_thorough_interval_ms: int = key(
        "flushCommitLogThoroughInterval",
        10_000,
        unit="ms",
        says="time after which the log is flushed however little is unflushed",
    )
    flush_interval_consume_queue_ms: int = key(
        "flushIntervalConsumeQueue", 1000, 1, unit="ms", says="time between flushes of consume queues"
    )
    flush_consume_queue_least_pages: int = key(
        "flushConsumeQueueLeastPages",
        2,
        unit="pages of 4 KiB",
        says="minimum amount of unflushed data for a flush of a queue; less waits for a later round",
    )
    flush_consume_queue_thorough_interval_ms: int = key(
        "flushConsumeQueueThoroughInterval",
        60_000,
        unit="ms",
        says="time after which all queues are flushed however little is unflushed",
    )
    sync_flush_timeout_ms: int = key(
        "syncFlushTimeout",
        5000,
        1,
        unit="ms",
        says="with SYNC_FLUSH: how long a put waits for the disk before it returns FLUSH_DISK_TIMEOUT",
    )
    # retention; the percentages are clamped as RocketMQ does it, in engine/protocol/store/retention.py
    delete_when_hours: frozenset[int] = key(
        "deleteWhen", "04", says="hours of the day, in local time, in which expired files are deleted"
    )
    file_reserved_hours: int = key(
        "fileReservedTime", 72, unit="hours", says="time after its last write at which a file expires"
    )
    disk_max_used_space_percent: int = key(
        "diskMaxUsedSpaceRatio",
        75,
        unit="%, limited to 10 to 95",
        says="disk usage above which expired files are deleted at any hour",
    )
    disk_space_warning_level_percent: int = key(
        "diskSpaceWarningLevelRatio",
        90,
        0,
        100,
        unit="%, with compat=5 limited to 35 to 90",
        says="disk usage above which the store is read-only: puts are refused until there is room",
    )
    disk_space_clean_forcibly_percent: int = key(
        "diskSpaceCleanForciblyRatio",
        85,
        0,
        100,
        unit="%, with compat=5 limited to 30 to 85",
        says="disk usage above which files are deleted at any hour, with cleanFileForciblyEnable also files not yet "
        "expired",
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable", True, says="when the disk is too full, also delete files that have not expired"
    )
    clean_resource_interval_ms: int = key(
        "cleanResourceInterval", 10_000, 1, unit="ms", says="time between checks for files to delete"
    )
    delete_commit_log_files_interval_ms: int = key(
        "deleteCommitLogFilesInterval", 100, unit="ms", says="pause between the deletion of two segments"
    )
    delete_consume_queue_files_interval_ms: int = key(
        "deleteConsumeQueueFilesInterval", 100, unit="ms", says="pause between the deletion of two queue files"
    )
    delete_file_batch_max: int = key(
        "deleteFileBatchMax", 10, 1, unit="files", says="maximum number of segments deleted in one round"
    )
    destroy_mapped_file_interval_forcibly_ms: int = key(
        "destroyMapedFileIntervalForcibly",
        120_000,
        unit="ms",
        says="how long the deletion of a file waits for a reader that holds it",
    )
    redelete_hanged_file_interval_ms: int = key(
        "redeleteHangedFileInterval",
        120_000,
        unit="ms",
        says="time between attempts to delete a file that a reader held",
    )
    # replication
    ha_master_address: tuple[str, int] | None = key(
        "haMasterAddress", None, says="for a slave: its master's HA port. Default: the address that name servers give"
    )
    slave_timeout_ms: int = key(
        "slaveTimeout", 3000, 1, unit="ms", says="how long a put waits for slaves before it returns FLUSH_SLAVE_TIMEOUT"
    )
    ha_send_heartbeat_interval_ms: int = key(
        "haSendHeartbeatInterval",
        5000,
        1,
        unit="ms",
        says="time without a frame after which master and slave send an empty one",
    )
    ha_housekeeping_interval_ms: int = key(
        "haHousekeepingInterval",
        20_000,
        1,
        unit="ms",
        says="time without a frame after which a replication connection is closed",
    )
    ha_reconnect_interval_ms: int = key(
        "haReconnectInterval", 5000, 1, unit="ms", says="time before a slave connects to its master again"
    )
    ha_transfer_batch_bytes: int = key(
        "haTransferBatchSize",
        32 * 1024,
        1,
        FRAME_BODY_BYTES_MAX,
        unit="bytes",
        says="maximum size of a frame of the log sent to a slave",
    )
    ha_slave_fallbehind_max_bytes: int = key(
        "haSlaveFallbehindMax",
        256 * MIB,
        unit="bytes",
        says="a slave that lacks more of the log than this is not in sync",
    )
    in_sync_replicas: int = key(
        "inSyncReplicas",
        None,
        1,
        SENDERS_MAX + 1,
        unit="including the master",
        says="replicas that must have a message before PUT_OK, including the master. Default: 2 on a SYNC_MASTER, "
        "else 1",
    )
    min_in_sync_replicas: int = key(
        "minInSyncReplicas",
        None,
        1,
        SENDERS_MAX + 1,
        unit="including the master",
        says="with enableAutoInSyncReplicas: the minimum. Default on a SYNC_MASTER: 2, or `inSyncReplicas` if that "
        "is less; else 1",
    )
    enable_auto_in_sync_replicas: bool = key(
        "enableAutoInSyncReplicas",
        False,
        says="compat=5 with enableSlaveActingMaster: a put waits for as many replicas as are in sync",
    )
    enable_slave_acting_master: bool = key(
        "enableSlaveActingMaster",
        False,
        says="compat=5 on a SYNC_MASTER: send heartbeats to name servers; refuse puts with too few replicas in sync",
    )
    ha_flow_control_enable: bool = key(
        "haFlowControlEnable", False, says="limit what is sent to each slave to `maxHaTransferByteInSecond`"
    )
    max_ha_transfer_byte_in_second: int = key(
        "maxHaTransferByteInSecond", 100 * MIB, 1, BYTES_MAX, unit="bytes/s", says="that limit, for each slave"
    )
    max_ha_catch_up_byte_in_second: int = key(
        "maxHaCatchUpByteInSecond",
        0,
        0,
        BYTES_MAX,
        unit="bytes/s; 0 for no limit",
        says="limit for each replica that lacks more than 64 MiB",
    )
    sync_from_last_file: bool = key(
        "syncFromLastFile", False, says="an empty slave fetches only the last segment, not the whole history"
    )
    ha_start_from_min: bool = key(
        "haStartFromMin", False, says="send the whole log to an empty RocketMQ slave, not only the last segment"
    )
    ha_secret_file: Path | None = key(
        "haSecretFile",
        None,
        says="file with a secret, the same on all replicas, which stops another host from posing as one of them. "
        "Default: none",
    )
    ha_secret_required: bool = key(
        "haSecretRequired",
        False,
        says="require every HA peer to prove that it knows the secret; RocketMQ brokers cannot, so they are refused",
    )
    ha_ack_flushed: bool = key(
        "haAckFlushed",
        False,
        says="a synchronous put waits until its replicas have it on disk (Slipstream replicas only)",
    )
    # metrics
    metrics_exporter_type: str = key(
        "metricsExporterType",
        "PROM",
        kind="exporter",
        says="PROM serves `/metrics`, DISABLE does not; other values mean PROM",
    )
    metrics_host: str = key(
        "metricsPromExporterHost", "127.0.0.1", kind="address", says="address of the `/metrics` port"
    )
    metrics_port: int | None = key(
        "metricsPromExporterPort",
        None,
        0,
        65535,
        unit="0 lets the kernel choose",
        says="port of `/metrics`. Default: 5557, or any free port if that is taken",
    )
    metrics_samples_max: int = key(
        "metricsOtelCardinalityLimit",
        50_000,
        2,
        unit="samples of one metric",
        says="maximum number of samples of one metric; one more sample stands for the rest",
    )
    # access: engine/protocol/access; this host may always do everything
    remoting_allow_list: AllowList | None = key(
        "remotingAllowList",
        None,
        says="addresses and networks that may connect to `listenPort` and the port two below it. Default: all. Also "
        "a name-server setting",
    )
    admin_allow_list: AllowList | None = key(
        "adminAllowList",
        None,
        says="addresses and networks that may also change and delete, and read settings. Default: this host. Also a "
        "name-server setting",
    )
    ha_allow_list: AllowList | None = key(
        "haAllowList", None, says="addresses and networks that may follow this broker's log. Default: all"
    )
    metrics_allow_list: AllowList | None = key(
        "metricsAllowList", None, says="addresses and networks that may read `/metrics`. Default: all"
    )
    remoting_connections_max: int = key(
        "remotingConnectionsMax",
        REMOTING_CONNECTIONS,
        8,
        CONNECTIONS_MAX,
        says="maximum number of connections at the remoting ports; a new one closes the one idle longest. Also a "
        "name-server setting",
    )
    ha_callers_max: int = key(
        "haCallersMax",
        HA_CALLERS,
        8,
        CONNECTIONS_MAX,
        says="maximum number of HA connections without a slave slot; a new one closes one from the network that has "
        "the most",
    )
    metrics_connections_max: int = key(
        "metricsConnectionsMax",
        METRICS_CONNECTIONS,
        1,
        CONNECTIONS_MAX,
        says="maximum number of connections at the `/metrics` port; a new one closes the oldest",
    )
    # Slipstream's own
    compat: str = key("compat", OF_BROKERS, kind="compat", says="RocketMQ version to follow where 4.9 and 5.x differ")
    region_path: Path = key("regionPath", "/dev/shm", says="directory for shared memory")
    store_group: str | None = key(
        "storeGroup",
        None,
        says="group (name or number) whose members may read the store and shared memory, and hold leases. Default: "
        "the group of the broker's user",
    )
    ring_bytes: int = key(
        "ringSizeInBytes", 16 * MIB, 64 * 1024, 1024 * MIB, unit="bytes", says="size of each producer's ring"
    )
    producers_max: int = key("maxProducers", 64, 1, 1024, says="maximum number of producer processes at a time")
    affinity: str = key(
        "affinity",
        None,
        kind="affinity",
        says="CPUs of the broker. Default: `sync` (synchronous path on one CPU) on slaves and a SYNC_MASTER, else "
        "empty (kernel decides)",
    )
    promoted_role: BrokerRole = key(
        "promotedRole", "ASYNC_MASTER", says="role that `slipstream promote` gives a slave: ASYNC_MASTER or SYNC_MASTER"
    )
    columnar_sidecar: bool = key(
        "columnarSidecar",
        False,
        says="build Parquet side files of sealed segments, for reads of columns; needs the package pyarrow",
    )

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: settings do not change")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerConfig) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def replaced(self, **changed: Any) -> Self:
        """Return these settings with some of them changed."""
        return type(self)(**{**vars(self), **changed})

    @property
    def has_name_servers(self) -> bool:
        """Return whether the broker registers at name servers, which its file lists or says how to find."""
        return bool(self.name_servers) or self.fetch_name_servers_by_address_server

    @property
    def rings(self) -> int:
        """Return how many rings there are.

        The first `producers_max` are producers', those behind them its own roles', which put.
        """
        return self.producers_max + self.front_processes + PUTTING_SERVICES


KEYS = (*keys_of(BrokerConfig), *LOG_KEYS, *CLIENT_KEYS)
OWN_KEYS = OWN_CLIENT_KEYS | frozenset(
    """
    compat regionPath storeGroup ringSizeInBytes maxProducers affinity haReconnectInterval remotingAllowList
    adminAllowList haAllowList metricsAllowList remotingConnectionsMax haCallersMax metricsConnectionsMax
    promotedRole haTlsMode haTlsConfigFile maxHaCatchUpByteInSecond haStartFromMin haSecretFile haAckFlushed
    haSecretRequired logLevel logForm logFile logFileMaxBytes logFilesKept columnarSidecar
    rocketmq.namesrv.domain rocketmq.namesrv.domain.subgroup
    """.split()
)

# Other names of the same setting: without a warning, and with one.
SYNONYMS = {"haMaxGapNotInSync": "haSlaveFallbehindMax"}
OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
