"""Times of datetime become RocketMQ's milliseconds without a float between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ipc.clock import EPOCH, ms_of

WHICH_A_FLOAT_MISSES = [ms for ms in range(1 << 20) if int(ms * 1000 / 10**6 * 1000) != ms]


def test_each_millisecond_comes_back_also_where_a_float_rounds_it_down() -> None:
    assert WHICH_A_FLOAT_MISSES
    for ms in WHICH_A_FLOAT_MISSES:
        assert ms_of(EPOCH + timedelta(milliseconds=ms)) == ms


@pytest.mark.parametrize("microsecond", [0, 1, 999])
def test_a_part_of_a_millisecond_counts_as_none_of_it(microsecond: int) -> None:
    assert ms_of(datetime(1970, 1, 1, 0, 0, 1, 5000 + microsecond, UTC)) == 1005
    assert ms_of(datetime(1969, 12, 31, 23, 59, 59, 995000 + microsecond, UTC)) == -5


def test_zones_count() -> None:
    assert ms_of(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
