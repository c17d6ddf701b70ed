"""Lag over the last quarter of an hour: a few figures every five seconds, in memory of a size that does not grow.

Sampled as long as the console runs, so that a page that is opened has a past to show.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.monitoring.ha_status import ha_status
from ipc.clock import wall_ms
from tools.show.clients import overview
from tools.web.state.asked import Watched

Json = dict[str, Any]
EVERY_SECONDS, MINUTES = 5.0, 15
POINTS = int(MINUTES * 60 / EVERY_SECONDS)
MARKS_MAX, CURVES_MAX, GROUPS_MAX = 60, 64, 40
GROUPS_EVERY = 2  # groups are asked of the broker: every second time


@dataclass
class Curve:
    """One replica's or group's; points are (time, lag in bytes or messages, lag in seconds), marks (time, reason)."""

    kind: str
    points: deque[tuple[int, float | None, float | None]] = field(default_factory=lambda: deque(maxlen=POINTS))
    marks: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MARKS_MAX))
    reason: str = ""

    def add(self, now_ms: int, lag: float | None, seconds: float | None, reason: str) -> None:
        """Add a sample, and a mark where the reason changed."""
        if reason != self.reason and (reason != "OK" or self.reason):
            self.marks.append((now_ms, reason))
        self.reason = reason
        self.points.append((now_ms, lag, seconds))


class History:
    """Lag curves of one store."""

    def __init__(self) -> None:
        self._lock, self._curves = threading.Lock(), dict[str, Curve]()
        self.error = ""

    def add(self, name: str, kind: str, now_ms: int, lag: float | None, seconds: float | None, reason: str) -> None:
        """Add a sample to a curve; for a new one, the curve that was silent longest is removed."""
        with self._lock:
            if name not in self._curves and len(self._curves) >= CURVES_MAX:
                del self._curves[min(self._curves, key=lambda one: self._curves[one].points[-1][0])]
            self._curves.setdefault(name, Curve(kind)).add(now_ms, lag, seconds, reason)

    def end_others(self, kind: str, names: set[str], now_ms: int, reasons: dict[str, str]) -> None:
        """Curves that have no value any more get a gap, and why; those without any left are forgotten."""
        with self._lock:
            for name, curve in list(self._curves.items()):
                if curve.kind == kind and name not in names:
                    curve.add(now_ms, None, None, reasons.get(name, "GONE"))
                    if len(curve.points) == POINTS and all(point[1] is None for point in curve.points):
                        del self._curves[name]

    def shown(self) -> list[Json]:
        """Return all curves, replicas first."""
        with self._lock:
            return [
                {
                    "name": name, "kind": curve.kind, "reason": curve.reason, "points": list(curve.points),
                    "marks": list(curve.marks),
                }
                for name, curve in sorted(self._curves.items(), key=lambda item: (item[1].kind != "replica", item[0]))
            ]  # fmt: skip


class Sampling:
    """The thread that looks at all stores."""

    def __init__(self, stores: Sequence[Watched]) -> None:
        self._stores, self._stop = stores, threading.Event()
        self.histories = [History() for _ in stores]
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def start(self) -> None:
        """Start the thread that samples."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is asked just now is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            for watched, history in zip(self._stores, self.histories, strict=True):
                look(watched, history, with_groups=turn % GROUPS_EVERY == 0)
            turn += 1
            self._stop.wait(EVERY_SECONDS)


def look(watched: Watched, history: History, *, with_groups: bool) -> None:
    """Take one sample of one store; the page shows an error."""
    parts = [("replica", _add_replicas)] + ([("group", _add_groups)] if with_groups else [])
    now_ms, errors = wall_ms(), []
    for kind, add in parts:
        try:
            add(watched, history, now_ms)
        except Exception as error:
            errors.append(" ".join(f"{getattr(error, 'code', type(error).__name__)}: {error}".split()))
            history.end_others(kind, set(), now_ms, {})
    history.error = errors[0] if errors else ""


def _add_replicas(watched: Watched, history: History, now_ms: int) -> None:
    status, names = ha_status(watched.path), set()
    for one in status.replicas:
        name = one.replica or one.peer
        names.add(name)
        history.add(name, "replica", now_ms, one.lag_bytes, one.lag_seconds, one.reason)
    ended = {name: status.gone[0].reason for name in _known(history, "replica") - names if status.gone}
    history.end_others("replica", names, now_ms, ended)


def _add_groups(watched: Watched, history: History, now_ms: int) -> None:
    said = overview(str(watched.path))["groups"]
    groups = [(group["group"], *_lag_of(group["queues"]), group["members"]) for group in said]
    largest = sorted(groups, key=lambda one: one[1], reverse=True)[:GROUPS_MAX]
    for name, lag, seconds, members in largest:
        history.add(name, "group", now_ms, lag, seconds, "OK" if members else "NO_MEMBER")
    history.end_others("group", {one[0] for one in largest}, now_ms, {})


def _lag_of(queues: Sequence[Json]) -> tuple[int, float]:
    return sum(one["lag"] for one in queues), max((one["lagSeconds"] for one in queues), default=0.0)


def _known(history: History, kind: str) -> set[str]:
    return {curve["name"] for curve in history.shown() if curve["kind"] == kind}


def curves_of(histories: Sequence[History]) -> Iterator[tuple[int, list[Json], str]]:
    """(store, curves, error) of all."""
    for number, history in enumerate(histories):
        yield number, history.shown(), history.error
