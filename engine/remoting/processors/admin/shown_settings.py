"""A broker's settings by RocketMQ's names, as GET_BROKER_CONFIG shows them."""

from __future__ import annotations

from engine.net.listeners import bind_address
from engine.settings.config import BrokerConfig
from engine.settings.keys import KEYS
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters


def settings_of(config: BrokerConfig, counters: BrokerCounters) -> dict[str, str]:
    """Return the settings of the file, with what an administrator changed since."""
    known = {"bindAddress": bind_address(config.bind_address, config.broker_ip1), **live_settings.values(counters)}
    known["timerWheelEnable"] = False  # a slave copies how far its master's wheel is; a wheel there is not
    shown = {key.name: live_settings.text_of(known.get(key.name, getattr(config, key.field)), key.kind) for key in KEYS}
    return {**shown, "filterServerNums": "0"}  # without it mqadmin's exportConfigs of 4.9 ends in an exception
