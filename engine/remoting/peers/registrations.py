"""What a broker tells a name server of itself, out of its settings."""

from __future__ import annotations

from engine.board.cursors import Board
from engine.protocol.naming.registration import Heartbeats, Registration
from engine.protocol.tables.register_body import Member
from engine.settings.config import BrokerConfig


def registration_of(config: BrokerConfig, board: Board) -> Registration:
    """Return the registration at one name server, once the HA port is known."""
    ha_listen_port = board.ha_listen_port.read()
    member = Member(
        config.broker_cluster_name,
        config.broker_name,
        config.broker_id,
        f"{config.broker_ip1}:{config.listen_port}",
        f"{config.broker_ip2}:{ha_listen_port}",
    )
    beats = Heartbeats(
        config.broker_heartbeat_interval_ms,
        config.broker_not_active_timeout_ms,
        config.compatible_with_old_name_srv,
    )
    return Registration(
        member,
        config.compat,
        period_ms=board.register_name_server_period_ms.read(),
        force=config.force_register,
        heartbeats=beats if config.enable_slave_acting_master else None,
    )
