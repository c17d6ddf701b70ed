"""Metrics of more samples than they may have, and names of versions."""

from __future__ import annotations

import pytest

from engine.monitoring.series import bounded
from engine.protocol.remoting.versions import version_name

SAMPLES = [((str(number),), float(number)) for number in range(10)]


@pytest.mark.parametrize(
    ("name", "most", "rest"),
    [("lag_messages", 10, None), ("lag_messages", 9, 9.0), ("lag_messages", 2, 44.0), ("lag_milliseconds", 2, 9.0)],
)
def test_what_is_too_much_is_one_sample(name: str, most: int, rest: float | None) -> None:
    assert bounded(name, SAMPLES, most) == (SAMPLES[:most], rest)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "V3_0_0_SNAPSHOT"), (407, "V4_9_7"), (479, "V5_3_3"), (611, "V5_9_9"), (612, "HIGHER_VERSION"),
     (-1, "HIGHER_VERSION"), (1 << 31, "HIGHER_VERSION"), (79, "V3_2_6")],
)  # fmt: skip
def test_versions_have_mqversions_names(number: int, name: str) -> None:
    assert version_name(number) == name
