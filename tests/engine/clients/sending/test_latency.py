"""How long a broker is avoided after slow answers and failures, as MQFaultStrategy of 4.9 avoids it."""

from __future__ import annotations

import pytest

from engine.clients.sending.latency import AVOIDED_MS, BROKERS_MAX, LATENCIES_MS, LatencyTable, avoided_ms


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [
        (0, 0), (49, 0), (50, 0), (549, 0), (550, 30_000), (999, 30_000), (1000, 60_000), (2000, 120_000),
        (3000, 180_000), (14_999, 180_000), (15_000, 600_000), (1 << 40, 600_000),
    ],
)  # fmt: skip
def test_a_slow_answer_avoids_a_broker_longer(latency_ms: int, expected_ms: int) -> None:
    assert avoided_ms(latency_ms) == expected_ms


def test_every_step_has_a_time() -> None:
    assert len(LATENCIES_MS) == len(AVOIDED_MS)
    assert sorted(LATENCIES_MS) == list(LATENCIES_MS) and sorted(AVOIDED_MS) == list(AVOIDED_MS)


def test_a_broker_is_available_again_when_its_time_is_over() -> None:
    table = LatencyTable(enabled=True)
    table.note("a", 700, now_ms=1000)
    assert not table.is_available("a", 30_999) and table.is_available("a", 31_000)
    assert table.is_available("unknown", 1000)


def test_a_quick_answer_makes_a_broker_available_at_once() -> None:
    table = LatencyTable(enabled=True)
    table.note("a", 0, now_ms=1000, failed=True)
    assert not table.is_available("a", 600_999)
    table.note("a", 10, now_ms=2000)
    assert table.is_available("a", 2000)


def test_the_broker_whose_time_is_over_first_is_the_soonest() -> None:
    table = LatencyTable(enabled=True)
    table.note("a", 3000, now_ms=0)
    table.note("b", 600, now_ms=0)
    assert table.soonest(["a", "b"]) == "b"
    assert table.soonest(["a", "b", "never-asked"]) == "never-asked"


def test_a_table_that_is_not_enabled_avoids_no_broker() -> None:
    table = LatencyTable(enabled=False)
    table.note("a", 0, now_ms=0, failed=True)
    assert table.is_available("a", 0)


def test_the_table_has_a_limit() -> None:
    table = LatencyTable(enabled=True)
    for number in range(BROKERS_MAX + 1):
        table.note(f"broker-{number}", 1000, now_ms=number)
    assert table.is_available("broker-0", 0), "the entry that ends first was forgotten"
    assert not table.is_available(f"broker-{BROKERS_MAX}", BROKERS_MAX)
