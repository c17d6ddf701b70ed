"""Rate and lag of a streaming query, from the progress that Spark reports: as Kafka's source counts them.

    lag(query.lastProgress).rows_behind        also in a StreamingQueryListener: lag(event.progress)

Spark lets a Python source report where its queues end (`latestOffset`), not metrics of its own; the rest is arithmetic.
What becomes of commits to a consumer group stands beside the topics there, under a name that no topic can have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_bridge.stream.offsets import Offsets, from_json

COMMITS = "commitGroup:"  # and the group


@dataclass(frozen=True)
class Lag:
    """The lag of one source of a query. Rates are rows a second.

    With `commitGroup`: how many commits failed since the query began, how many queues are not committed.
    """

    rows_behind: int = 0
    queues_behind: Mapping[str, int] = field(default_factory=dict)
    input_rate: float = 0.0
    processed_rate: float = 0.0
    batch_ms: int = 0
    commit_failures: int = 0
    commits_held_back: int = 0

    @property
    def metrics(self) -> dict[str, str]:
        """Under the names that Kafka's source has for them."""
        behind = list(self.queues_behind.values()) or [0]
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }

    @property
    def seconds_behind(self) -> float:
        """Return how long it takes to catch up at the rates of this batch; infinite when it falls behind."""
        if not self.rows_behind:
            return 0.0
        gained = self.processed_rate - self.input_rate
        return self.rows_behind / gained if gained > 0 else float("inf")


def lag(progress: Any, source: int = 0) -> Lag:
    """Lag and rate of one source; zeros before there is any progress."""
    fields = json.loads(progress.json) if hasattr(progress, "json") else progress
    if not fields:
        return Lag()
    of_source = fields["sources"][source]
    latest, end = _object(of_source.get("latestOffset")), _offsets(of_source.get("endOffset"))
    commits: Mapping[str, int] = next((latest.pop(name) for name in list(latest) if name.startswith(COMMITS)), {})
    behind = {str(key): max(0, offset - end.get(key, 0)) for key, offset in _offsets(latest).items()}
    return Lag(
        rows_behind=sum(behind.values()),
        queues_behind=behind,
        input_rate=float(of_source.get("inputRowsPerSecond") or 0.0),
        processed_rate=float(of_source.get("processedRowsPerSecond") or 0.0),
        batch_ms=int(fields.get("batchDuration") or 0),
        commit_failures=int(commits.get("failures", 0)),
        commits_held_back=int(commits.get("heldBack", 0)),
    )


def with_commits(latest: Mapping[str, Any], group: str, figures: Mapping[str, int]) -> dict[str, Any]:
    """`latestOffset` with what became of commits to that group."""
    return {**latest, f"{COMMITS}{group}": dict(figures)}


def _object(value: Any) -> dict[str, Any]:
    """A field of the progress; as text in some versions of Spark."""
    return dict((json.loads(value) if isinstance(value, str) else value) or {})


def _offsets(value: Any) -> Offsets:
    """The offsets of one field, whichever of both shapes."""
    offsets = _object(value)
    if not offsets:
        return {}
    queues = next(iter(offsets.values()))
    by_store = any(isinstance(inner, Mapping) for inner in queues.values())
    return from_json(offsets, by_store)
