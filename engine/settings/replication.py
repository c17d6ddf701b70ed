"""What a broker's settings say about replication, from its configuration or its pointer file: one list of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.protocol.ha.policy import HaSettings
from engine.settings.config import BrokerConfig
from engine.settings.keys import KEYS

REPLICATION_KEYS = {key.name: key.field for key in KEYS if key.field in HaSettings._fields}


def of_config(config: BrokerConfig) -> HaSettings:
    """Of a configuration."""
    return HaSettings(**{field: getattr(config, field) for field in HaSettings._fields})


def named(config: BrokerConfig) -> dict[str, Any]:
    """The same under RocketMQ's names, for the pointer file."""
    return {name: getattr(config, field) for name, field in REPLICATION_KEYS.items()}


def of_running(settings: Mapping[str, Any]) -> HaSettings:
    """Of a running broker, from the settings in its pointer file."""
    return HaSettings(**{field: settings[name] for name, field in REPLICATION_KEYS.items()})
