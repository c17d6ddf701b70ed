"""Two hundred seeds: whatever happens to a master, its slaves, and the network between them, what was promised holds.

`python -m tests.simulation --seed N` plays one seed again; `make simulate` plays many more.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation import scenario
from tests.simulation.faults import Faults
from tests.simulation.referee import Broken

SEEDS, SHARE = 200, 50


@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_no_promise_is_broken(first: int) -> None:
    acknowledged = sum(scenario.play(seed).acknowledged for seed in range(first, first + SHARE))
    assert acknowledged > SHARE * 20, "hardly a put was answered: nothing was tried"


def test_a_play_that_fails_is_cut_down_to_the_faults_that_make_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise that this test invents: no slave is killed after a connection was held up."""
    seen = list[str]()
    happen = Faults.happen

    def noted(faults: Faults, kinds: tuple[str, ...]) -> None:
        before = len(faults.happened)
        happen(faults, kinds)
        if len(faults.happened) > before:  # what a fault does may tell more than its name
            seen.append(next(line.split()[-1] for line in reversed(faults.world.lines) if " fault " in line))
        if "hold" in seen and "kill_slave" in seen[seen.index("hold") :]:
            raise Broken("never both", "it held, and was killed")

    def begun(*arguments: Any) -> None:
        seen.clear()
        play_of(*arguments)

    play_of = scenario.Play.__init__
    monkeypatch.setattr(scenario.Play, "__init__", begun)
    monkeypatch.setattr(Faults, "happen", noted)
    failed = next(filter(None, (scenario._failure_of(seed, range(1000)) for seed in range(100))))
    least = scenario.shortest(failed)
    assert (len(failed.faults) > 2, len(least.faults), least.rule) == (True, 2, "never both")
    assert f"--seed {least.seed} --faults {','.join(map(str, least.faults))}" in str(least)
    again = scenario._failure_of(least.seed, least.faults)
    assert again is not None and str(again) == str(least)


def test_the_same_seed_is_the_same_play() -> None:
    plays, outcomes = [], []
    for _ in range(2):  # one after the other: they use the same counters
        plays.append(scenario.Play(7))
        outcomes.append(plays[-1].run())
    assert outcomes[0] == outcomes[1]
    assert plays[0].world.lines == plays[1].world.lines
    assert plays[0].cluster.leader.log.data == plays[1].cluster.leader.log.data
