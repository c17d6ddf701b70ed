"""Sums and rates over a minute, an hour and a day, as RocketMQ's StatsItem makes them."""

from __future__ import annotations

from engine.protocol.store.stats_items import ITEMS_MAX, KEPT_OF_MINUTE, SECONDS_MS, TOPIC_PUT_NUMS, StatsItems


def test_a_rate_is_that_of_the_last_minute() -> None:
    items = StatsItems()
    for sample in range(KEPT_OF_MINUTE + 5):
        items.add(TOPIC_PUT_NUMS, "t", 100, 10)
        items.sample(sample * SECONDS_MS)
    minute, hour, _day = items.spans(TOPIC_PUT_NUMS, "t") or (None, None, None)
    assert minute is not None and hour is not None
    assert (minute.sum, minute.tps, minute.avgpt) == (600, 10.0, 10.0)
    assert hour.sum == 100, "its one sample was the first"
    assert items.tps(TOPIC_PUT_NUMS, "t") == 10.0
    assert items.spans(TOPIC_PUT_NUMS, "never") is None


def test_a_count_kept_elsewhere_may_begin_anew() -> None:
    items = StatsItems()
    items.set(TOPIC_PUT_NUMS, "t", 50, 5)
    items.set(TOPIC_PUT_NUMS, "t", 3, 1)
    assert items.value(TOPIC_PUT_NUMS, "t") == 50


def test_the_number_of_statistics_items_is_bounded() -> None:
    items = StatsItems()
    for number in range(ITEMS_MAX + 5):
        items.add(TOPIC_PUT_NUMS, str(number), 1)
    assert items.value(TOPIC_PUT_NUMS, str(ITEMS_MAX + 1)) == 0
    assert items.value(TOPIC_PUT_NUMS, "0") == 1
