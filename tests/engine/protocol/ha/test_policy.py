"""The policy table: which put waits for how many replicas, and which is not stored, by version and settings."""

from __future__ import annotations

from typing import Any

import pytest

from engine.protocol.ha.policy import HA_POLICIES, PutPolicy, may_append, put_policy, replicas_needed
from engine.settings import replication
from engine.settings.config import from_mapping

AUTOMATIC = {"compat": "5", "enableSlaveActingMaster": True, "enableAutoInSyncReplicas": True}


def policy_of(compat: str, *, sync_master: bool, in_sync_replicas: int, sync_flush: bool) -> PutPolicy:
    return of_keys(
        compat=compat,
        brokerRole="SYNC_MASTER" if sync_master else "ASYNC_MASTER",
        inSyncReplicas=in_sync_replicas,
        flushDiskType="SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH",
    )


def of_keys(**keys: Any) -> PutPolicy:
    return put_policy(replication.of_config(from_mapping({"brokerRole": "SYNC_MASTER", **keys})))


def test_there_is_a_column_for_every_compat() -> None:
    assert set(HA_POLICIES) == {"4.9", "5"}
    for compat in HA_POLICIES:
        from_mapping({"compat": compat})


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_sync_master_waits_for_a_slave_unless_1_is_written_out(compat: str) -> None:
    assert replicas_needed(of_keys(compat=compat), 0) == 2
    assert replicas_needed(of_keys(compat=compat, inSyncReplicas=1), 5) == 1
    assert replicas_needed(of_keys(compat=compat, inSyncReplicas=3), 0) == 3


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_other_roles_wait_for_nobody_and_check_nothing(role: str) -> None:
    keys: dict[str, Any] = {**AUTOMATIC, "brokerRole": role, "brokerId": int(role == "SLAVE"), "inSyncReplicas": 3}
    policy = of_keys(**{**keys, "enableSlaveActingMaster": False}, minInSyncReplicas=2)
    assert (replicas_needed(policy, 0), may_append(policy, 0)) == (1, True)


@pytest.mark.parametrize(
    ("why", "keys", "in_sync_slaves", "needed", "stored"),
    [
        ("all in sync", {"inSyncReplicas": 3, "minInSyncReplicas": 2}, 2, 3, True),
        ("one lacks: the others do", {"inSyncReplicas": 3, "minInSyncReplicas": 2}, 1, 2, True),
        ("too few", {"inSyncReplicas": 3, "minInSyncReplicas": 2}, 0, 2, False),
        ("more than asked for", {"inSyncReplicas": 2, "minInSyncReplicas": 1}, 5, 2, True),
        ("the master alone, written out", {"inSyncReplicas": 3, "minInSyncReplicas": 1}, 0, 1, True),
        ("min is 2 unless written out", {"inSyncReplicas": 3}, 0, 2, False),
        ("nothing written: one slave", {}, 0, 2, False),
        ("nothing written: one slave is there", {}, 1, 2, True),
        ("inSyncReplicas=1 written out", {"inSyncReplicas": 1}, 0, 1, True),
        ("min above inSyncReplicas wins, as in RocketMQ", {"inSyncReplicas": 2, "minInSyncReplicas": 3}, 1, 3, False),
        ("not automatic: all or nothing", {"inSyncReplicas": 3, "enableAutoInSyncReplicas": False}, 1, 3, False),
        ("not automatic: all", {"inSyncReplicas": 3, "enableAutoInSyncReplicas": False}, 2, 3, True),
    ],
)
def test_with_enable_slave_acting_master_puts_need_the_slaves_in_sync(
    why: str, keys: dict[str, Any], in_sync_slaves: int, needed: int, stored: bool
) -> None:
    policy = of_keys(**{**AUTOMATIC, **keys})
    assert (replicas_needed(policy, in_sync_slaves), may_append(policy, in_sync_slaves)) == (needed, stored), why
    assert policy.replicas_least <= needed


@pytest.mark.parametrize("off", [{"compat": compat, "enableSlaveActingMaster": False} for compat in HA_POLICIES])
def test_without_its_mode_or_with_4_9_all_is_stored_and_waits_for_in_sync_replicas(off: dict[str, Any]) -> None:
    policy = of_keys(**{**AUTOMATIC, "inSyncReplicas": 3, "minInSyncReplicas": 2, **off})
    assert (replicas_needed(policy, 0), may_append(policy, 0), policy.replicas_min) == (3, True, 0)
