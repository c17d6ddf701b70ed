"""broker.properties: what is taken, what is warned about, what stops the start."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from engine.protocol.ha.ha_settings import HaSettings
from engine.settings import keys as config_keys
from engine.settings.client_keys import ClientSettings
from engine.settings.config import BrokerConfig, BrokerRole, ConfigError, FlushDiskType, from_mapping, load
from engine.settings.key import Key
from engine.settings.log_settings import LogSettings
from engine.settings.unused_keys import UNUSED
from engine.shared_memory import cursors, live_settings

ROOT = Path(__file__).resolve().parents[3]

# The common sample of a broker's file, as operators have it (spec: configuration, section 11).
SAMPLE = """\
brokerClusterName=rocketmq-cluster
brokerName=broker-a
brokerId=0
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
listenPort=10911
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
#destroyMapedFileIntervalForcibly=120000
#redeleteHangedFileInterval=120000
diskMaxUsedSpaceRatio=88
storePathRootDir=/data/rocketmq/store
storePathCommitLog=/data/rocketmq/store/commitlog
storePathConsumeQueue=/data/rocketmq/store/consumequeue
storePathIndex=/data/rocketmq/store/index
storeCheckpoint=/data/rocketmq/store/checkpoint
abortFile=/data/rocketmq/store/abort
maxMessageSize=65536
flushCommitLogLeastPages=4
flushConsumeQueueLeastPages=2
flushCommitLogThoroughInterval=10000
flushConsumeQueueThoroughInterval=60000
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
checkTransactionMessageEnable=false
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.properties"
    path.write_text(text, encoding="iso-8859-1")
    return path


def test_the_common_sample_starts(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, SAMPLE))
    assert config.broker_name == "broker-a"
    assert config.broker_role is BrokerRole.ASYNC_MASTER
    assert config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert (config.listen_port, config.ha_listen_port) == (10911, 10912)
    assert config.default_topic_queue_nums == 4
    assert config.max_message_bytes == 65536
    assert config.mapped_file_size_commit_log_bytes == 1 << 30
    assert config.mapped_file_size_consume_queue_bytes == 300_000
    assert config.store_path_commit_log == Path("/data/rocketmq/store/commitlog")
    warned = [warning.split(": ")[1] for warning in warnings]
    assert warned == [
        "mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "storePathConsumeQueue",
        "storePathIndex", "storeCheckpoint", "abortFile", "checkTransactionMessageEnable", "sendMessageThreadPoolNums",
        "pullMessageThreadPoolNums",
    ]  # fmt: skip
    assert all("\n" not in warning for warning in warnings)


def test_defaults_are_rocketmqs() -> None:
    config = from_mapping({})
    assert config.broker_cluster_name == "DefaultCluster"
    assert config.broker_role is BrokerRole.ASYNC_MASTER
    assert config.store_path_root_dir == Path("~/store").expanduser()
    assert config.store_path_commit_log == config.store_path_root_dir / "commitlog"
    assert config.mapped_file_size_commit_log_bytes == 1073741824
    assert config.mapped_file_size_consume_queue_bytes == 6000000
    assert config.max_message_bytes == 4194304
    assert config.default_topic_queue_nums == 8
    assert (config.flush_interval_commit_log_ms, config.sync_flush_timeout_ms) == (500, 5000)
    assert (config.ha_send_heartbeat_interval_ms, config.ha_housekeeping_interval_ms) == (5000, 20000)
    assert (config.ha_transfer_batch_bytes, config.ha_slave_fallbehind_max_bytes) == (32768, 268435456)
    assert (config.slave_timeout_ms, config.max_ha_transfer_byte_in_second) == (3000, 104857600)
    assert (config.compat, config.region_path, config.producers_max) == ("4.9", Path("/dev/shm"), 64)
    assert config.broker_ip2 == config.broker_ip1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"brokerRole": "SYNC_MASTER"}, 2),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": 1}, 1),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": 3}, 3),
        ({"brokerRole": "ASYNC_MASTER"}, 1),
        ({"brokerRole": "SLAVE", "brokerId": 1}, 1),
    ],
)
def test_a_sync_master_waits_for_one_slave_by_default(settings: dict[str, object], expected: int) -> None:
    assert from_mapping(settings).in_sync_replicas == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("compat=5\nenableAutoInSyncReplicas=true\n", "2: enableAutoInSyncReplicas: has no effect without compat=5"),
        ("compat=5\nminInSyncReplicas=2\n", "2: minInSyncReplicas: has no effect without enableAutoInSyncReplicas"),
        ("compat=5\nenableSlaveActingMaster=true\n", "no Slipstream slave acts as master"),
        ("timerWheelEnable=true\n", "1: timerWheelEnable: this broker has no timer wheel, and refuses timer messages"),
        ("metricsExporterType=OTLP_GRPC\n", "1: metricsExporterType: OTLP_GRPC is taken as PROM"),
    ],
)
def test_a_setting_without_effect_is_reported(tmp_path: Path, text: str, says: str) -> None:
    _config, warnings = load(written(tmp_path, text + "brokerRole=SYNC_MASTER\n"))
    assert [warning for warning in warnings if says in warning]


