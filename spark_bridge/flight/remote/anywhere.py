"""A read whose stores lie on other hosts: planned by their Flight servers, read in place where a replica is.

A task holds a ticket. Where `replicaPath` is a replica of the ticket's broker that has come far enough, it is read as
any store on this host; else the replicas' servers are asked, one after the other, from a different first one each
ticket. What breaks in the middle goes on elsewhere, without a row twice: a ticket's rows have one order everywhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from spark_bridge.flight.client import RemoteStore, read_somewhere
from spark_bridge.flight.errors import FlightError, OtherBroker
from spark_bridge.flight.reader_decoding import decoded_batch, decodes_here, placed_columns, undecoded
from spark_bridge.flight.replicas import answers
from spark_bridge.flight.request import Condition, ScanRequest
from spark_bridge.flight.served import ServedStore
from spark_bridge.flight.tickets import encoded, tickets_of
from spark_bridge.options.columns import REPLICA_COLUMN
from spark_bridge.options.flights import Flights
from spark_bridge.options.rows import DEFAULT_ROWS, ROW_OPTION_NAMES, RowOptions
from spark_bridge.records.columns import IN_PLACE
from spark_bridge.records.reading import Reading
from spark_bridge.split.leases import renewed
from spark_bridge.split.splits import Split
from store.errors import StoreError
from store.names import COMMIT_LOG

log = logging.getLogger("slipstream.flight")

LEAVES_TO_OTHERS = (StoreError, FlightError, OSError)  # of a replica in place: a server may do better

_served: dict[tuple[int, str], ServedStore] = {}


@dataclass(frozen=True)
class RemoteSplit:
    """The part of a read that a task has, and the places where it may read it."""

    ticket: bytes
    locations: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    roots: bytes | None = field(default=None, repr=False)
    replica_path: str | None = None
    rows: RowOptions | None = None  # where bodies are decoded by who reads: a registry is the reader's


def plan_anywhere(
    flights: Flights,
    columns: Sequence[str],
    rows: RowOptions = DEFAULT_ROWS,
    value_schema: str | None = None,
    where: tuple[Condition, ...] = (),
) -> list[RemoteSplit]:
    """The tickets of a read, of each store from the one of its replicas that has come furthest.

    `value_schema` is what JSON bodies are decoded to, where a schema says it; `where` are a scan's conditions. Raises
    what a plan in place raises, ServerUnreachable where no replica of a store answers, and InvalidOption where replicas
    are of several brokers.
    """
    asked = {name: text for name, text in flights.asked.items() if name != "columns"}
    if value_schema is not None:
        asked["valueSchema"] = value_schema
    here = decodes_here(rows)
    if here:
        asked, columns = undecoded(asked), placed_columns(columns)
    request = ScanRequest(columns=tuple(columns), options=asked, where=where)
    own = (flights.token, flights.roots, flights.replica_path, rows if here else None)
    splits: list[RemoteSplit] = []
    for plan, _location, replicas in answers(flights, lambda store: store.plan(request)):
        for number, ticket in enumerate(plan.tickets):
            turned = replicas[number % len(replicas) :] + replicas[: number % len(replicas)]
            splits.append(RemoteSplit(ticket, turned, *own))
    return splits


def split_anywhere(
    split: Split,
    columns: Sequence[str],
    sent: Mapping[str, str],
    rows: RowOptions,
    flights: Flights,
    locations: tuple[str, ...],
) -> Iterator[RemoteSplit]:
    """A split that was planned here, for any of these replicas of its broker; `sent` are the options servers know."""
    of_rows = {name.lower() for name in ROW_OPTION_NAMES}
    known = {name: text for name, text in sent.items() if name.lower() in of_rows}
    asked, own_rows = (placed_columns(columns), rows) if decodes_here(rows) else (columns, None)
    own = (flights.token, flights.roots, flights.replica_path, own_rows)
    for ticket in tickets_of(split, asked, known):
        yield RemoteSplit(encoded(ticket), locations, *own)


def read_anywhere(split: RemoteSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A split's batches in the schema, in place or from a server; column `_replica` says which.

    Raises what a read in place raises, and ServerUnreachable when no server gave anything for long.
    """
    reading = Reading()
    batches = _batches(split, reading)
    yield from reading.counted(
        (location or IN_PLACE, _as(batch, schema, location, split.rows)) for batch, location in batches
    )
    log.debug("a split of %s was read: %s", split.locations[0], reading.sources)


def _batches(split: RemoteSplit, reading: Reading) -> Iterator[tuple[pa.RecordBatch, str | None]]:
    """The batches as who has them gives them, each with the server's address; None is in place."""
    done = 0
    try:
        for batch in _in_place(split):
            done += batch.num_rows
            yield batch, None
        return
    except _NoReplica as reason:
        log.debug("%s", reason)
        if reason.__cause__ is not None:
            reading.failed(IN_PLACE)
    except LEAVES_TO_OTHERS as error:
        reading.failed(IN_PLACE)
        log.warning("the replica of this host stopped after %d rows of a split, others are asked: %s", done, error)
    with ExitStack() as opened:
        stores = [opened.enter_context(RemoteStore(at, split.token, split.roots)) for at in split.locations]
        left = partial(_left, reading)
        for store, batch in read_somewhere(stores, split.ticket, skip_rows=done, left_for_another=left):
            yield batch, store.location


def _left(reading: Reading, store: RemoteStore) -> None:
    reading.failed(store.location)


class _NoReplica(Exception):
    """This host has none of the ticket's log, or none that is far enough."""


def _in_place(split: RemoteSplit) -> Iterator[pa.RecordBatch]:
    root = split.replica_path
    if root is None or not Path(root, COMMIT_LOG).is_dir():
        raise _NoReplica(f"no store in {root}")
    try:
        opened = _store_at(root).open(split.ticket)
    except (OtherBroker, *LEAVES_TO_OTHERS) as error:
        raise _NoReplica(f"{root}: {error}") from error
    try:
        for batch in opened.batches:
            if opened.lease is not None:
                renewed(opened.lease)
            yield batch
    finally:
        if opened.lease is not None:
            opened.lease.release()


def _store_at(root: str) -> ServedStore:
    """Return this worker's view of the store on its host, kept from task to task."""
    key = os.getpid(), root
    if key not in _served:
        _served.clear()
        _served[key] = ServedStore(root)
    return _served[key]


def _as(batch: pa.RecordBatch, schema: pa.Schema, location: str | None, rows: RowOptions | None) -> pa.RecordBatch:
    """The batch in Spark's schema, telling where it came from."""
    batch = batch if rows is None else decoded_batch(batch, rows)
    batch = batch.select(schema.names)
    arrays = [array.cast(field.type, safe=True) for array, field in zip(batch.columns, schema, strict=True)]
    if location is not None and REPLICA_COLUMN in schema.names:
        arrays[schema.names.index(REPLICA_COLUMN)] = pa.repeat(pa.scalar(location), batch.num_rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
