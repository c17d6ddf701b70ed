"""Where a broker's regions lie, and the pointer by which other processes find them.

One directory for each store, named by a hash of the store's real path: two brokers never meet, a restart finds what a
killed one left.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from engine import affinity, ha_settings
from engine.config import BrokerConfig
from ipc.process import boot_id, start_time

NAME_DIGITS = 12


def directory_of(config: BrokerConfig) -> Path:
    """The region directory of a store."""
    real = os.path.realpath(config.store_path_root_dir)
    return Path(config.region_path) / f"slipstream-{hashlib.sha256(real.encode()).hexdigest()[:NAME_DIGITS]}"


def pointer(config: BrokerConfig, directory: Path, ha_listen_port: int) -> dict[str, Any]:
    """What the pointer file says; settings under RocketMQ's keys where it has one."""
    return {
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "boot_id": boot_id(),
        "region_directory": str(directory),
        "settings": {
            **ha_settings.named(config),
            "brokerClusterName": config.broker_cluster_name,
            "brokerName": config.broker_name,
            "brokerId": config.broker_id,
            "storeHost": f"{_bracketed(config.broker_ip1)}:{config.listen_port}",
            "storePathCommitLog": str(config.store_path_commit_log),
            "haListenPort": ha_listen_port,
            "mappedFileSizeCommitLog": config.mapped_file_size_commit_log_bytes,
            "mappedFileSizeConsumeQueue": config.mapped_file_size_consume_queue_bytes,
            "maxHashSlotNum": config.max_hash_slot_num,
            "maxIndexNum": config.max_index_num,
            "messageIndexEnable": config.message_index_enable,
            "maxMessageSize": config.max_message_bytes,
            "defaultTopicQueueNums": config.default_topic_queue_nums,
            "ringSizeInBytes": config.ring_bytes,
            "syncCpu": affinity.sync_cpu(config.affinity),
            "regionId": config.region_id,
            "traceOn": config.trace_on,
            "enableLmq": config.enable_lmq,
            "enableMultiDispatch": config.enable_multi_dispatch,
            "enabledAppendPropCRC": config.enabled_append_prop_crc,
            "timerWheelEnable": config.timer_wheel_enable,
            "transactionOpMsgMaxSize": config.transaction_op_msg_max_bytes,
            "transactionOpBatchInterval": config.transaction_op_batch_interval_ms,
        },
    }


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
