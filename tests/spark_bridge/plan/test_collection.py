"""The collector rests while plans are made, goes on behind them, and stays as a user set it."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from spark_bridge.plan.collection import collector_at_rest, planned_in_peace
from tests.harness.children import exit_code_of


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    gc.enable()


def test_the_collector_rests_and_goes_on_also_behind_an_error():
    @planned_in_peace
    def plan(fails: bool) -> bool:
        if fails:
            raise ValueError("no plan")
        return gc.isenabled()

    assert plan(False) is False
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no plan"):
        plan(True)
    assert gc.isenabled()


def test_the_last_of_several_plans_wakes_the_collector():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_at_rest():
            entered.set()
            assert leave.wait(60)

    thread = threading.Thread(target=other)
    with collector_at_rest():
        thread.start()
        assert entered.wait(60)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with collector_at_rest():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_child_of_a_plan_collects():
    with collector_at_rest():
        pid = os.fork()
        if not pid:
            os._exit(0 if gc.isenabled() else 1)
        assert exit_code_of(pid) == 0
        assert not gc.isenabled()
