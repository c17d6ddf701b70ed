"""kill -9 of an executor, its Python worker, the source, the driver with all it started: `make kills` does 50."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_bridge.stream_kills import DRIVER_ALL, EXECUTOR, SOURCE, WORKER, run

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def test_every_acknowledged_message_is_one_row_whatever_is_killed(tmp_path: Path) -> None:
    outcome = run(tmp_path, [WORKER, EXECUTOR, SOURCE, DRIVER_ALL], seed=2)
    assert len(outcome.kills) == 4
    assert outcome.starts >= 3, "the first, the one after the kill, the last"
    assert outcome.segments > 1
    assert len(outcome.sent) > 1000
    assert (outcome.missing, outcome.repeated) == (0, 0)
