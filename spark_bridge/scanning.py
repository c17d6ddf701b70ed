"""A store as Arrow record batches, without Spark: for pandas, polars, DuckDB and every other reader of Arrow.

    from slipstream import scan

    table = scan(STORE, topics=["orders"], columns=["queueId", "body"], where=[("queueId", "==", 3)]).read_all()

What may be asked for is what Spark's source takes, by the same names; the plan is made when `scan` is called, against
the log's end as it is then, and batches are made one by one as they are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_bridge.columnar.reader import SideFigures, split_jobs
from spark_bridge.options.columns import BODY_COLUMNS, canonical
from spark_bridge.options.read import ReadOptions, parse_options
from spark_bridge.options.rows import SIDE_OPTION
from spark_bridge.options.values import InvalidOption, listed, option_text, place_of
from spark_bridge.options.where import COLUMNS as SELECTING
from spark_bridge.options.where import where_text
from spark_bridge.plan.planner import plan_read
from spark_bridge.records.columns import Asked, columns_of
from spark_bridge.records.in_order import in_order
from spark_bridge.records.row_filter import RowFilter, parse_conditions
from spark_bridge.split.splits import Split
from store.columns.columns import Column, arrow_schema, in_place

THREADS_MAX = 64
Store = str | Path | Sequence[str | Path]


def scan(
    store: Store,
    *,
    topics: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    where: list[tuple[str, str, Any]] | tuple[str, str, Any] | None = None,
    zero_copy: bool = False,
    dictionaries: bool = False,
    figures: dict[str, int] | None = None,
    threads: int = 1,
    **options: Any,
) -> pa.RecordBatchReader:
    """The messages of a store, or of several, up to the log's end of now; None is all topics, all columns.

    `where` are conditions that all have to hold, as pyarrow's filters: ("queueId", "in", [0, 1]), ("bornTimestamp",
    ">=", "2026-05-01T00:00:00+00:00"); any column but bodies, properties and headers. Equalities of topic, queue, tags
    and broker, and comparisons of offsets and times, leave out what need not be read; the rest is asked of each record
    before its body is touched.
    With `zero_copy` bodies are binary views into the mapped segments (compressed ones of their own), which stay mapped
    as long as a batch lives. With `dictionaries` topic, tags, bornHost, storeHost and brokerName, whose texts repeat,
    are dictionary<values=string, indices=int32>; each batch has dictionaries of its own. `options` are those of a batch
    read by Spark, with its names (USAGE.md).
    With `threads` that number of threads makes batches ahead, a few each; their order stays. Of a server that number of
    tickets is read at a time.
    Segments that have a valid side file (`slipstream log sidecar`) give what its columns say from there, the same rows
    in the same order; `columnarSidecar="false"` reads all in place. A dictionary given as `figures` holds, as batches
    are taken, how many segments came from side files (`fromSideFiles`), how many were looked through (`inPlace`).
    A store is a directory, or "grpc://HOST:PORT", a server that `slipstream flight` started beside it (`flightToken`).

    Raises InvalidOption, whatever is wrong with the store (StoreError), and while it is read CorruptRecord and others.
    """
    if not 1 <= threads <= THREADS_MAX:
        raise InvalidOption(f"threads={threads}: 1 to {THREADS_MAX}")
    given = {name: option_text(value) for name, value in options.items()}
    row_filter = None if where is None else parse_conditions(where)
    topics, columns = listed("topics", topics), listed("columns", columns)
    if topics is not None:
        given["topic"] = ",".join(topics)
    if row_filter is not None:
        given |= _narrowed(row_filter, given)
    read = _options(store, given)
    wanted = _columns(columns, read, zero_copy)
    if dictionaries:
        wanted = [column.encoded for column in wanted]
    asked = Asked(wanted, arrow_schema(wanted), read.rows, row_filter)
    if read.flights is not None:
        batches = _remote(read, asked, threads)
    else:
        batches = _batches(plan_read(read), asked, {} if figures is None else figures, threads)
    return pa.RecordBatchReader.from_batches(asked.schema, batches)


def _narrowed(row_filter: RowFilter, given: Mapping[str, str]) -> dict[str, str]:
    """The option `where` for what a plan can leave out."""
    admitted = {name: values for name, values in row_filter.admitted().items() if name in SELECTING}
    ranges = row_filter.ranged()
    if not admitted and not ranges:
        return {}
    if any(name.lower() == "where" for name in given):
        raise InvalidOption("where: give conditions, or the option of that name, not both")
    return {"where": where_text(admitted, ranges)}


def _options(store: Store, given: Mapping[str, str]) -> ReadOptions:
    read = parse_options({**given, **place_of(store)})
    if read.table is not None:
        raise InvalidOption(f"table={read.table}: a scan is of messages; Spark's source has tables")
    if read.flights is None and not any(name.lower() == SIDE_OPTION.lower() for name in given):
        return replace(read, rows=replace(read.rows, side_files=True))
    return read


def _columns(names: Sequence[str] | None, read: ReadOptions, zero_copy: bool) -> list[Column]:
    if names is not None and read.columns is not None:
        raise InvalidOption("columns: name them once")
    if zero_copy and read.flights is not None:
        raise InvalidOption("zero_copy: what comes from another host is a copy; leave it out")
    names = read.columns if names is None else names
    named = columns_of(None if names is None else canonical(names), read.rows)
    is_raw = {column.name for column in named if column.name in BODY_COLUMNS and column.kind == pa.binary()}
    return [in_place(column) if zero_copy and column.name in is_raw else column for column in named]


def _remote(read: ReadOptions, asked: Asked, threads: int) -> Iterator[pa.RecordBatch]:
    """The same through the Flight servers that the paths name, or in place where `replicaPath` is a replica."""
    from spark_bridge.flight.remote.anywhere import plan_anywhere, read_anywhere  # gRPC is for those who need it

    assert read.flights is not None
    where = asked.row_filter.plain() if asked.row_filter else ()
    splits = plan_anywhere(read.flights, asked.schema.names, read.rows, where=where)
    jobs = [partial(read_anywhere, split, asked.schema) for split in splits]
    return in_order(jobs, min(threads, len(jobs)))


def _batches(splits: Sequence[Split], asked: Asked, figures: dict[str, int], threads: int) -> Iterator[pa.RecordBatch]:
    counted = SideFigures()
    jobs = (job for split in splits for job in split_jobs(split, asked, counted))
    for batch in in_order(jobs, threads):
        figures |= counted.by_name()
        if len(batch):
            yield batch
    figures |= counted.by_name()
