"""What our broker writes is what RocketMQ writes: byte for byte, over a seeded list of operations of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.trial import run_trial
from tests.interop import needs, rocketmq

COUNT = 1500  # `make differential` runs 10^5 of each version


@pytest.mark.interop
@pytest.mark.parametrize("features", [False, True], ids=["plain", "features"])
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_the_same_operations_give_the_same_bytes(tmp_path: Path, version: str, features: bool) -> None:
    needs.need([version])
    trial = run_trial(tmp_path, version, features=features, seed=20260, count=COUNT)
    print("\n".join(trial.lines))
    assert not trial.differences, "\n".join(trial.lines)
    assert trial.comparison.records > COUNT
    assert trial.comparison.blanks > 1, "the log rolled"
