"""Flow control: a window of one second."""

from __future__ import annotations

from engine.protocol.ha.flow_kernel import FlowWord
from engine.protocol.ha.flow_monitor import UNLIMITED, FlowMonitor


def test_the_allowed_bytes_of_a_window_grow_step_by_step() -> None:
    flow = FlowMonitor(now_ms=10_000, limit=100)
    flow.add(2)
    assert (flow.allowed_bytes(), flow.wait_ms(10_007)) == (0, 13)
    flow.turn(10_020)
    assert (flow.allowed_bytes(), flow.wait_ms(10_020)) == (2, 0)
    flow.turn(10_400)
    assert flow.allowed_bytes() == 40
    flow.add(60)
    assert (flow.allowed_bytes(), flow.wait_ms(10_400)) == (0, 20)
    flow.add(60)
    flow.turn(10_990)
    assert (flow.allowed_bytes(), flow.wait_ms(10_990)) == (0, 10)


def test_another_bound_counts_at_once() -> None:
    flow = FlowMonitor(now_ms=0, limit=1000)
    flow.bound(50)
    assert flow.allowed_bytes() == 1
    flow.bound(UNLIMITED)
    assert flow.allowed_bytes() > 1 << 50


def test_a_new_window_begins_after_a_second() -> None:
    flow = FlowMonitor(now_ms=0, limit=100)
    flow.add(100)
    flow.turn(999)
    assert flow.allowed_bytes() == 0
    flow.turn(1000)
    assert flow.allowed_bytes() == 2
    assert flow.words[FlowWord.IN_LAST_WINDOW] == 100


def test_a_silent_second_counts_as_nothing() -> None:
    flow = FlowMonitor(now_ms=0)
    flow.add(100)
    flow.turn(5000)
    assert flow.words[FlowWord.IN_LAST_WINDOW] == 0


def test_a_clock_that_goes_back_does_not_stop_the_transfer() -> None:
    flow = FlowMonitor(now_ms=100_000, limit=1)
    flow.add(1)
    flow.turn(50_000)
    assert flow.allowed_bytes() == 1
