"""No sequence of promotions, freezes, cuts and restarts leaves two masters; the test is shown to be able to fail."""

from __future__ import annotations

import pytest

from engine.protocol.ha import reign
from engine.protocol.ha.reign import Step, Verdict, Watch
from tests.simulation.reigns import TwoMasters, play

SEEDS = range(120)


def test_one_master_is_left_and_two_are_never_longer_than_the_window() -> None:
    groups = [play(seed) for seed in SEEDS]
    assert sum(one.promotions for one in groups) > len(SEEDS)
    assert sum(one.steps_down for one in groups) > len(SEEDS) // 2


def _never_asks_again(_self: Watch, _now_ms: int, _connected: int, _met: int, *, asks_first: bool) -> bool:
    return asks_first


def _serves_at_once(_self: Watch, _now_ms: int, _verdicts: list[Verdict], *, asks_first: bool) -> Step:
    return Step.SERVE if asks_first else Step.STAY


@pytest.mark.parametrize(
    "mutant", ["asks only when promoted", "never steps down", "gives way to an older epoch", "both give way"]
)
def test_without_each_rule_there_are_two_masters_or_no_master(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    judged = reign._takes_precedence
    match mutant:
        case "asks only when promoted":
            monkeypatch.setattr(Watch, "is_due", _never_asks_again)
        case "never steps down":
            monkeypatch.setattr(Watch, "step", _serves_at_once)
        case "gives way to an older epoch":
            monkeypatch.setattr(reign, "_takes_precedence", lambda one, other: not judged(one, other))
        case "both give way":
            monkeypatch.setattr(reign, "_takes_precedence", lambda one, other: one.epoch >= other.epoch)
    with pytest.raises(TwoMasters):
        for seed in SEEDS:
            play(seed)
