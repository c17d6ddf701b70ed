"""What fronts and services do, as metrics under names of our own: of RocketMQ's broker there is no such process.

Implements: nothing of RocketMQ's
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.monitoring.series import COUNTER, GAUGE, Series
from engine.shared_memory.cursors import BrokerCounters, FrontCursors
from ipc.counters import Cursor

OF_A_FRONT = (
    (GAUGE, "connections", "Connections to both remoting ports", "connections"),
    (GAUGE, "pulls_held", "Pulls held until a message arrives", "pulls_held"),
    (GAUGE, "sends_in_flight", "Unanswered sends", "sends_in_flight"),
    (GAUGE, "send_wait_milliseconds", "Waiting time of the oldest unanswered send", "send_wait_ms"),
    (GAUGE, "bytes_in_flight", "Bytes of unanswered requests and unread answers", "bytes_in_flight"),
    (COUNTER, "sends", "Messages of clients that were appended", "sends"),
    (COUNTER, "sends_refused", "Sends answered SYSTEM_BUSY", "sends_refused"),
    (COUNTER, "pulls", "Pulls answered", "pulls"),
    (COUNTER, "pulled_messages", "Messages in answers to pulls", "pulled_messages"),
    (COUNTER, "pulled_bytes", "Bytes in answers to pulls", "pulled_bytes"),
)


def series(counters: BrokerCounters, *, is_slave: bool) -> Iterator[Series]:
    """Yield all of them; on a slave, whose services rest, only the fronts'."""
    running = [each for each in enumerate(counters.fronts) if counters.pids[f"front.{each[0]}"].read() > 0]
    for kind, name, what, word in OF_A_FRONT:
        samples = [((str(number),), float(_read(front, word))) for number, front in running]
        yield Series(kind, f"rocketmq_front_{name}", what, ("front",), samples)
    if is_slave:
        return
    delay, transactions = counters.delay, counters.transactions
    for kind, name, what, cursor in (
        (GAUGE, "delay_under_way", "Delayed messages that are being delivered", delay.under_way),
        (COUNTER, "delay_delivered", "Delayed messages that were delivered", delay.delivered),
        (COUNTER, "delay_refused", "Deliveries that the log refused; they are retried", delay.refused),
        (COUNTER, "delay_dropped", "Delayed messages that could not be delivered", delay.dropped),
        (COUNTER, "transaction_checks", "Requests to producers about half messages", transactions.checks),
        (COUNTER, "transaction_put_back", "Half messages that wait for another round", transactions.put_back),
        (COUNTER, "transaction_given_up", "Half messages given up without a decision", transactions.given_up),
    ):
        yield Series(kind, f"rocketmq_{name}", what, (), [((), float(cursor.read()))])


def _read(front: FrontCursors, word: str) -> int:
    cursor: Cursor = getattr(front, word)
    return cursor.read()
