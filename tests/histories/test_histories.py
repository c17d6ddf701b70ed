"""Histories at a broker of ours, one without kills and one with each kind of them; `make histories` plays more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.histories.checker import LOCK_MS, History, Offset, faults, said_again, together_after_deaths
from tests.histories.run import TARGETS, Play
from tests.interop import needs
from tests.interop.clients import REAL_OF


@pytest.mark.crash
@pytest.mark.interop
@pytest.mark.peer
@pytest.mark.parametrize(("kind", "seed", "kills"), [("ours 4.9", 1, 0), ("ours 5", 2, 5), ("ours 4.9", 3, 5)])
def test_a_history_keeps_what_it_must(kind: str, seed: int, kills: int, tmp_path: Path) -> None:
    needs.need([REAL_OF[kind]])
    targets = tuple(random.Random(seed).sample(TARGETS, kills))
    history = Play(tmp_path, kind, seed, targets, seconds=4.0).run()
    assert faults(history) == []
    for of in ("plain", "order", "delay", "decide"):
        assert any(one.kind == of for one in history.got), f"no message of {of} came"
    assert history.spans and history.offsets
    print(f"{kind}, seed {seed}, {history.kills}: {len(history.got)} delivered, {history.duplicates()} of them again")


def some_history() -> History:
    """Everything as it has to be."""
    history = History()
    for n, kind in ((0, "plain"), (1, "plain"), (1_000_000, "order"), (2_000_000, "delay"), (3_000_000, "decide")):
        place = {"queue": 0, "offset": n % 10, "at": 1000 + n % 10, "kind": kind, "n": n}
        history.add("producer", {"e": "sent", "begun": 1000 + n % 10, "status": "SEND_OK", **place})
        history.add("one", {"e": "in", "queue": 0, "at": 4000 + n % 10})
        history.add("one", {"e": "got", "times": 0, **place, "at": 4000 + n % 10})
        history.add("one", {"e": "out", "queue": 0, "at": 4001 + n % 10})
    history.add("producer", {"e": "sent", "begun": 1, "at": 2, "kind": "decide", "n": 3_000_001, "status": "SEND_OK",
                             "queue": 0, "offset": 1})  # fmt: skip
    return history


def again(history: History, number: int, **changes: object) -> None:
    """One more delivery."""
    known = next(one for one in history.got if one.n == number)
    history.got.append(known._replace(**changes))


def test_the_checker_sees_every_fault() -> None:
    assert faults(some_history()) == []
    for name in (
        "lost",
        "again",
        "early",
        "rolled back",
        "disordered",
        "stored",
        "together",
        "back",
        "twice",
        "unanswered",
    ):
        history = some_history()
        match name:
            case "lost":
                del history.got[0]
            case "again":
                again(history, 0, at=5000)
            case "early":
                history.got[3] = history.got[3]._replace(at=1500)
            case "rolled back":
                again(history, 3_000_000, n=3_000_001, offset=1)
            case "disordered":
                history.got[2] = history.got[2]._replace(offset=7)
            case "stored":
                history.sent[1] = history.sent[1]._replace(offset=0)
            case "together":
                history.spans.append(history.spans[0]._replace(member="other"))
            case "back":
                for offset in (5, 4):
                    history.offsets.append(Offset("group", 0, offset, 0))
            case "twice":
                history.kills.append("broker")
                again(history, 3_000_000, offset=8)
            case _:
                history.sent[0] = history.sent[0]._replace(status=None)
        assert len(faults(history)) == 1, (name, faults(history))
    history = some_history()
    again(history, 0, at=5000)
    history.kills.append("front.0")
    assert faults(history) == [] and history.duplicates() == 1


def test_what_a_consumer_says_again_after_its_brokers_death_is_no_offset_that_went_back() -> None:
    said = ((30, 0), (40, 0), (25, 1), (60, 1), (40, 1), (50, 1), (60, 1))  # offset, life; the file said 25
    offsets = [Offset("group", 0, offset, life) for offset, life in said]
    history = History(offsets=offsets)
    assert (faults(history), said_again(offsets)) == ([], 2)
    history.offsets = [*offsets[:2], Offset("group", 0, 39, 0), *offsets[2:]]
    assert len(faults(history)) == 1


def test_two_owners_of_an_orderly_queue_are_no_fault_while_locks_are_forgotten() -> None:
    history = some_history()
    history.spans.append(history.spans[0]._replace(member="other"))
    ended = history.spans[0].ended
    for died, is_fault in ((ended - LOCK_MS, True), (ended - 1, False), (ended + 1, True)):
        history.deaths = [died]
        assert (bool(faults(history)), together_after_deaths(history)) == (is_fault, not is_fault)
