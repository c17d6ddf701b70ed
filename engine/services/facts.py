"""What the rules for stored messages need to know of this broker, for roles of its own."""

from __future__ import annotations

import os

from engine.producer.broker_facts import BrokerFacts
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import regions
from store.message.host import Host


def facts_of(config: BrokerConfig, counters: BrokerCounters) -> BrokerFacts:
    """The facts of a broker's role."""
    settings = regions.pointer(config, counters.directory, counters.ha_listen_port.read())["settings"]
    return BrokerFacts(os.fspath(config.store_path_root_dir), settings, Host(config.broker_ip1, config.listen_port))
