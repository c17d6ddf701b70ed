"""How often a front looks at the clock: counted, in virtual time, and by what comes to a front that serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.front.connections import pace
from engine.front.connections.pace import NEVER_MS, QUIET_MS, TURN_MS, Pace
from engine.protocol.remoting.codes import RequestCode
from engine.role import IDLE_MS_MAX
from tests.engine.front.connections.test_front import UNKNOWN, hang_up, staged
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient as Client

__all__ = ["hang_up"]  # a fixture
HOUR_MS, SWEEP_MS, IDLE_MS = 3_600_000, 5000, IDLE_MS_MAX


class World:
    """A front that serves for as long as it may, in virtual time."""

    def __init__(self) -> None:
        self.now_ms = self.turns = self.woken = 0
        self.pace = Pace(self._wake, lambda: self.now_ms)

    def _wake(self) -> None:
        self.woken += 1

    def until(self, end_ms: int, rest_ms: int) -> int:
        """How many turns it has by then."""
        before = self.turns
        while self.now_ms < end_ms:
            self.now_ms += min(IDLE_MS, self.pace.wait_ms(rest_ms))
            self.turns += 1
        return self.turns - before


def test_a_front_with_nothing_to_do_sleeps_as_long_as_a_role_may() -> None:
    world = World()
    assert world.until(QUIET_MS, NEVER_MS) == QUIET_MS // TURN_MS
    assert world.until(QUIET_MS + HOUR_MS, NEVER_MS) == HOUR_MS // IDLE_MS
    assert world.woken == 0


def test_a_front_with_puts_under_way_looks_at_every_turn() -> None:
    world = World()
    assert world.until(HOUR_MS, 0) == HOUR_MS // TURN_MS


def test_an_event_ends_a_rest_once_and_the_front_stays_awake_for_a_while() -> None:
    world = World()
    world.until(HOUR_MS, NEVER_MS)
    for _ in range(3):
        world.pace.stir()
    assert world.woken == 1
    began_ms = world.now_ms
    assert world.until(began_ms + QUIET_MS, NEVER_MS) == QUIET_MS // TURN_MS
    assert world.until(began_ms + QUIET_MS + 10 * IDLE_MS, NEVER_MS) <= 11
    world.pace.stir()
    assert world.woken == 2


def test_a_rest_ends_when_something_is_due() -> None:
    world = World()
    world.until(QUIET_MS + TURN_MS, NEVER_MS)
    assert (world.pace.wait_ms(400), world.pace.wait_ms(TURN_MS // 2), world.pace.wait_ms(-SWEEP_MS)) == (
        400,
        TURN_MS,
        TURN_MS,
    )


def test_what_is_handed_on_ends_no_rest_and_what_a_front_serves_does(
    region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "QUIET_MS", 0)
    with staged(region_dir) as stage, stage.clients() as clients:
        woken: list[int] = []
        wake = stage.front._pace._wake
        monkeypatch.setattr(stage.front._pace, "_wake", lambda: woken.append(1) or wake())  # type: ignore[func-returns-value]
        client = Client(stage.port)
        client.ask(UNKNOWN)  # which begins the connection
        served = RequestCode.PULL_MESSAGE
        for code, times in ((served, 1), (RequestCode.HEART_BEAT, 0), (UNKNOWN, 0), (served, 1)):
            await_that(lambda: stage.front._pace.rests, "the front rests")
            woken.clear()
            client.ask(code)
            assert len(woken) == times, code
        assert clients is not None
