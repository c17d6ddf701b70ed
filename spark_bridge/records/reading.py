"""What was read from where: counted in each task, carried to the driver by a column, added up there.

    seen = Observation("reading")
    frame = counted(read(spark, flights, columns=["topic", "_reading"]), seen)
    frame.groupBy("topic").count().collect()
    figures(seen)["in place"]      Source(splits=3, rows=1200, bytes=96000, failures=0)

Spark takes no metrics of its own from a Python source, and gives its tasks no accumulators. So one row of each part of
a read that came to its end has JSON in the column `_reading`, all others have null, and Spark's own `observe` collects
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_bridge.options.columns import READING_COLUMN
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import IN_PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

OBSERVED = "slipstream"  # what a stream's progress has it under, unless it is said
REPORTS = "reading"


@dataclass(frozen=True)
class Source:
    """The counts of one place: parts of the read that ended with it, rows, bytes of their columns in Arrow.

    `failures`: how often it was left for another, because it lagged, broke, was damaged, refused or did not answer.
    """

    splits: int = 0
    rows: int = 0
    bytes: int = 0
    failures: int = 0

    def __add__(self, other: Source) -> Source:
        return Source(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class Reading:
    """The counts of what one task reads, by source."""

    sources: dict[str, Source] = field(default_factory=dict)

    def failed(self, source: str) -> None:
        """Count a source that was given up for another."""
        self._add(source, Source(failures=1))

    def counted(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """The batches of one split, each with its source; the last of them tells of all, where it has the column."""
        last: pa.RecordBatch | None = None
        source = ""
        for source, batch in batches:
            if not batch.num_rows:
                continue
            self._add(source, Source(rows=batch.num_rows, bytes=batch.nbytes))
            if READING_COLUMN not in batch.schema.names:
                yield batch
                continue
            if last is not None:
                yield last
            last = batch
        if last is not None:
            self._add(source, Source(splits=1))
            yield self._telling(last)

    def _add(self, source: str, more: Source) -> None:
        self.sources[source] = self.sources.get(source, Source()) + more

    def _telling(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        report = json.dumps({source: astuple(counts) for source, counts in self.sources.items()})
        at = batch.schema.names.index(READING_COLUMN)
        reports = pa.array([report, *[None] * (batch.num_rows - 1)], pa.string())
        arrays = [reports if place == at else array for place, array in enumerate(batch.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def counted_in_place(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of one split of a store of this host."""
    if READING_COLUMN not in schema.names:
        return batches
    return Reading().counted((IN_PLACE, batch) for batch in batches)


def counted(frame: DataFrame, observation: Observation | str = OBSERVED) -> DataFrame:
    """The frame without `_reading`, whose reports go to an Observation, or for a stream to its progress by a name.

    To be called on what `read` or `load` gave, before anything that may drop rows. Raises InvalidOption without the
    column.
    """
    from pyspark.sql import functions

    if READING_COLUMN not in frame.columns:
        raise InvalidOption(f"counted: the frame has no column {READING_COLUMN}: name it among the columns of the read")
    reports = functions.collect_list(READING_COLUMN).alias(REPORTS)
    return frame.observe(observation, reports).drop(READING_COLUMN)


def figures(observed: Any, name: str = OBSERVED) -> dict[str, Source]:
    """Return the counts by source of an Observation (waits for the frame's first action), or of a stream's progress."""
    if hasattr(observed, "observedMetrics"):
        row = observed.observedMetrics.get(name)
        reports = [] if row is None else row[REPORTS]
    else:
        reports = observed.get[REPORTS] if observed is not None else []
    sources: dict[str, Source] = {}
    for report in reports:
        for source, counts in json.loads(report).items():
            sources[source] = sources.get(source, Source()) + Source(*counts)
    return sources
