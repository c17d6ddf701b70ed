"""The settings of replication, as all that decides in this folder takes them."""

from __future__ import annotations

from typing import NamedTuple


class HaSettings(NamedTuple):
    """The settings of replication: fields of BrokerConfig, under the same names."""

    compat: str
    broker_role: str
    flush_disk_type: str
    in_sync_replicas: int
    min_in_sync_replicas: int
    enable_auto_in_sync_replicas: bool
    enable_slave_acting_master: bool
    slave_timeout_ms: int
    sync_flush_timeout_ms: int
    flush_interval_commit_log_ms: int
    ha_slave_fallbehind_max_bytes: int
    ha_send_heartbeat_interval_ms: int
    ha_housekeeping_interval_ms: int
    ha_reconnect_interval_ms: int
    ha_transfer_batch_bytes: int
    ha_flow_control_enable: bool
    max_ha_transfer_byte_in_second: int
    ha_ack_flushed: bool
