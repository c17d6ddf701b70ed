"""What our broker writes is what RocketMQ writes: byte for byte, over a seeded list of operations of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.trial import run_trial
from tests.interop import rocketmq

COUNT = 1500
NOT_YET = (
    "system flags", "classic batch", "delayed", "half", "half with a delay", "end of transaction", "send back",
    "multi-dispatch", "INNER_NUM by a client", "TIMER_DELAY_SEC by a client", "DELAY by a client", "inner batch",
    "plain to a batch queue",
)  # fmt: skip


@pytest.mark.interop
@pytest.mark.parametrize("features", [False], ids=["plain"])
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_the_same_operations_give_the_same_bytes(tmp_path: Path, version: str, features: bool) -> None:
    reason = rocketmq.missing(version)
    if reason is not None:
        pytest.skip(reason)
    trial = run_trial(tmp_path, version, features=features, seed=20260, count=COUNT, without=NOT_YET)
    print("\n".join(trial.lines))
    assert not trial.differences, "\n".join(trial.lines)
    assert trial.comparison.records > COUNT // 2
    assert trial.comparison.blanks > 1, "the log rolled"
