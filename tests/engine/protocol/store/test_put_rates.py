"""Rates over windows and RocketMQ's texts, in a time that the test makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.store.put_rates import (
    DISTRIBUTION_NAMES,
    Sample,
    Totals,
    distribution_text,
    is_due,
    put_tps,
    rate,
    runtime_info,
    runtime_text,
)

START = 1_700_000_000_000


def steady(seconds: int, per_second: int) -> list[Sample]:
    return [Sample(START + 1000 * k, k * per_second, k * per_second * 100) for k in range(seconds + 1)]


@pytest.mark.parametrize("window_s", [1, 10, 60])
def test_a_steady_stream_has_its_rate_over_every_window(window_s: int) -> None:
    samples = steady(90, 50)
    found = rate(samples[:-1], samples[-1], window_s)
    assert found == (50.0, 5000.0, float(window_s))


def test_a_window_reaches_back_no_further_than_its_length() -> None:
    burst = [*steady(20, 1000), *(Sample(START + 20_000 + 1000 * k, 20_000, 2_000_000) for k in range(1, 31))]
    now = Sample(START + 50_000, 20_000, 2_000_000)
    assert rate(burst, now, 10).messages == 0
    assert rate(burst, now, 60) == (400.0, 40_000.0, 50.0), "as far as the samples reach"


def test_a_rate_between_two_samples_counts_from_the_older_sample() -> None:
    now = Sample(START + 2_500, 2_900, 250_000)
    assert rate(steady(2, 1000), now, 1) == pytest.approx((1_900 / 1.5, 150_000 / 1.5, 1.5))


def test_without_a_sample_before_now_there_is_no_rate() -> None:
    now = Sample(START, 5, 500)
    assert rate([], now, 1) == rate([now], now, 1) == (0.0, 0.0, 0.0)
    assert rate([Sample(START + 10_000, 1, 1)], now, 1) == (0.0, 0.0, 0.0), "taken since"


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1000)), min_size=1, max_size=200),
    st.sampled_from([1, 10, 60]),
)
def test_a_rate_counts_nothing_twice(steps: list[tuple[int, int]], window_s: int) -> None:
    samples, time_ms, messages = [], START, 0
    for pause_ms, more in steps:
        time_ms, messages = time_ms + pause_ms, messages + more
        samples.append(Sample(time_ms, messages, messages))
    now = Sample(time_ms + 1, messages, messages)
    found = rate(samples, now, window_s)
    since = now.time_ms - round(found.seconds * 1000)
    counted = {messages - sample.messages for sample in samples if sample.time_ms == since}
    assert round(found.messages * found.seconds) in counted
    assert found.seconds >= window_s or since == samples[0].time_ms


def test_a_sample_a_second() -> None:
    sample = Sample(START, 0, 0)
    assert is_due([], START)
    assert [is_due([sample], START + past) for past in (0, 999, 1000)] == [False, False, True]


def test_rocketmqs_rate_is_between_samples_and_empty_before_there_are_enough() -> None:
    assert put_tps([], 10) == put_tps(steady(9, 7), 10) == ""
    assert put_tps(steady(10, 7), 10) == put_tps(steady(600, 7), 600) == "7.0"


def test_runtime_information_is_written_in_rocketmqs_form() -> None:
    assert runtime_text(((26 * 60 + 3) * 60 + 4) * 1000 + 999) == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert distribution_text(range(len(DISTRIBUTION_NAMES))).startswith("[<=0ms]:0 [0~10ms]:1 [10~50ms]:2 ")
    assert distribution_text(range(len(DISTRIBUTION_NAMES))).endswith("[10s~]:12 ")
    totals = Totals(4, 1000, 1, 7, [0] * len(DISTRIBUTION_NAMES), 1.234, 5.0)
    found = runtime_info(totals, steady(60, 2), START, 61_000, 9)
    assert found["putTps"] == "2.0 2.0 "
    assert (found["putMessageTimesTotal"], found["putMessageAverageSize"]) == ("4", "250.0")
    assert (found["putLatency99"], found["putLatency999"], found["dispatchBehindBytes"]) == ("1.23", "5.00", "9")
    assert runtime_info(totals._replace(messages=0, bytes=0), [], START, 0, 0)["putMessageTimesTotal"] == "1"
