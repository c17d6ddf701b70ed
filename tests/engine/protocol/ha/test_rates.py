"""Rates of replicas and the time to catch up, from samples made by hand."""

from __future__ import annotations

import pytest

from engine.protocol.ha.rates import HaSample, ReplicaRate, SlotSample, catch_up_seconds, received_rate, replica_rate

MIB = 1 << 20


def sample(second: float, end: int, ack: int, sent: int, *, connected_at_ms: int = 1, received: int = 0) -> HaSample:
    return HaSample(int(second * 1000), end, received, (SlotSample(0, 0, 0), SlotSample(connected_at_ms, ack, sent)))


def test_the_rate_is_that_of_the_last_three_seconds() -> None:
    samples = [sample(second, 1000 * second, 100 * second, 200 * second) for second in range(10)]
    now = sample(10, 10_000 + 3000, 1000 + 300, 2000 + 600)
    assert replica_rate(samples, now, 1) == ReplicaRate(sent=400.0, acknowledged=200.0, growth=2000.0)


def test_a_connection_that_took_the_slot_over_has_its_own_rate() -> None:
    samples = [sample(1, 0, 900, 900, connected_at_ms=1), sample(2, 0, 500, 0, connected_at_ms=2)]
    now = sample(4, 0, 700, 100, connected_at_ms=2)
    assert replica_rate(samples, now, 1) == ReplicaRate(50.0, 100.0, 0.0)
    assert replica_rate(samples[:1], now, 1) is None


def test_what_was_asked_for_at_the_start_is_no_progress() -> None:
    before_its_first_report = sample(1, 1000, -1, 0)
    assert replica_rate([before_its_first_report], sample(2, 1000, 900, 0), 1) is None


def test_a_clock_that_went_back_or_missing_samples_give_no_rate() -> None:
    assert replica_rate([sample(50, 0, 0, 0)], sample(10, 0, 0, 0), 1) is None
    assert received_rate([], sample(10, 0, 0, 0)) is None
    assert received_rate([sample(8, 0, 0, 0, received=100)], sample(10, 0, 0, 0, received=500)) == 200.0


@pytest.mark.parametrize(
    ("why", "lag", "rate", "expected"),
    [
        ("nothing is missing", 0, None, 0.0),
        ("nothing is known yet", 100, None, None),
        ("a log that stands still", 100 * MIB, ReplicaRate(0, 10 * MIB, 0), 10.0),
        ("a log that grows more slowly", 100 * MIB, ReplicaRate(0, 10 * MIB, 5 * MIB), 20.0),
        ("a log that grows as fast", 100 * MIB, ReplicaRate(0, 10 * MIB, 10 * MIB), None),
        ("a log that grows faster", 100 * MIB, ReplicaRate(0, 10 * MIB, 11 * MIB), None),
        ("it stands still", 100 * MIB, ReplicaRate(5, 0, 0), None),
        ("what is on its way only, under load", MIB, ReplicaRate(0, 10 * MIB, 10 * MIB), 0.1),
    ],
)
def test_the_time_to_catch_up_follows_from_lag_and_rates(
    why: str, lag: int, rate: ReplicaRate | None, expected: float | None
) -> None:
    assert catch_up_seconds(lag, rate) == expected, why
