"""What is wrong with a broker, each in a few words with its reason code and what to type next. No questions.

For views that have a line for each, the worst first: what stops the broker, and what is only worth a look.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.monitoring.finding import Finding, Verdict
from engine.monitoring.problems import what_stops
from engine.protocol.ha.policy import SYNC_MASTER
from engine.protocol.ha.wire import ReasonCode
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from store.files import pointer, set_aside
from store.names import CUT_JOURNAL, REPAIR_JOURNAL, REWIND_JOURNAL

if TYPE_CHECKING:
    from engine.monitoring.ha_status import HaStatus

GONE_SECONDS_MAX = 3600  # a slave that was taken away for good is not shown as missing for ever
NO_SLAVE, NOT_FINISHED, TLS_TEST_MODE = "NO_SLAVE", "NOT_FINISHED", "TLS_TEST_MODE"


def findings_of(counters: BrokerCounters, status: HaStatus) -> list[Finding]:
    """Return what is wrong with a broker, whose replication is `status`; [] when all is well. Raises RegionMissing."""
    store = status.store
    light = (*_of_replicas(status), *_of_the_state(counters, store), *_of_journals(Path(store)), *_of_tls(Path(store)))
    return [*what_stops(counters, store, status.role), *light]


def _of_replicas(status: HaStatus) -> Iterator[Finding]:
    look = f"`slipstream ha status {status.store}`"
    if status.role == SYNC_MASTER and status.replicas_needed > 1 + status.in_sync_slaves:
        what = f"{status.in_sync_slaves} slaves in sync, a put waits for {status.replicas_needed - 1}"
        yield Finding(NO_SLAVE, what, f"`slipstream ha explain {status.store}`")
    for one in status.replicas:
        if one.reason == ReasonCode.BEHIND:
            lag = "" if one.lag_seconds is None else f", {one.lag_seconds:,.1f} s,"
            yield Finding(one.reason, f"{one.replica} lacks {one.lag_bytes:,} bytes{lag} too many to be in sync", look)
        elif not one.in_sync:
            what = f"{one.replica} is connected but has not reported for {one.silent_seconds:,.0f} s"
            yield Finding(one.reason, what, look)
    here = {_host(one.peer) for one in status.replicas}
    for gone in status.gone:
        if gone.ended_seconds < GONE_SECONDS_MAX and _host(gone.peer) not in here and gone.reason != ReasonCode.OK:
            yield Finding(gone.reason, f"slave {gone.peer} disconnected {gone.ended_seconds:,.0f} s ago", look)


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]


def _of_the_state(counters: BrokerCounters, store: str) -> Iterator[Finding]:
    if counters.broker_state.read() != BrokerState.RUNNING:
        what = f"this broker is {_state(counters)}"
        then = f"wait: `slipstream status --watch {store}`"
        yield Finding(ReasonCode.STOPPED, what, then, verdict=Verdict.NOT_READY)


def _state(counters: BrokerCounters) -> str:
    state = counters.broker_state.read()
    return BrokerState(state).name if state in list(BrokerState) else "UNKNOWN"


def _of_tls(root: Path) -> Iterator[Finding]:
    """Whether clients are shown a certificate that nobody can verify. Worth a look: it was asked for."""
    broker = pointer.read(root)
    if broker is not None and (file := broker.fields["settings"].get("tlsTestFile")):
        what = f"tls.test.mode.enable=true in {file}: clients cannot verify that this is the right broker"
        yield Finding(TLS_TEST_MODE, what, "set tls.server.certPath and keyPath in it", verdict=Verdict.WELL)


def _of_journals(root: Path) -> Iterator[Finding]:
    """Changes of the log that were interrupted, and not finished because the log has changed since."""
    for name in (REWIND_JOURNAL, CUT_JOURNAL, REPAIR_JOURNAL):
        for path in set_aside.files_of(root / name):
            what = f"an interrupted {name.rpartition('.')[2]} of the log was not finished: the log had changed"
            yield Finding(NOT_FINISHED, what, f"`slipstream log verify {root}`, then remove {path.name}")
