"""`slipstream wait` and `stop`, and the end of `broker --detach`: until a broker serves, or why it does not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from engine.monitoring.client_status import are_serving, client_findings
from engine.monitoring.finding import WORST, Verdict
from engine.monitoring.ha_status import HaStatus, of_running
from engine.protocol.ha.wire import ReasonCode
from engine.shared_memory.cursors import BrokerCounters
from ipc.errors import RegionMissing
from store.errors import NoBroker, NotAStore
from store.notes import starting
from store.reading import extent

POLL_SECONDS = 0.1
SERVES = "serves"


class NotInTime(Exception):
    """Raised when a broker did not reach the wanted state in time.

    Next: `slipstream status STORE` says what is wrong; wait longer with `slipstream wait STORE --timeout SECONDS`.
    """

    code = "NOT_IN_TIME"


class NotServed(Exception):
    """Raised when a broker runs, but another program has one of its ports.

    Next: `ss -ltnp` names that program; the broker tries the port again each second.
    """

    code = "NO_LISTENER"


def wait(store: str, wanted: str, timeout: float) -> int:
    """Wait until the broker on STORE serves, or is as `wanted`. Raises NoBroker, NotInTime, NotServed."""
    await_broker(store, wanted, timeout, lambda: False)
    return 0


def await_broker(store: str, wanted: str, timeout: float, has_ended: Callable[[], bool], pid: int = 0) -> bool:
    """Whether it is as `wanted` (serves, ready, well); False once `has_ended`. Only that of `pid`, if given.

    Raises NoBroker, NotInTime, NotServed.
    """
    deadline = time.monotonic() + timeout
    while True:
        ended = has_ended()  # asked first: what it said before its end is there by now
        status = _looked_at(store, pid)
        if status is not None and _is_as(status, wanted):
            return True
        if ended:
            return False
        if time.monotonic() >= deadline:
            raise _too_late(store, wanted, timeout, status)
        time.sleep(POLL_SECONDS)


def _looked_at(store: str, pid: int) -> HaStatus | None:
    """Return None while nobody serves there. Raises NotServed."""
    try:
        running = extent.require_running(store)
        if pid not in (0, running.pid):
            return None
        counters = BrokerCounters.attach(running.region_directory)
    except (NoBroker, NotAStore, RegionMissing):
        return None
    try:
        if not are_serving(counters):
            return None
        for one in client_findings(counters, store):
            if one.reason == ReasonCode.NO_LISTENER:
                raise NotServed(f"{store}: {one.what}; {one.next_step}")
        return of_running(running, counters, store)
    except RegionMissing:
        return None
    finally:
        counters.region.close()


def _is_as(status: HaStatus, wanted: str) -> bool:
    return wanted == SERVES or Verdict[status.verdict] <= WORST[wanted]


def _too_late(store: str, wanted: str, timeout: float, status: HaStatus | None) -> Exception:
    within = f"within {timeout:g} s"
    if status is not None:
        worst = max(status.findings, key=lambda one: one.verdict)
        return NotInTime(f"{store}: the broker is not {wanted} {within}: {worst.what}; next: {worst.next_step}")
    if (note := starting.read(Path(store))) is not None:
        return starting.BrokerStarts(store, note.pid, f"{note.what}; not finished {within}")
    return NoBroker(store, f"no broker serves {within}")


def stop(store: str, timeout: float) -> int:
    """Ask the broker on STORE to stop, and wait for its end. Raises NoBroker, NotInTime, OSError."""
    broker = extent.require_running(store)
    os.kill(broker.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while broker.is_alive():
        if time.monotonic() >= deadline:
            raise NotInTime(f"{store}: process {broker.pid} has not ended within {timeout:g} s; it continues to stop")
        time.sleep(POLL_SECONDS)
    click.echo(f"stopped: process {broker.pid}, store {store}")
    return 0
