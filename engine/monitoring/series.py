"""A metric's samples before they are written: by name and labels, and not more of them than a scrape can bear.

Implements: SdkMeterProviderUtil.setCardinalityLimit (metricsOtelCardinalityLimit)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

Sample = tuple[tuple[str, ...], float]  # label values, value
OVERFLOW = "otel_metric_overflow"
GAUGE, COUNTER = "gauge", "counter"
TIMES = ("_latency", "_milliseconds", "_seconds")  # of such figures the overflow is the largest


class Series(NamedTuple):
    """One metric with its samples."""

    kind: str
    name: str
    what: str
    labels: tuple[str, ...]
    samples: Sequence[Sample]


class Histogram(NamedTuple):
    """One whose samples are how many there are in each bucket, above the last bound too, and what they come to."""

    name: str
    what: str
    labels: tuple[str, ...]
    bounds: tuple[int, ...]
    samples: Sequence[tuple[tuple[str, ...], Sequence[int], int]]


Late = Callable[[], Iterator[Series]]  # of very many samples: not made on the event loop
Shown = Series | Histogram | Late


def bounded(name: str, samples: Iterable[Sample], most: int) -> tuple[list[Sample], float | None]:
    """The first samples, and what all others come to; None where there are no others."""
    kept: list[Sample] = []
    rest: float | None = None
    for sample in samples:
        if len(kept) < most:
            kept.append(sample)
        elif rest is None:
            rest = sample[1]
        else:
            rest = max(rest, sample[1]) if name.endswith(TIMES) else rest + sample[1]
    return kept, rest
