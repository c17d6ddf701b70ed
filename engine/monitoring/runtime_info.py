"""A running broker's figures under RocketMQ's names: what `brokerStatus`, `clusterList` and `haStatus` show.

Implements: AdminBrokerProcessor.prepareRuntimeInfo, DefaultHAService.getRuntimeInfo
spec: remoting, 8 admin requests; ha-protocol, 10 runtime info
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from engine.monitoring.store_stats import stats
from engine.protocol.ha.flow_kernel import WINDOW_MS as FLOW_WINDOW_MS
from engine.protocol.ha.rates import HaSample, received_rate, replica_rate
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import BrokerCounters, HaSlotState
from engine.shared_memory.ha_samples import sample_now
from ipc.clock import monotonic_ms, wall_of
from store.compat import line_of
from store.files.segment_files import SegmentFiles
from store.recovery.log_end import store_timestamp_ms

# What a broker without a clients role says, and what of it is never otherwise: there is no pool of buffers, nothing
# sets dispatchMaxBuffer (nor does RocketMQ), no pull waits for a thread, and nothing is acknowledged (ack).
WAITS, QUEUE = "ThreadPoolQueueHeadWaitTimeMills", "ThreadPoolQueue"
NO_RATE = "0.0 0.0 0.0"
JAVA_INT_MAX = (1 << 31) - 1  # how many buffers are left of a pool that is not used
NO_CLIENTS = {
    "getTotalTps": NO_RATE, "getFoundTps": NO_RATE, "getMissTps": NO_RATE, "getMessageEntireTimeMax": "0",
    "msgPutTotalYesterdayMorning": "0", "msgPutTotalTodayMorning": "0", "msgGetTotalYesterdayMorning": "0",
    "msgGetTotalTodayMorning": "0", "msgGetTotalTodayNow": "0", "pageCacheLockTimeMills": "0",
    "EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000", "dispatchMaxBuffer": "0",
    "startAcceptSendRequestTimeStamp": "0", "remainTransientStoreBufferNumbs": str(JAVA_INT_MAX),
}  # fmt: skip
NO_TIMERS = {
    "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}  # fmt: skip
BYTE_UNITS = "KMGTPE"


def runtime_info(store_root: str, counters: BrokerCounters, files: SegmentFiles, compat: str) -> dict[str, str]:
    """Return the table of GET_BROKER_RUNTIME_INFO for this broker."""
    figures = stats(store_root)
    used = f"{counters.disk_used_percent.read() / 100:.2f}"
    unflushed = counters.max_physical_offset.read() - counters.flushed_offset.read()
    rules, remoting = line_of(compat).broker, line_of(compat).remoting
    timers = {**NO_TIMERS, "brokerActive": "true"} if rules.timer_figures else {}
    disk = shutil.disk_usage(store_root)
    return {
        **figures.runtime_info,
        **NO_CLIENTS,
        **timers,
        rules.transferred_tps_key: NO_RATE,
        **_pools(dict(rules.pools)),
        "brokerVersion": str(remoting.version),
        "brokerVersionDesc": remoting.version_name,
        "commitLogMinOffset": str(counters.min_physical_offset.read()),
        "commitLogMaxOffset": str(counters.max_physical_offset.read()),
        "commitLogDirCapacity": f"Total : {readable(disk.total)}, Free : {readable(disk.free)}.",
        "commitLogDiskRatio": used,
        f"commitLogDiskRatio_{files.directory}": used,
        "consumeQueueDiskRatio": used,
        "earliestMessageTimeStamp": str(_earliest_ms(counters, files)),
        "msgPutTotalTodayNow": str(figures.put_messages),
        "remainHowManyDataToFlush": readable(unflushed),
    }


def _pools(sizes: Mapping[str, int]) -> dict[str, str]:
    figures: dict[str, str] = {}
    for name, capacity in sizes.items():
        figures |= {f"{name}{QUEUE}Size": "0", f"{name}{QUEUE}Capacity": str(capacity), f"{name}{WAITS}": "0"}
    return figures


def readable(size: int) -> str:
    """Format a size as RocketMQ's MixAll.humanReadableByteCount does."""
    if size < 1024:
        return f"{size} B"
    exponent = (size.bit_length() - 1) // 10
    return f"{size / 1024**exponent:.1f} {BYTE_UNITS[exponent - 1]}iB"


def _earliest_ms(counters: BrokerCounters, files: SegmentFiles) -> int:
    """The first message's store time; -1 without one."""
    start, end = counters.min_physical_offset.read(), counters.max_physical_offset.read()
    return (store_timestamp_ms(files, start) or -1) if end > start else -1


def ha_status(
    counters: BrokerCounters, samples: Sequence[HaSample], *, is_slave: bool, fallbehind_max_bytes: int
) -> dict[str, Any]:
    """HARuntimeInfo; rates are those of the last second."""
    end, client, now = counters.max_physical_offset.read(), counters.ha_client, sample_now(counters, monotonic_ms())
    received = received_rate(samples, now, FLOW_WINDOW_MS) or 0.0
    sent = {slot: replica_rate(samples, now, slot, FLOW_WINDOW_MS) for slot in range(len(counters.ha))}
    return {
        "haClientRuntimeInfo": {
            "lastReadTimestamp": wall_of(client.last_read_ms.read()),
            "lastWriteTimestamp": wall_of(client.last_write_ms.read()),
            **({"masterAddr": address_cursors.text_of(client.master_address)} if is_slave else {}),
            "masterFlushOffset": 0,
            "maxOffset": end if is_slave else 0,
            "transferredByteInSecond": int(received) if is_slave else 0,
        },
        "haConnectionInfo": []
        if is_slave
        else [
            {
                "addr": address_cursors.text_of(one.peer_address),
                "diff": end - one.slave_ack_offset.read(),
                "inSync": end - one.slave_ack_offset.read() < fallbehind_max_bytes,
                "slaveAckOffset": one.slave_ack_offset.read(),
                "transferFromWhere": one.next_transfer_offset.read(),
                "transferredByteInSecond": int(rate.sent) if (rate := sent[one.slot]) else 0,
            }
            for one in counters.ha
            if one.state.read() == HaSlotState.TRANSFER
        ],
        "inSyncSlaveNums": counters.in_sync_slaves.read(),
        "master": not is_slave,
        "masterCommitLogMaxOffset": 0 if is_slave else end,
    }
