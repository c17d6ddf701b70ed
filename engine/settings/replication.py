"""What a broker's settings say about replication, from its configuration or its pointer file: one list of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.protocol.ha.ha_settings import HaSettings
from engine.settings.keys import KEYS

if TYPE_CHECKING:
    from engine.settings.config import BrokerConfig  # a producer reads the pointer file alone

REPLICATION_KEYS = {key.name: key.field for key in KEYS if key.field in HaSettings._fields}


def of_config(config: BrokerConfig) -> HaSettings:
    """Return the replication settings of a configuration."""
    return HaSettings(**{field: getattr(config, field) for field in HaSettings._fields})


def named(config: BrokerConfig) -> dict[str, Any]:
    """The same under RocketMQ's names, for the pointer file."""
    return {name: getattr(config, field) for name, field in REPLICATION_KEYS.items()}


def for_views(config: BrokerConfig) -> dict[str, Any]:
    """Return what a view of replication reads of a running broker's settings, under RocketMQ's names."""
    return {
        **named(config),
        "brokerClusterName": config.broker_cluster_name,
        "brokerName": config.broker_name,
        "storePathCommitLog": str(config.store_path_commit_log),
        "mappedFileSizeCommitLog": config.mapped_file_size_commit_log_bytes,
    }


def of_running(settings: Mapping[str, Any]) -> HaSettings:
    """Return a running broker's replication settings, from its pointer file."""
    return HaSettings(**{field: settings[name] for name, field in REPLICATION_KEYS.items()})
