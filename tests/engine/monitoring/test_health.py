"""Alive and ready, from the counters: each trouble has its reason code, and what is well has none."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.monitoring.health import alive, ready
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.next_steps import advice_of
from engine.protocol.ha.wire import CloseReason
from engine.protocol.store.retention import DiskState
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.failures import LOOPING_DEATHS, Failures
from ipc import waiting

MASTER = from_mapping({"brokerName": "a", "storePathRootDir": "/nowhere/store"})
SLAVE = from_mapping(
    {"brokerName": "a", "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "10.0.0.1:10912",
     "haSlaveFallbehindMax": 1000, "storePathRootDir": "/nowhere/store"}
)  # fmt: skip


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[BrokerCounters]:
    """Of a broker that is well."""
    made = BrokerCounters.create(tmp_path / "counters")
    Failures.create(tmp_path).close()
    waiting.publish(made.broker_state, BrokerState.RUNNING)
    waiting.publish(made.listen_port, 10911)
    waiting.publish(made.ha_listen_port, 10912)
    for role in ("front.0", "ha_listener"):
        waiting.publish(made.pids[role], 77)
    waiting.publish(made.ha_client.state, HaClientState.TRANSFER)
    yield made
    made.region.close()


def reasons(config: BrokerConfig, counters: BrokerCounters, master_end: int | None = None) -> list[str]:
    health = ready(config, counters, master_end)
    assert health.ok is (not health.reasons)
    assert all(one.what for one in health.reasons)
    return [str(one.reason) for one in health.reasons]


@pytest.mark.parametrize("config", [MASTER, SLAVE], ids=["master", "slave"])
def test_what_works_is_alive_and_ready(config: BrokerConfig, counters: BrokerCounters) -> None:
    assert alive(config, counters).ok and reasons(config, counters, 0) == []


@pytest.mark.parametrize(("state", "said"), [(BrokerState.STARTING, "STARTING"), (BrokerState.STOPPING, "STOPPING")])
def test_a_broker_that_starts_or_stops_is_alive_and_not_ready(
    state: BrokerState, said: str, counters: BrokerCounters
) -> None:
    waiting.publish(counters.broker_state, state)
    assert alive(MASTER, counters).ok and reasons(MASTER, counters) == ["STOPPED"]
    assert ready(MASTER, counters, None).state == said


def test_a_role_that_can_be_spared_takes_nobody_the_broker(counters: BrokerCounters) -> None:
    waiting.publish(counters.given_up["sidecar"], 1)
    assert alive(MASTER, counters).ok and reasons(MASTER, counters) == []
    waiting.publish(counters.given_up["delay"], 1)
    assert not alive(MASTER, counters).ok


def test_a_port_that_is_not_bound_is_named(counters: BrokerCounters) -> None:
    waiting.publish(counters.listen_port, 0)
    waiting.publish(counters.ha_listen_port, 0)
    health = ready(MASTER, counters, None)
    assert [one.what.split()[0] for one in health.reasons] == ["listenPort", "haListenPort"]
    assert reasons(MASTER, counters) == ["NO_LISTENER"] * 2


def test_a_role_that_finds_no_room_in_shared_memory_is_not_ready(counters: BrokerCounters) -> None:
    for role, expected in (("sender.0", []), ("front.0", ["KILLED"])):
        waiting.publish(counters.deaths[role], LOOPING_DEATHS)
        assert reasons(MASTER, counters) == expected
    assert alive(MASTER, counters).ok and ready(MASTER, counters, None).verdict == "NOT_READY"


def test_a_role_that_was_given_up_is_dead(counters: BrokerCounters) -> None:
    waiting.publish(counters.given_up["flusher"], 1)
    health = alive(MASTER, counters)
    assert not health.ok and health.reasons[0].reason == "KILLED" and "flusher" in health.reasons[0].what
    waiting.publish(counters.given_up["dispatcher"], 1)
    assert {str(one.reason) for one in alive(SLAVE, counters).reasons} == {"KILLED", "UNREADABLE"}


def test_a_disk_that_failed_is_dead_and_a_full_one_is_not_ready(counters: BrokerCounters) -> None:
    waiting.publish(counters.disk_state, DiskState.READ_ONLY)
    assert alive(MASTER, counters).ok and reasons(MASTER, counters) == ["DISK"]
    waiting.publish(counters.disk_state, DiskState.NORMAL)
    waiting.publish(counters.flush_errno, errno.EIO)
    health = alive(MASTER, counters)
    assert [str(one.reason) for one in health.reasons] == ["DISK"] and "Input/output error" in health.reasons[0].what


def test_a_slave_is_ready_by_its_masters_rule(counters: BrokerCounters) -> None:
    waiting.publish(counters.max_physical_offset, 5000)
    assert reasons(SLAVE, counters, 5999) == []
    assert ready(SLAVE, counters, 5999).lag_bytes == 999
    assert reasons(SLAVE, counters, 6000) == ["BEHIND"]
    assert reasons(SLAVE, counters, None) == [], "its connection is all that is known"
    assert reasons(MASTER, counters, 6000) == []


def test_a_slave_that_is_not_connected_says_why(counters: BrokerCounters) -> None:
    waiting.publish(counters.ha_client.state, HaClientState.READY)
    for reason, code in ((CloseReason.NONE, "NO_ADDRESS"), (CloseReason.NOT_ALLOWED, "NOT_ALLOWED")):
        waiting.note(counters.ha_client.reason, reason)
        assert reasons(SLAVE, counters, 0) == [code]
    assert advice_of(CloseReason.NOT_ALLOWED).partition(";")[0] in ready(SLAVE, counters, 0).reasons[0].what
