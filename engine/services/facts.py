"""What the rules for stored messages need to know of this broker, for roles of its own."""

from __future__ import annotations

import os

from engine.board.cursors import Board
from engine.board.region_directory import regions
from engine.producer.broker_facts import BrokerFacts
from engine.settings.config import BrokerConfig
from store.message.host import Host


def facts_of(config: BrokerConfig, board: Board) -> BrokerFacts:
    """The facts of a broker's role."""
    settings = regions.pointer(config, board.directory, board.ha_listen_port.read())["settings"]
    return BrokerFacts(os.fspath(config.store_path_root_dir), settings, Host(config.broker_ip1, config.listen_port))
