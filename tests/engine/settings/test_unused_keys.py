"""RocketMQ's keys that this broker does not use: which stop a start, which are warned about, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings import name_server_keys
from engine.settings.config import ConfigError, load
from engine.settings.keys import KEYS, OLD_SPELLINGS, SYNONYMS
from engine.settings.unused_keys import UNUSED

SETTERS = Path(__file__).with_name("rocketmq_keys.txt")
STOPPING = {
    "aclEnable": "true", "authenticationEnabled": "true", "authorizationEnabled": "TRUE",
    "rejectPullConsumerEnable": "true",
    "configBlackList": "fileReservedTime", "storeType": "defaultRocksDB", "rocksdbCQDoubleWriteEnable": "true",
    "transRocksDBEnable": "true", "timerRocksDBEnable": "true", "indexRocksDBEnable": "true",
    "combineCQPreferCQType": "defaultRocksDB", "combineAssignOffsetCQType": "defaultRocksDB",
    "combineCQUseRocksdbForLmq": "true", "useSingleRocksDBForAllConfigs": "true", "configManagerVersion": "v2",
    "indexFileWriteEnable": "false", "indexFileReadEnable": "no", "transWriteOriginTransHalfEnable": "false",
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore", "readOnlyCommitLogStorePaths": "/old",
    "duplicationEnable": "true", "inBrokerContainer": "true", "enableDLegerCommitLog": "true ",
    "enableControllerMode": "true", "allAckInSyncStateSet": "true", "asyncLearner": "true",
    "enableRemoteEscape": "true",
    "socksProxyConfig": '{"*":{"addr":"10.0.0.1:1080"}}',
}  # fmt: skip


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.properties"
    path.write_text(text)
    return path


def rocketmqs() -> dict[str, str]:
    """Every key with a setter in RocketMQ 4.9.7, 5.3.3 or 5.5.0, and its default in the newest of them."""
    lines = SETTERS.read_text().splitlines()
    return {name: value for name, _is, value in (line.partition("=") for line in lines if not line.startswith("#"))}


def test_exactly_the_keys_of_rocketmq_are_known() -> None:
    ours = {key.name for key in KEYS} | SYNONYMS.keys() | OLD_SPELLINGS.keys()
    assert not rocketmqs().keys() - ours - UNUSED.keys()
    samples = {name for name, unused in UNUSED.items() if "samples often use it" in unused.why}
    assert UNUSED.keys() - rocketmqs().keys() - samples == {"rocketmq-acl"}


def test_a_broker_starts_with_every_default_of_rocketmq(tmp_path: Path) -> None:
    text = "".join(f"{name}={value}\n" for name, value in rocketmqs().items() if name in UNUSED)
    _config, warnings = load(written(tmp_path, text))
    assert {warning.split(": ")[1] for warning in warnings} == rocketmqs().keys() & UNUSED.keys()


def test_the_list_of_what_stops_a_start_is_whole() -> None:
    assert STOPPING.keys() == {name for name, unused in UNUSED.items() if unused.harmless is not None}


@pytest.mark.parametrize(("name", "value"), STOPPING.items())
def test_a_key_whose_absence_is_dangerous_stops_the_start(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, f"listenPort=10911\n{name}={value}\n"))
    assert f"broker.properties:2: {name}={value.strip()}: not allowed; {UNUSED[name].why}" in str(caught.value)
    _config, warnings = load(written(tmp_path, f"{name}={UNUSED[name].harmless}\n"))
    assert len(warnings) == 1 and "has no effect here" in warnings[0]


def test_a_key_whose_absence_costs_speed_is_warned_about(tmp_path: Path) -> None:
    path = written(tmp_path, "useABSLock=true\n")
    config, warnings = load(path)
    assert not hasattr(config, "use_abs_lock")
    assert warnings == [f"{path}:1: useABSLock: {UNUSED['useABSLock'].why}"]
    assert all(unused.why.startswith("without effect: ") == (unused.harmless is None) for unused in UNUSED.values())


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:10912"])
@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_broker_whose_slave_cannot_act_as_master_does_not_start(role: str, compat: str, tmp_path: Path) -> None:
    text = f"enableSlaveActingMaster=true\ncompat={compat}\nbrokerRole={role}\n"
    with pytest.raises(ConfigError, match=r":1: enableSlaveActingMaster=true: not allowed; no Slipstream slave"):
        load(written(tmp_path, text))
    if role != "ASYNC_MASTER" and compat == "5":
        _config, warnings = load(written(tmp_path, text + "promotedRole=SYNC_MASTER\n"))
        assert any("no Slipstream slave acts as master" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("enableControllerInNamesrv", "true", "false"),
        ("enableTopicList", "false", "true"),
        ("enableAllTopicList", "false", "true"),
        ("clusterTest", "true", "false"),
        ("deleteTopicWithBrokerRegistration", "true", "false"),
        ("configBlackList", "kvConfigPath;listenPort", "configBlackList;configStorePath;kvConfigPath"),
    ],
)
def test_what_stops_a_name_server(name: str, value: str, default: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f":1: {name}={value}: not allowed; "):
        name_server_keys.load(written(tmp_path, f"{name}={value}\n"))
    text = f"{name}={default}\nstoreType=default\njraftConfig=x\n"
    _values, warnings = name_server_keys.load(written(tmp_path, text))
    assert len(warnings) == 3
