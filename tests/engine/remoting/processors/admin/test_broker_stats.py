"""Rates of what consumers take, over seconds that nobody looked at one by one."""

from __future__ import annotations

from pathlib import Path

from engine.remoting.processors.admin.broker_stats import BrokerStats
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files.pointer import COUNTERS_FILE

NOW_MS = 1_000_000


def test_a_broker_that_looked_late_has_the_rates_of_the_time_that_is_asked_for(tmp_path: Path) -> None:
    counters = BrokerCounters.create(tmp_path / COUNTERS_FILE)
    stats = BrokerStats(counters, tmp_path, "c")
    stats.turn(NOW_MS)
    assert stats.figures("taken")["taken"] == "  "
    waiting.add(counters.fronts[0].pulled_messages, 100)
    stats.turn(NOW_MS + 999)
    stats.turn(NOW_MS + 10_000)
    assert stats.figures("taken")["taken"] == "10.0  "
    stats.turn(NOW_MS + 20_000)
    assert stats.figures("taken")["taken"] == "0.0  "
    for at_ms in (NOW_MS + 80_000, NOW_MS + 20_000_000):
        stats.turn(at_ms)
    assert stats.figures("taken")["taken"] == "0.0 0.0 0.0", "after a long sleep, too"
    counters.region.close()