def test_rocketmqs_words_for_exporters() -> None:
    for given, taken in (("DISABLE", "DISABLE"), ("0", "DISABLE"), ("PROM", "PROM"), ("2", "PROM"), ("3", "PROM")):
        assert from_mapping({"metricsExporterType": given}).metrics_exporter_type == taken
    with pytest.raises(ConfigError, match="allowed: PROM or DISABLE"):
        from_mapping({"metricsExporterType": "4"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("brokerNmae=a", "brokerNmae=a: unknown key; did you mean brokerName?"),
        ("flushdisktype=SYNC_FLUSH", "did you mean flushDiskType?"),
        ("fileReservedTimes=3", "did you mean fileReservedTime?"),
        ("storePathConsumeQueu=/x", "did you mean storePathConsumeQueue?"),
        ("zzqqxx=1", "no known key is similar"),
        ("storePathCommitLog=${storePath}/commitlog", "${storePath} refers to a key that is not in this file"),
        ("storePathCommitLog=${storePathCommitLog}/a", "are circular"),
        ("brokerRole=slave", "brokerRole=slave: not allowed; allowed: ASYNC_MASTER, SYNC_MASTER or SLAVE"),
        ("flushDiskType=", "allowed: ASYNC_FLUSH or SYNC_FLUSH"),
        ("listenPort=65535", "allowed: a whole number from 1 to 65534"),
        ("listenPort=10_911", "listenPort=10_911: not allowed"),
        ("listenPort=0x10", "not allowed"),
        ("maxMessageSize=4M", "maxMessageSize=4M: not allowed; allowed: a whole number from 1 to 2147483647 (bytes)"),
        ("maxMessageSize=2147483648", "not allowed"),
        ("haTransferBatchSize=4194304", "from 1 to 4194292 (bytes)"),
        ("checkCRCOnRecover=yes", "allowed: true or false"),
        ("haMasterAddress=10.0.0.1", "allowed: host:port"),
        ("haMasterAddress=:10912", "allowed: host:port"),
        ("haMasterAddress=a:70000", "allowed: host:port"),
        ("brokerIP1=", "allowed: an IPv4 or IPv6 address"),
        ("storePathCommitLog=/a,/b", "allowed: one path"),
        ("compat=3", "allowed: 4.9 or 5"),
        ("affinity=one", "allowed: empty"),
        ("brokerName=", "allowed: any printable text that is not empty"),
        ("brokerClusterName=a\\nb", "allowed: any printable text"),
        ("storePathRootDir=/tmp/a\\u0000b", "allowed: one path"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path, f"# comment\nbrokerClusterName=c\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert says in str(caught.value)
    assert (caught.value.code, caught.value.line) == ("CONFIG", 3)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties: cannot be read: No such .*; check the path"):
        load(tmp_path / "nowhere.properties")


def test_a_malformed_escape_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.properties:2: .*four hexadecimal digits"):
        load(written(tmp_path, "brokerId=0\nbrokerName=\\u12\n"))


def test_trailing_spaces_are_dropped_with_a_warning(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, "brokerRole=SYNC_MASTER \n"))
    assert config.broker_role is BrokerRole.SYNC_MASTER
    assert len(warnings) == 1
    assert "white space" in warnings[0]


def test_the_last_of_two_wins_with_a_warning(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, "listenPort=1000\nlistenPort=2000\n"))
    assert config.listen_port == 2000
    assert warnings == [f"{tmp_path}/broker.properties:2: listenPort: given twice; line 1 has no effect"]


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "broker.properties"
    path.write_bytes(b"\xef\xbb\xbfbrokerName=a\nlistenPort=1000\n")
    config, warnings = load(path)
    assert (config.broker_name, config.listen_port, warnings) == ("a", 1000, [])


def test_a_path_may_name_another_key(tmp_path: Path) -> None:
    text = "storePathCommitLog=${storePathRootDir}/log\nstorePathRootDir=${user.home}/s\nbrokerName=${HOSTNAME}\n"
    config, warnings = load(written(tmp_path, text))
    assert (config.store_path_commit_log, config.store_path_root_dir) == (Path.home() / "s/log", Path.home() / "s")
    assert config.broker_name == "${HOSTNAME}", "as in RocketMQ"
    assert len(warnings) == 2 and "RocketMQ takes it as it is written" in warnings[0]
    assert load(written(tmp_path, "storePathCommitLog=${storePathRootDir}/c"))[0].store_path_commit_log == (
        Path("~/store/c").expanduser()
    )


def test_files_that_are_there_win_over_sizes_in_the_old_spelling(tmp_path: Path) -> None:
    root = tmp_path / "store"
    text = f"storePathRootDir={root}\nmapedFileSizeConsumeQueue=300000\nmapedFileSizeCommitLog=4096\n"
    assert load(written(tmp_path, text))[0].mapped_file_size_consume_queue_bytes == 300_000, "a store without files"
    for name, size in (("consumequeue/t/0", 6_000_000), ("commitlog", 1 << 20)):
        (root / name).mkdir(parents=True)
        with (root / name / ("0" * 20)).open("wb") as file:
            file.truncate(size)
    config, warnings = load(written(tmp_path, text))
    sizes = config.mapped_file_size_consume_queue_bytes, config.mapped_file_size_commit_log_bytes
    assert sizes == (6_000_000, 1 << 20)
    assert any(":2: mapedFileSizeConsumeQueue: using 6000000, the size of" in line for line in warnings)
    both = load(written(tmp_path, text + "mappedFileSizeConsumeQueue=300000\n"))[0]
    assert both.mapped_file_size_consume_queue_bytes == 300_000, "RocketMQ obeys the new spelling"


def test_old_and_new_spelling_are_one_key(tmp_path: Path) -> None:
    text = "mapedFileSizeCommitLog=4096\nmappedFileSizeCommitLog=8192\n"
    config, warnings = load(written(tmp_path, text))
    assert config.mapped_file_size_commit_log_bytes == 8192
    assert "RocketMQ 4.9 and 5.x ignore it" in warnings[0]
    assert "given twice" in warnings[1]


def test_the_two_names_of_the_gap_are_one_setting(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, "haMaxGapNotInSync=1024\n"))
    assert config.ha_slave_fallbehind_max_bytes == 1024
    assert not warnings


