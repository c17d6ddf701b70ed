"""Moments as they are typed and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.common import moments
from tools.common.moments import LATEST_MS, moment_ms, time_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(("typed", "milliseconds"), [
    ("1700000000123", NOW_MS + 123), ("0", 0), ("-90s", NOW_MS - 90_000), ("-30m", NOW_MS - 1_800_000),
    ("-1h", NOW_MS - 3_600_000), ("-2d", NOW_MS - 172_800_000), ("-1w", NOW_MS - 604_800_000), ("-5ms", NOW_MS - 5),
    ("-0s", NOW_MS), ("-999999999999w", 0), ("2023-11-14T22:13:20Z", NOW_MS), ("2023-11-14T22:13:20", NOW_MS),
    ("2023-11-14 23:13:20.250+01:00", NOW_MS + 250), ("2023-11-14", NOW_MS - 80_000_000), (" -1h ", NOW_MS - 3_600_000),
])  # fmt: skip
def test_what_may_be_typed(typed: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "wall_ms", lambda: NOW_MS)
    assert moment_ms(typed) == milliseconds


@pytest.mark.parametrize("typed", ["", "-", "-1", "-1y", "-h", "1h", "soon", "2023-13-01", "-1.5h", "+1h", "\uff19"])
def test_what_is_no_time(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a time; give 2026-"):
        moment_ms(typed)


@given(st.integers(0, LATEST_MS))
def test_what_is_shown_may_be_typed_again(milliseconds: int) -> None:
    assert moment_ms(time_text(milliseconds)) == milliseconds
    assert " " not in time_text(milliseconds)


def test_a_time_that_no_calendar_has() -> None:
    assert (time_text(-1), time_text(LATEST_MS + 1)) == ("-1 ms", f"{LATEST_MS + 1} ms")
