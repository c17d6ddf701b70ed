"""What a broker tells of its settings: enough for RocketMQ's tools, and nothing that it does not do."""

from __future__ import annotations

from pathlib import Path

from engine.remoting.processors.admin.shown_settings import settings_of
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters

EXPORTED = (  # by mqadmin's exportConfigs; that of 4.9 ends in an exception where one is missing
    "autoCreateSubscriptionGroup autoCreateTopicEnable brokerClusterName brokerId brokerName brokerRole "
    "fileReservedTime filterServerNums flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName "
    "slaveReadEnable traceOn traceTopicEnable useTLS"
).split()


def test_settings_that_mqadmin_exports_are_shown(tmp_path: Path) -> None:
    config, counters = (
        from_mapping({"brokerIP1": "127.0.0.1", "compat": "5"}),
        BrokerCounters.create(tmp_path / "counters"),
    )
    live_settings.publish(counters, config)
    told = settings_of(config, counters)
    assert [name for name in EXPORTED if not told.get(name)] == []
    assert told["timerWheelEnable"] == "false", "there is no timer wheel, whatever the file says"
