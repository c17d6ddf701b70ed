"""Deliver times of delay levels."""

from __future__ import annotations

import pytest

from store.message.delay import SCHEDULE_TOPIC, queue_tags_code


@pytest.mark.parametrize(("level", "delay_ms"), [("1", 1000), ("5", 60_000), ("18", 7_200_000), ("99", 7_200_000)])
def test_levels(level: str, delay_ms: int) -> None:
    assert queue_tags_code(SCHEDULE_TOPIC, level, 1_000_000, 7) == 1_000_000 + delay_ms


@pytest.mark.parametrize(
    ("topic", "level"), [("T", "1"), (SCHEDULE_TOPIC, None), (SCHEDULE_TOPIC, "0"), (SCHEDULE_TOPIC, "-1")]
)
def test_everything_else_keeps_its_tags(topic: str, level: str | None) -> None:
    assert queue_tags_code(topic, level, 1_000_000, 7) == 7


@pytest.mark.parametrize("level", ["", " 1", "1_0", "one"])
def test_what_java_does_not_read_as_a_number(level: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        queue_tags_code(SCHEDULE_TOPIC, level, 1_000_000, 7)
