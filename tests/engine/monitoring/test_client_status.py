"""What is said of fronts and services: figures of those that run, and what keeps them from clients."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.monitoring.client_status import SLOW_MS, FrontStatus, client_findings, fronts_of, services_of
from engine.monitoring.finding import SILENT_SECONDS
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    counters = BrokerCounters.create(tmp_path / "counters")
    for role in ("front.0", "front.2", "delay", "clients"):
        waiting.publish(counters.pids[role], 1)
        waiting.publish(counters.heartbeats[role], monotonic_ms())
    return counters


def test_figures_are_those_of_roles_that_run(counters: BrokerCounters) -> None:
    waiting.publish(counters.fronts[2].connections, 7)
    waiting.publish(counters.fronts[2].pulls_held, 3)
    waiting.publish(counters.fronts[1].connections, 99)
    waiting.add(counters.delay.delivered, 5)
    nothing = FrontStatus("front.0", 0, 0, 0, 0, 0, 0, 0, 0)
    assert fronts_of(counters) == [nothing, FrontStatus("front.2", 7, 3, 0, 0, 0, 0, 0, 0)]
    assert services_of(counters)["delay"]["delivered"] == 5 and "transactions" not in services_of(counters)
    assert not client_findings(counters, "STORE")


def test_each_finding_has_its_next_step(counters: BrokerCounters) -> None:
    waiting.publish(counters.fronts[0].listen_errno, errno.EADDRINUSE)
    waiting.publish(counters.fronts[2].send_wait_ms, SLOW_MS + 1)
    waiting.publish(counters.heartbeats["clients"], monotonic_ms() - SILENT_SECONDS * 2000)
    waiting.publish(counters.fronts[1].listen_errno, errno.EACCES)
    found = client_findings(counters, "/the store")
    assert [one.reason for one in found] == ["STUCK", "NO_LISTENER", "SLOW"]
    assert "clients" in found[0].what and "front.0" in found[1].what and "Address already in use" in found[1].what
    assert all("`" in one.next_step for one in found)
    assert found[2].at_length[0].endswith("`slipstream stats /the store`")
