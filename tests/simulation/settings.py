"""What a cluster is configured with: as RocketMQ's keys, from which each broker has its configuration."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.ha.client_kernel import ClientLimits
from engine.settings.config import BrokerConfig, from_mapping
from tests.simulation.limits import (
    FLUSH_TIMEOUT_MS,
    HEARTBEAT_MS,
    HOUSEKEEPING_MS,
    RECONNECT_MS,
    RING_BYTES,
    SLAVE_TIMEOUT_MS,
)

MASTER = ("10.0.0.1", 10_912)
SECRET = b"a secret that all of them know"
CLUSTER, BROKER = "cluster", "broker"


class Settings(NamedTuple):
    """What a cluster is configured with."""

    of_puts: dict[str, Any]  # keys of what a put waits for
    client_limits: ClientLimits
    batch_bytes: int
    flow_limit: int  # 0: none
    fallbehind_bytes_max: int
    flush_every_ms: int
    are_ours: bool  # slaves that compare, and say who they are; else as RocketMQ's
    whole_history: bool
    counts_flushed: bool
    secret_file: Path | None
    overlap_bytes: int

    @property
    def segment_bytes(self) -> int:
        """The length of the log's files."""
        return self.client_limits.segment_bytes

    def _keys(self, root: Path, broker_id: int) -> dict[str, Any]:
        return {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": broker_id,
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": root,
            "mappedFileSizeCommitLog": self.segment_bytes,
            "syncFromLastFile": not self.whole_history,
            "haSendHeartbeatInterval": HEARTBEAT_MS,
            "haHousekeepingInterval": HOUSEKEEPING_MS,
            "haReconnectInterval": RECONNECT_MS,
            "slaveTimeout": SLAVE_TIMEOUT_MS,
            "syncFlushTimeout": FLUSH_TIMEOUT_MS,
            "flushCommitLogLeastPages": 0,
            "flushIntervalConsumeQueue": 1 << 30,  # nobody dispatches
            **({} if self.secret_file is None else {"haSecretFile": self.secret_file}),
        }

    def of_slave(self, root: Path, broker_id: int) -> BrokerConfig:
        """A slave's."""
        address = f"{MASTER[0]}:{MASTER[1]}"
        return from_mapping({**self._keys(root, broker_id), "brokerRole": "SLAVE", "haMasterAddress": address})

    def of_master(self, root: Path) -> BrokerConfig:
        """A master's."""
        flow = {"haFlowControlEnable": True, "maxHaTransferByteInSecond": self.flow_limit} if self.flow_limit else {}
        return from_mapping(
            {
                **self._keys(root, 0),
                **self.of_puts,
                **flow,
                "brokerRole": "SYNC_MASTER",
                "flushIntervalCommitLog": self.flush_every_ms,
                "ringSizeInBytes": RING_BYTES,
                "maxProducers": 1,
                "haTransferBatchSize": self.batch_bytes,
                "haSlaveFallbehindMax": self.fallbehind_bytes_max,
                "haStartFromMin": self.whole_history,
                "haAckFlushed": self.counts_flushed,
            }
        )


def chosen(rng: random.Random, slaves: int, root: Path, *, are_ours: bool) -> Settings:
    """What somebody may configure. `root`: where the secret lies."""
    replicas = rng.randint(1, slaves + 1) if rng.random() < 0.95 else slaves + 2
    is_automatic = replicas > 1 and rng.random() < 0.25
    of_puts = {
        "inSyncReplicas": replicas,
        "flushDiskType": "SYNC_FLUSH" if rng.random() < 0.3 else "ASYNC_FLUSH",
        "compat": "4.9" if rng.random() < 0.5 and not is_automatic else "5",
    }
    if is_automatic:
        least = rng.randint(1, replicas)
        of_puts |= {
            "enableSlaveActingMaster": True,
            "enableAutoInSyncReplicas": True,
            "minInSyncReplicas": least,
        }
    segment = rng.choice((2048, 4096, 16_384))
    flow_limit, overlap_bytes = rng.choice((0, 0, 0, 1500)), rng.choice((200, 2000, 65_536))
    secret_file = root / "secret"
    secret_file.write_bytes(SECRET)
    return Settings(
        of_puts,
        ClientLimits(segment, HEARTBEAT_MS, HOUSEKEEPING_MS, RECONNECT_MS),
        batch_bytes=rng.choice((100, 1000, 32_768)),
        flow_limit=flow_limit,
        fallbehind_bytes_max=rng.choice((1000, 1 << 20)),
        flush_every_ms=rng.choice((200, 500, 5000)),
        are_ours=are_ours,
        whole_history=are_ours and rng.random() < 0.7,
        counts_flushed=are_ours and rng.random() < 0.2,
        secret_file=rng.choice((None, secret_file)),
        overlap_bytes=min(overlap_bytes, flow_limit or overlap_bytes),  # it has to pass while strangers want the slot
    )
