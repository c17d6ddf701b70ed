"""What both brokers are told, and what only one of them needs; the shape of what a driver reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.operations import BODY_BYTES_MAX

SEGMENT_BYTES, QUEUE_FILE_BYTES, HASH_SLOTS, INDEX_ENTRIES = 256 * 1024, 200 * 20, 200, 1000
NEVER_MS = 10**9


@dataclass
class Outcome:
    """What became of an operation: None where nobody answers (oneway)."""

    stored: bool | None
    physical_offsets: list[int] = field(default_factory=list)
    queue_id: int = -1
    queue_offset: int = -1
    said: str = ""


@dataclass
class Hosts:
    """Who speaks to whom: the same for both sides."""

    client_port: int
    listen_port: int
    broker_ip: str


def common_settings(*, features: bool) -> dict[str, Any]:
    """What both brokers are told."""
    settings: dict[str, Any] = {
        "brokerClusterName": "diff-cluster", "brokerName": "broker-a", "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES, "maxHashSlotNum": HASH_SLOTS, "maxIndexNum": INDEX_ENTRIES,
        "maxMessageSize": BODY_BYTES_MAX,
    }  # fmt: skip
    if features:
        settings |= {"enableLmq": "true", "enableMultiDispatch": "true", "enableConsumeQueueExt": "true"}
        settings |= {"mappedFileSizeConsumeQueueExt": 4096}
    return settings


def real_settings(*, five: bool, features: bool) -> dict[str, Any]:
    """What only the real one needs to be deterministic."""
    settings = common_settings(features=features)
    settings |= {
        "sendMessageThreadPoolNums": 1, "brokerFastFailureEnable": "false", "transactionCheckInterval": NEVER_MS,
        "transactionTimeOut": NEVER_MS, "osPageCacheBusyTimeOutMills": NEVER_MS,
    }  # fmt: skip
    if five:
        settings |= {"bindAddress": "::", "timerWheelEnable": "false", "transactionOpMsgMaxSize": 1}
        settings |= {"enabledAppendPropCRC": "true"} if features else {}
    return settings
