"""Flow control: a window of one second."""

from __future__ import annotations

from engine.protocol.ha.flow_monitor import FlowMonitor


def test_what_is_left_of_the_window() -> None:
    flow = FlowMonitor(now_ms=10_000, limit=100)
    flow.add(60)
    assert (flow.allowed_bytes(), flow.wait_ms(10_400)) == (40, 0)
    flow.add(60)
    assert (flow.allowed_bytes(), flow.wait_ms(10_400)) == (0, 600)


def test_a_new_window_begins_after_a_second() -> None:
    flow = FlowMonitor(now_ms=0, limit=100)
    flow.add(100)
    flow.turn(999)
    assert flow.allowed_bytes() == 0
    flow.turn(1000)
    assert (flow.allowed_bytes(), flow.transferred_bytes_in_second) == (100, 100)


def test_a_silent_second_counts_as_nothing() -> None:
    flow = FlowMonitor(now_ms=0)
    flow.add(100)
    flow.turn(5000)
    assert flow.transferred_bytes_in_second == 0


def test_a_clock_that_goes_back_does_not_stop_the_transfer() -> None:
    flow = FlowMonitor(now_ms=100_000, limit=1)
    flow.add(1)
    flow.turn(50_000)
    assert flow.allowed_bytes() == 1
