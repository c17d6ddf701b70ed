"""A slave that its master's puts wait for (haAckFlushed) flushes at once, whatever its own settings say."""

from __future__ import annotations

import threading

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from tests.engine.keeping.test_flusher import NOW, counters, dispatch, grow, log, role
from tests.harness.logs import SmallLog

__all__ = ["counters", "log"]  # fixtures


def test_a_slave_that_puts_wait_for_flushes_at_once_and_no_other(log: SmallLog, counters: BrokerCounters) -> None:
    slave, master = role(log, counters, is_slave=True), role(log, counters)
    for flusher in (slave, master):
        grow(log, counters, 100)
        dispatch(log, counters)
        flusher.do_work(NOW)  # thorough from the start
    grow(log, counters, 100)
    dispatch(log, counters)
    assert slave.do_work(NOW + 1) == 0
    waiting.publish(counters.flush_at_once, 1)
    assert master.do_work(NOW + 1) == 0, "that is said to slaves"
    assert slave.do_work(NOW + 1) > 0
    assert counters.flushed_offset.read() == log.end
    asleep = threading.Thread(target=slave.idle, args=(600_000,))
    asleep.start()
    grow(log, counters, 100)
    asleep.join(120)
    assert not asleep.is_alive(), "it follows the log"
    waiting.publish(counters.flush_at_once, 0)
    assert slave.do_work(NOW + 1) == 0
    asleep = threading.Thread(target=slave.idle, args=(600_000,))
    asleep.start()
    while asleep.is_alive():
        waiting.publish(counters.flush_at_once, 1 - counters.flush_at_once.read())
        asleep.join(0.05)
