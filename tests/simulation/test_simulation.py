"""Four hundred seeds: whatever happens to a master, its slaves, and the network between them, what was promised holds.

`python -m tests.simulation --seed N` plays one seed again; `make simulate` plays many more.
"""

from __future__ import annotations

import pytest

from tests.simulation import scenario

SEEDS, SHARE = 400, 50


@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_no_promise_is_broken(first: int) -> None:
    acknowledged = sum(scenario.play(seed).acknowledged for seed in range(first, first + SHARE))
    assert acknowledged > SHARE * 20, "hardly a put was answered: nothing was tried"


def test_the_same_seed_is_the_same_play() -> None:
    plays = [scenario.Play(7) for _ in range(2)]
    outcomes = [play.run() for play in plays]
    assert outcomes[0] == outcomes[1]
    assert plays[0].world.lines == plays[1].world.lines
    assert plays[0].cluster.leader.log.data == plays[1].cluster.leader.log.data