def test_a_slave_needs_an_id(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerId=0: not allowed with brokerRole=SLAVE"):
        load(written(tmp_path, "brokerRole=SLAVE\nhaMasterAddress=127.0.0.1:10912\n"))


def test_a_masters_id_is_zero(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, "brokerId=3\n"))
    assert config.broker_id == 0
    assert warnings == [f"{tmp_path}/broker.properties:1: brokerId: a master's is always 0, so 3 has no effect"]


def test_a_slave_without_a_master_is_warned_about(tmp_path: Path) -> None:
    config, warnings = load(written(tmp_path, "brokerRole=SLAVE\nbrokerId=1\n"))
    assert config.ha_master_address is None
    assert "copies nothing" in warnings[0]


def test_addresses(tmp_path: Path) -> None:
    text = "brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=[::1]:10912\nbrokerIP1=0:0::1\nbrokerIP2=localhost\n"
    config, _warnings = load(written(tmp_path, text))
    assert config.ha_master_address == ("::1", 10912)
    assert config.broker_ip1 == "::1"
    assert config.broker_ip2 in ("127.0.0.1", "::1")


def test_consume_queue_files_hold_whole_entries() -> None:
    assert from_mapping({"mappedFileSizeConsumeQueue": 30}).mapped_file_size_consume_queue_bytes == 40


