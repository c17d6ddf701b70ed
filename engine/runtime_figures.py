"""A running broker's figures under RocketMQ's names: what `brokerStatus`, `clusterList` and `haStatus` show.

Implements: AdminBrokerProcessor.prepareRuntimeInfo, DefaultHAService.getRuntimeInfo
spec: remoting, 8 admin requests; ha-protocol, 10 runtime info
"""

from __future__ import annotations

from typing import Any

from engine import addresses
from engine.cursors import Board
from engine.protocol.requests import VERSIONS
from engine.store_stats import stats
from store.log_end import store_timestamp_ms
from store.segment_files import SegmentFiles

VERSION_NAMES = {"4.9": "V4_9_7", "5": "V5_3_3"}
TRANSFER = 2
# What RocketMQ says of its thread pools: a log that is appended through shared memory has none that could be full.
POOLS = ("send", "pull", "query")
WAITS = "ThreadPoolQueueHeadWaitTimeMills"
NO_CLIENTS = {
    "getTotalTps": "0.0 0.0 0.0", "getTransferedTps": "0.0 0.0 0.0", "getTransferredTps": "0.0 0.0 0.0",
    "msgPutTotalYesterdayMorning": "0", "msgPutTotalTodayMorning": "0", "msgGetTotalYesterdayMorning": "0",
    "msgGetTotalTodayMorning": "0", "msgGetTotalTodayNow": "0", "pageCacheLockTimeMills": "0",
}  # fmt: skip


def runtime_info(store_root: str, board: Board, files: SegmentFiles, compat: str) -> dict[str, str]:
    """The table of GET_BROKER_RUNTIME_INFO."""
    found = stats(store_root)
    used = board.disk_used_percent.read() / 100
    return {
        **found.runtime_info, **NO_CLIENTS, **{f"{pool}ThreadPoolQueueSize": "0" for pool in POOLS},
        **{f"{pool}{WAITS}": "0" for pool in POOLS},
        "brokerActive": "true", "brokerVersion": str(VERSIONS[compat]), "brokerVersionDesc": VERSION_NAMES[compat],
        "commitLogMinOffset": str(board.min_physical_offset.read()),
        "commitLogMaxOffset": str(board.max_physical_offset.read()),
        "commitLogDiskRatio": f"{used:.2f}", "consumeQueueDiskRatio": f"{used:.2f}",
        "earliestMessageTimeStamp": str(_earliest_ms(board, files)),
        "msgPutTotalTodayNow": str(found.put_messages),
    }  # fmt: skip


def _earliest_ms(board: Board, files: SegmentFiles) -> int:
    """The first message's store time; -1 without one."""
    start, end = board.min_physical_offset.read(), board.max_physical_offset.read()
    return (store_timestamp_ms(files, start) or -1) if end > start else -1


def ha_status(board: Board, *, is_slave: bool, fallbehind_max_bytes: int) -> dict[str, Any]:
    """HARuntimeInfo."""
    end, client = board.max_physical_offset.read(), board.ha_client
    return {
        "haClientRuntimeInfo": {
            "lastReadTimestamp": client.last_read_ms.read(), "lastWriteTimestamp": client.last_write_ms.read(),
            "masterAddr": addresses.text_of(client.master_address) if is_slave else None,
            "masterFlushOffset": 0, "maxOffset": end if is_slave else 0, "transferredByteInSecond": 0,
        },
        "haConnectionInfo": [] if is_slave else [
            {
                "addr": addresses.text_of(one.peer_address), "diff": end - one.slave_ack_offset.read(),
                "inSync": end - one.slave_ack_offset.read() < fallbehind_max_bytes,
                "slaveAckOffset": one.slave_ack_offset.read(), "transferFromWhere": one.next_transfer_offset.read(),
                "transferredByteInSecond": 0,
            }
            for one in board.ha if one.state.read() == TRANSFER
        ],
        "inSyncSlaveNums": board.in_sync_slaves.read(),
        "master": not is_slave,
        "masterCommitLogMaxOffset": 0 if is_slave else end,
    }  # fmt: skip
