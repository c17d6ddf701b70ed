"""Rate and lag of a streaming query, from the progress that Spark reports: as Kafka's source counts them.

    lag(query.lastProgress).rows_behind        also in a StreamingQueryListener: lag(event.progress)

Spark lets a Python source report where its queues end (`latestOffset`), not metrics of its own; the rest is arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_bridge.stream.offsets import Offsets, from_json


@dataclass(frozen=True)
class Lag:
    """How far behind one source of a query is. Rates are rows a second."""

    rows_behind: int = 0
    queues_behind: Mapping[str, int] = field(default_factory=dict)
    input_rate: float = 0.0
    processed_rate: float = 0.0
    batch_ms: int = 0

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
        """How long it takes to catch up at the rates of this batch; infinite when it falls behind."""
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
    latest, end = _offsets(of_source.get("latestOffset")), _offsets(of_source.get("endOffset"))
    behind = {str(key): max(0, offset - end.get(key, 0)) for key, offset in latest.items()}
    return Lag(
        rows_behind=sum(behind.values()),
        queues_behind=behind,
        input_rate=float(of_source.get("inputRowsPerSecond") or 0.0),
        processed_rate=float(of_source.get("processedRowsPerSecond") or 0.0),
        batch_ms=int(fields.get("batchDuration") or 0),
    )


def _offsets(value: Any) -> Offsets:
    """The offsets of one field, whichever of both shapes; as text in some versions of Spark."""
    offsets = json.loads(value) if isinstance(value, str) else value
    if not offsets:
        return {}
    queues = next(iter(offsets.values()))
    by_store = any(isinstance(inner, Mapping) for inner in queues.values())
    return from_json(offsets, by_store)