def test_program_values_are_taken_as_they_are(tmp_path: Path) -> None:
    config = from_mapping({"storePathRootDir": tmp_path, "checkCRCOnRecover": False, "haListenPort": 0})
    assert (config.store_path_root_dir, config.check_crc_on_recover, config.ha_listen_port) == (tmp_path, False, 0)
    with pytest.raises(ConfigError, match="unknown key; did you mean brokerName"):
        from_mapping({"broker_name": "x"})


def test_every_field_has_a_key() -> None:
    declared = {name for of in (BrokerConfig, ClientSettings, LogSettings) for name in of.__annotations__}
    assert sorted(key.field for key in config_keys.KEYS) == sorted(declared)
    names = {key.name for key in config_keys.KEYS}
    assert len(names) == len(config_keys.KEYS)
    assert names >= config_keys.OWN_KEYS
    assert not names & UNUSED.keys()
    assert config_keys.SENDERS_MAX == cursors.HA_CONNECTIONS_MAX


@cache
def read_off_a_configuration() -> frozenset[str]:
    """Every attribute that some module reads off something called config."""
    found = set()
    for package in ("engine", "store", "tools", "spark_bridge"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "config.py":
                nodes = ast.walk(ast.parse(path.read_text()))
                attributes = (node for node in nodes if isinstance(node, ast.Attribute))
                found |= {node.attr for node in attributes if ast.unparse(node.value).endswith("config")}
    return frozenset(found)


@pytest.mark.parametrize("key", config_keys.KEYS, ids=lambda key: key.name)
def test_a_key_that_is_parsed_is_used(key: Key) -> None:
    """Read off the configuration, or in a list whose settings somebody reads: live ones, those of replication."""
    listed = key.name in live_settings.NAMES or key.field in HaSettings._fields
    assert key.field in read_off_a_configuration() or (listed and is_read_elsewhere(key))


def is_read_elsewhere(key: Key) -> bool:
    """A list alone is no use: its counter, its field of HaSettings or its name in the pointer is asked."""
    asked = re.compile(rf"(?:counters|settings|policy|self)\.{key.field}\b|\[\"{key.name}\"\]")
    sources = [path for path in sorted((ROOT / "engine").rglob("*.py")) if not path.name.startswith("config")]
    return any(asked.search(path.read_text()) for path in sources)


@pytest.mark.parametrize("name", ["remotingAllowList", "adminAllowList", "haAllowList", "metricsAllowList"])
def test_allow_lists_are_read_at_the_start_or_refused(name: str, tmp_path: Path) -> None:
    field = next(key.field for key in config_keys.KEYS if key.name == name)
    config, warnings = load(written(tmp_path, f"{name}=10.0.0.0/8, ::ffff:192.0.2.7;2001:db8::/32\n"))
    assert str(getattr(config, field)) == "10.0.0.0/8;192.0.2.7/32;2001:db8::/32" and not warnings
    assert getattr(load(written(tmp_path, ""))[0], field) is None
    for text, why in (("10.0.0.1/8", r"write 10\.0\.0\.0/8"), ("", "empty"), ("somewhere", "neither an address")):
        said = rf"broker.properties:2: {name}=.*not allowed \(.*{why}.*allowed: addresses"
        with pytest.raises(ConfigError, match=said):
            load(written(tmp_path, f"\n{name}={text}\n"))


def test_a_secret_that_is_required_must_be_named() -> None:
    with pytest.raises(ConfigError, match="needs haSecretFile"):
        from_mapping({"haSecretRequired": True, "brokerIP1": "127.0.0.1"})
