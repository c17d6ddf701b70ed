"""The settings of what producers and consumers are served, as fields: engine/settings/client_keys.py has their keys."""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings.log_settings import LogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(LogSettings):
    """Fields of `BrokerConfig` about clients."""

    front_processes: int
    reject_transaction_message: bool
    broker_fast_failure_enable: bool
    wait_in_send_queue_ms: int
    wait_in_transaction_queue_ms: int
    page_cache_busy_timeout_ms: int
    send_queue_capacity: int
    pull_queue_capacity: int
    send_bytes_in_flight_max: int
    accepts_sends_from_ms: int
    store_reply_message_enable: bool
    trace_topic_enable: bool
    msg_trace_topic_name: str
    long_polling_enable: bool
    short_polling_time_ms: int
    slave_read_enable: bool
    offset_check_in_slave: bool
    transfer_bytes_in_memory_max: int
    transfer_count_in_memory_max: int
    transfer_bytes_on_disk_max: int
    transfer_count_on_disk_max: int
    memory_max_percent: int
    query_max_num: int
    wait_in_pull_queue_ms: int
    disable_slow_consumers: bool
    consumer_fallbehind_max_bytes: int
    auto_create_groups: bool
    notify_consumer_ids_changed_enable: bool
    wait_in_heartbeat_queue_ms: int
    wait_in_admin_queue_ms: int
    lock_in_strict_mode: bool
    total_replicas: int
    use_server_side_reset_offset: bool
    flush_consumer_offset_interval_ms: int
    channel_expired_timeout_ms: int
    flush_delay_offset_interval_ms: int
    transaction_timeout_ms: int
    transaction_check_max: int
    transaction_check_interval_ms: int
