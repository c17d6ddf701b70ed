"""What a put waits for before it is acknowledged, by a broker's settings and its line's rules (`store/compat.py`).

Implements: what differs in CommitLog.submitReplicaRequest (4.9), CommitLog.asyncPutMessage and calcNeedAckNums (5.x)
spec: ha-protocol, 5 timers, 6 put path and acks, 12 config keys
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.ha.ha_settings import HaSettings
from store.compat import LINES

SYNC_MASTER, SYNC_FLUSH = "SYNC_MASTER", "SYNC_FLUSH"

HA_POLICIES = {compat: line.ha for compat, line in LINES.items()}


class PutPolicy(NamedTuple):
    """The rule of what a put waits for. Replicas are counted with the master: 1 waits for nobody."""

    in_sync_replicas: int
    wait_for_flush: bool
    refuse_without_slave: bool
    check_before_append: bool = False
    replicas_min: int = 0  # above 0: as many as there are in sync, but no less than this (enableAutoInSyncReplicas)

    @property
    def replicas_least(self) -> int:
        """The fewest replicas that any put of this broker may wait for."""
        return min(self.replicas_min, self.in_sync_replicas) if self.replicas_min else self.in_sync_replicas


def put_policy(settings: HaSettings) -> PutPolicy:
    """The policy of a broker: only a SYNC_MASTER waits for slaves."""
    wait_for_flush = settings.flush_disk_type == SYNC_FLUSH
    rules = HA_POLICIES[settings.compat]
    if settings.broker_role != SYNC_MASTER:
        return PutPolicy(1, wait_for_flush, rules.refuses_without_slave)
    checks = rules.checks_before_append and settings.enable_slave_acting_master
    is_automatic = checks and settings.enable_auto_in_sync_replicas
    return PutPolicy(
        max(settings.in_sync_replicas, settings.min_in_sync_replicas if is_automatic else 1),
        wait_for_flush,
        rules.refuses_without_slave,
        checks,
        settings.min_in_sync_replicas if is_automatic else 0,
    )


def replicas_needed(policy: PutPolicy, in_sync_slaves: int) -> int:
    """Return how many replicas a put waits for that finds so many slaves in sync (calcNeedAckNums)."""
    if not policy.replicas_min:
        return policy.in_sync_replicas
    return max(min(policy.in_sync_replicas, 1 + in_sync_slaves), policy.replicas_min)


def may_append(policy: PutPolicy, in_sync_slaves: int) -> bool:
    """Whether a message is stored at all; else IN_SYNC_REPLICAS_NOT_ENOUGH."""
    return not policy.check_before_append or replicas_needed(policy, in_sync_slaves) <= 1 + in_sync_slaves
