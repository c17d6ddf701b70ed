"""What a cluster is configured with: as RocketMQ's keys, from which each broker has its configuration."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.policy import PutPolicy
from engine.settings.config import BrokerConfig, from_mapping
from tests.simulation.limits import (
    FLUSH_TIMEOUT_MS,
    HEARTBEAT_MS,
    HOUSEKEEPING_MS,
    RECONNECT_MS,
    SLAVE_TIMEOUT_MS,
)

MASTER = ("10.0.0.1", 10_912)
SECRET = b"a secret that all of them know"
CLUSTER, BROKER = "cluster", "broker"


class Settings(NamedTuple):
    """What a cluster is configured with."""

    policy: PutPolicy
    connection_limits: ConnectionLimits
    client_limits: ClientLimits
    flow_limit: int  # 0: none
    fallbehind_bytes_max: int
    slave_timeout_ms: int
    flush_timeout_ms: int
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

    @property
    def secret(self) -> bytes:
        """What all know, if they are to prove who they are."""
        return b"" if self.secret_file is None else SECRET

    def _keys(self, root: Path, broker_id: int) -> dict[str, Any]:
        return {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": broker_id,
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": root,
            "mappedFileSizeCommitLog": self.segment_bytes,
            "syncFromLastFile": not self.whole_history,
            **({} if self.secret_file is None else {"haSecretFile": self.secret_file}),
        }

    def of_slave(self, root: Path, broker_id: int) -> BrokerConfig:
        """A slave's."""
        address = f"{MASTER[0]}:{MASTER[1]}"
        return from_mapping({**self._keys(root, broker_id), "brokerRole": "SLAVE", "haMasterAddress": address})


def chosen(rng: random.Random, slaves: int, root: Path, *, are_ours: bool) -> Settings:
    """What somebody may configure. `root`: where the secret lies."""
    replicas = rng.randint(1, slaves + 1) if rng.random() < 0.95 else slaves + 2
    is_automatic = replicas > 1 and rng.random() < 0.25
    policy = PutPolicy(
        replicas,
        rng.random() < 0.3,
        rng.random() < 0.5,
        is_automatic,
        rng.randint(1, replicas) if is_automatic else 0,
    )
    segment = rng.choice((2048, 4096, 16_384))
    flow_limit, overlap_bytes = rng.choice((0, 0, 0, 1500)), rng.choice((200, 2000, 65_536))
    secret_file = root / "secret"
    secret_file.write_bytes(SECRET)
    return Settings(
        policy,
        ConnectionLimits(segment, rng.choice((100, 1000, 32_768)), HEARTBEAT_MS, HOUSEKEEPING_MS, SLAVE_TIMEOUT_MS),
        ClientLimits(segment, HEARTBEAT_MS, HOUSEKEEPING_MS, RECONNECT_MS),
        flow_limit=flow_limit,
        fallbehind_bytes_max=rng.choice((1000, 1 << 20)),
        slave_timeout_ms=SLAVE_TIMEOUT_MS,
        flush_timeout_ms=FLUSH_TIMEOUT_MS,
        flush_every_ms=rng.choice((200, 500, 5000)),
        are_ours=are_ours,
        whole_history=are_ours and rng.random() < 0.7,
        counts_flushed=are_ours and rng.random() < 0.2,
        secret_file=rng.choice((None, secret_file)),
        overlap_bytes=min(overlap_bytes, flow_limit or overlap_bytes),  # it has to pass while strangers want the slot
    )
