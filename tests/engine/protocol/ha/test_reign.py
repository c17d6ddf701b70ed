"""Who of two masters goes on, from the same facts at both, and what a claim has to prove."""

from __future__ import annotations

import itertools
import random

import pytest

from engine.protocol.ha import reign
from engine.protocol.ha.reign import GAP_MS, HOLD_MS, RANGE_BYTES_MAX, Extent, Hold, Standing, Step, Verdict, Watch
from store.epochs import Epoch

FIRST = Epoch(1, 0, "pair:0", 1)
OF_B, OF_C = Epoch(2, 500, "pair:1", 2), Epoch(2, 700, "pair:2", 2)


def standing(*entries: Epoch, is_master: bool = True, is_confirmed: bool = True, run: str = "") -> Standing:
    return Standing(entries, is_master, is_confirmed, run)


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        (standing(FIRST), standing(FIRST, OF_B), Verdict.UNPROVEN),
        (standing(FIRST, OF_B), standing(FIRST), Verdict.OLDER),
        (standing(FIRST), standing(FIRST, OF_B, is_master=False), Verdict.NOBODY),
        (standing(FIRST, run="x"), standing(FIRST, OF_B, run="x"), Verdict.NOBODY),
        (standing(FIRST), standing(FIRST), Verdict.EQUAL),
        (standing(), standing(), Verdict.EQUAL),
        (standing(FIRST, OF_B), standing(FIRST, OF_C), Verdict.UNPROVEN),  # its log was longer
        (standing(FIRST, OF_B), standing(FIRST, OF_C, is_confirmed=False), Verdict.OLDER),  # it takes no messages yet
    ],
)
def test_what_another_master_is_to_this_one(own: Standing, other: Standing, verdict: Verdict) -> None:
    assert reign.judge(own, other, is_proved=False) is verdict
    obeyed = Verdict.YIELD if verdict is Verdict.UNPROVEN else verdict
    assert reign.judge(own, other, is_proved=True) is obeyed, "proved, a claim is obeyed; nothing else changes"


def test_exactly_one_of_two_differing_masters_goes_on() -> None:
    entries = [
        (),
        (FIRST,),
        (FIRST, OF_B),
        (FIRST, OF_C),
        (FIRST, Epoch(2, 500, "pair:2", 2)),
        (FIRST, Epoch(3, 1, "pair:2", 2)),
    ]
    standings = [standing(*some, is_confirmed=is_confirmed) for some in entries for is_confirmed in (False, True)]
    for one, other in itertools.permutations(standings, 2):
        verdicts = {reign.judge(one, other, is_proved=True), reign.judge(other, one, is_proved=True)}
        same = one.entries[-1:] == other.entries[-1:]
        assert verdicts == ({Verdict.EQUAL} if same else {Verdict.YIELD, Verdict.OLDER}), (one, other)


def test_a_promoted_master_asks_again_where_another_must_step_down_or_has_not_proved_itself() -> None:
    for verdict in (Verdict.OLDER, Verdict.UNPROVEN):
        watch = Watch(0, may_step_down=True)
        assert watch.step(HOLD_MS - 1, [verdict], asks_first=True) is Step.STAY
        assert watch.step(HOLD_MS, [verdict], asks_first=True) is Step.SERVE, "it waits no longer"
        assert watch.step(HOLD_MS, [verdict, Verdict.YIELD], asks_first=True) is Step.STEP_DOWN
    assert Watch(0, may_step_down=True).step(1, [], asks_first=True) is Step.SERVE


def test_a_history_that_lacks_one_of_our_reigns_is_no_continuation() -> None:
    assert reign.fits((FIRST,), (FIRST, OF_B))
    assert reign.fits((FIRST, OF_B), (FIRST, OF_C)), "our last one, of which it may not have heard"
    assert not reign.fits((FIRST, OF_B), (Epoch(1, 9, "pair:7", 1), OF_C))
    assert reign.fits((FIRST, OF_B), (OF_C,)), "it has forgotten the oldest ones"


def test_what_is_compared_ends_where_a_reign_begins_that_only_one_knows() -> None:
    own, its = Extent(0, 600), Extent(100, 900)
    assert reign.common_range((FIRST,), (FIRST, OF_B), own, its) == Extent(100, 500)
    assert reign.common_range((FIRST, OF_B), (FIRST, OF_C), own, its) == Extent(100, 500)
    assert reign.common_range((FIRST,), (FIRST, Epoch(2, 5000, "x", 1)), own, its) == Extent(100, 600)
    assert reign.common_range((), (Epoch(1, 50, "x", 1),), own, its) == Extent(100, 100), "nothing in common"


def test_ranges_lie_in_what_is_common_and_one_ends_with_it() -> None:
    dice = random.Random(1)
    for _ in range(200):
        low, size = dice.randrange(1 << 30), dice.choice((1, 2, 1000, RANGE_BYTES_MAX, 1 << 25))
        common = Extent(low, low + size)
        ranges = reign.chosen_ranges(common, dice)
        assert all(common.low <= one.low < one.high <= common.high for one in ranges)
        assert all(one.high - one.low <= RANGE_BYTES_MAX for one in ranges)
        assert ranges[0].high == common.high
    assert reign.chosen_ranges(Extent(7, 7), dice) == []


def test_a_master_that_stood_still_takes_no_messages_before_it_has_asked_or_waited() -> None:
    hold, watch = Hold(), Watch(0, may_step_down=True)
    assert [hold.begins(now) for now in (7_000_000, 7_000_000 + GAP_MS)] == [False, False], "its first turns"
    woken = 7_000_001 + 2 * GAP_MS
    assert hold.begins(woken) and hold.since_ms == woken
    assert not hold.begins(woken + 1000) and hold.lasts(woken + 1000, woken - 1, is_fenced=False), "asked before"
    assert watch.is_due(woken, 1, 1, asks_first=True), "though it sees its slave"
    assert not hold.lasts(woken + 1001, woken, is_fenced=False) and not hold.since_ms
    assert hold.begins(woken + 9000)
    assert hold.lasts(woken + 9000 + HOLD_MS, 0, is_fenced=True), "a newer master has proved itself"
    assert not hold.lasts(woken + 9000 + HOLD_MS, 0, is_fenced=False), "nobody asks"
