"""The words of `ha explain` say what the policy does, for every combination of settings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine.protocol.ha.explanation import Explanation, explain
from engine.protocol.ha.policy import may_append, put_policy, replicas_needed
from engine.settings import replication
from engine.settings.config import from_mapping


def of_keys(in_sync_slaves: int | None = None, **keys: Any) -> Explanation:
    return explain(replication.of_config(from_mapping(keys)), in_sync_slaves)


def text(found: Explanation) -> str:
    return " ".join([*(f"{row.name}: {row.meaning}" for row in (*found.answers, *found.survives)), *found.notes])


def test_the_default_sync_master_waits_for_one_slave_and_says_what_rocketmq_does() -> None:
    found = of_keys(brokerRole="SYNC_MASTER", compat="5")
    assert dict(found.answers)["PUT_OK"].endswith("in the logs of one slave, appended there, not yet on their disks")
    assert "RocketMQ 5.3.3 itself waits for no slave when inSyncReplicas is not written" in text(found)
    assert "SLAVE_NOT_AVAILABLE" not in dict(found.answers), "5.x does not say that"
    assert "SLAVE_NOT_AVAILABLE" in dict(of_keys(brokerRole="SYNC_MASTER", compat="4.9").answers)


def test_an_async_master_promises_no_slave() -> None:
    found = of_keys(brokerRole="ASYNC_MASTER")
    assert "the put waits for no slave" in dict(found.answers)["PUT_OK"]
    assert "FLUSH_SLAVE_TIMEOUT" not in dict(found.answers)
    assert "lost if no slave has fetched it yet" in dict(found.survives)["the master's host or disk is lost"]


def test_a_sync_flush_is_on_disk_whatever_happens() -> None:
    found = of_keys(brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH", syncFlushTimeout=777)
    assert "on the master's disk (fdatasync)" in dict(found.answers)["PUT_OK"]
    assert "777 ms" in dict(found.answers)["FLUSH_DISK_TIMEOUT"]
    assert dict(found.survives)["all hosts lose power at once"] == "kept on the master's disk"


EVERYWHERE = "all hosts lose power at once"


def test_with_ha_ack_flushed_it_is_on_the_slaves_disks() -> None:
    found = of_keys(brokerRole="SYNC_MASTER", haAckFlushed=True, inSyncReplicas=3)
    assert dict(found.answers)["PUT_OK"].endswith("on the disks of 2 distinct slaves")
    assert dict(found.survives)[EVERYWHERE] == "kept on the slaves' disks"
    assert "a RocketMQ slave cannot report what is on its disk" in text(found)
    both = of_keys(brokerRole="SYNC_MASTER", haAckFlushed=True, flushDiskType="SYNC_FLUSH")
    assert dict(both.survives)[EVERYWHERE] == "kept on the master's disk and on the slaves' disks"


@pytest.mark.parametrize(
    "keys",
    [
        {"brokerRole": "ASYNC_MASTER"},
        {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 1},
        {"brokerRole": "SYNC_MASTER", "compat": "5", "enableSlaveActingMaster": True, "inSyncReplicas": 2,
         "enableAutoInSyncReplicas": True, "minInSyncReplicas": 1},
    ],
)  # fmt: skip
def test_ha_ack_flushed_promises_nothing_where_a_put_may_wait_for_nobody(keys: dict[str, Any]) -> None:
    found = of_keys(haAckFlushed=True, **keys)
    assert dict(found.survives)[EVERYWHERE].endswith("it may be lost everywhere")
    assert ("haAckFlushed has no effect" in text(found)) == ("enableAutoInSyncReplicas" not in keys)


def test_the_explanation_says_which_slaves_count_as_different() -> None:
    found = text(of_keys(brokerRole="SYNC_MASTER"))
    assert "RocketMQ slaves are distinguished by address" in found
    assert "one slave with two addresses counts once" in found and "if haSecretFile proves the name" in found


def test_numbers_are_the_settings() -> None:
    found = of_keys(brokerRole="SYNC_MASTER", slaveTimeout=1234, haSlaveFallbehindMax=5678, haHousekeepingInterval=91)
    assert "1234 ms" in dict(found.answers)["FLUSH_SLAVE_TIMEOUT"]
    assert "haSlaveFallbehindMax (5678 bytes)" in dict(found.answers)["SLAVE_NOT_AVAILABLE"]
    assert "haHousekeepingInterval = 91 ms" in dict(found.timers)
    gap = dict(of_keys(brokerRole="SYNC_MASTER", compat="5", haMaxGapNotInSync=5).timers)
    assert gap, "5.x's name is another one of the same key"


def test_a_key_without_effect_is_named() -> None:
    assert "has no effect" in text(of_keys(brokerRole="SYNC_MASTER", enableAutoInSyncReplicas=True))
    assert "acknowledges as an ASYNC_MASTER does" in text(of_keys(brokerRole="SYNC_MASTER", inSyncReplicas=1))


def test_a_slave_takes_no_puts() -> None:
    found = of_keys(brokerRole="SLAVE", brokerId=1)
    assert (len(found.answers), found.survives) == (1, [])


ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
COMBINED = [
    (role, compat, *counts, acting, automatic)
    for role, compat, *counts, acting, automatic in itertools.product(
        ROLES, ("4.9", "5"), (1, 2, 4), (1, 3), (False, True), (False, True)
    )
    if not acting or (role, compat) == ("SYNC_MASTER", "5")  # elsewhere a start with it is refused
]


@pytest.mark.parametrize("slaves", [0, 1, 3])
def test_what_is_said_about_now_is_what_the_policy_does(slaves: int) -> None:
    for role, compat, replicas, least, acting, automatic in COMBINED:
        keys = {
            "brokerRole": role, "compat": compat, "inSyncReplicas": replicas, "minInSyncReplicas": least,
            "enableSlaveActingMaster": acting, "enableAutoInSyncReplicas": automatic,
        }  # fmt: skip
        found, policy = of_keys(slaves, **keys), put_policy(replication.of_config(from_mapping(keys)))
        needed = replicas_needed(policy, slaves)
        assert ("IN_SYNC_REPLICAS_NOT_ENOUGH" in found.now) == (not may_append(policy, slaves)), keys
        if may_append(policy, slaves):
            assert ("waits for no slave" in found.now) == (needed == 1), keys
            assert ("SLAVE_NOT_AVAILABLE" in found.now) == (compat == "4.9" and slaves < needed - 1), keys
            assert ("FLUSH_SLAVE_TIMEOUT" in found.now) == (compat == "5" and slaves < needed - 1), keys
        assert ("FLUSH_SLAVE_TIMEOUT" in dict(found.answers)) == (policy.in_sync_replicas > 1), keys
