"""Metadata tables as a Flight server tells them: the rows of the store in place, without what is its host's alone.

A ticket is the request itself, and its rows are made when it comes, all of them, from the store as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.served import Opened, Plan, ServedStore
from spark_bridge.flight.tickets import TableTicket
from spark_bridge.options.read import ReadOptions
from spark_bridge.plan.names import refuse_missing
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.tables.columns import TABLES, Columns, Row, batch_of, columns_of_table
from spark_bridge.tables.rows import Bounds, rows_of

BOUNDS = Bounds(rows=100_000, log_bytes=1 << 30)
BATCH_ROWS = 16_384
OF_THE_HOST = frozenset({"path", "pid"})  # null for everybody
# Null where some topics are kept back: they say when a record was stored, of whatever topic it is.
OF_ALL_TOPICS = {"segments": frozenset({"minTimestamp", "modified"}), "replicas": frozenset({"minTimestamp"})}


class ServedTables:
    """The tables of one served store. Raises what they raise in place, and TopicNotServed."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store

    def schema(self, request: ScanRequest) -> pa.Schema:
        """Return what the rows of a request look like. Raises InvalidOption."""
        _options, _table, columns = self._asked(request)
        return pa.schema(columns)

    def plan(self, request: ScanRequest) -> Plan:
        """Return one ticket; an invalid request is refused now."""
        options, _table, columns = self._asked(request)
        resolved = self._resolved(options)
        refuse_missing(resolved, resolve_stores(resolved))
        broker, end = self._store.broker_name, int(self._store.status()["maxPhysicalOffset"])
        return Plan(pa.schema(columns), [TableTicket(broker, request).encoded()], -1, -1, broker, end)

    def opened(self, ticket: TableTicket) -> Opened:
        """Return the ticket's rows, made now under a lease. Raises OtherBroker, and what `plan` raises."""
        self._store.refuse_other_broker(ticket.broker_name)
        options, table, columns = self._asked(ticket.request)
        resolved = self._resolved(options)
        lease = self._store.leased(int(self._store.status()["minPhysicalOffset"]))
        try:
            stores = resolve_stores(resolved)
            refuse_missing(resolved, stores)
            rows = list(map(self._shown(table), rows_of(table, stores, resolved, BOUNDS)))
        finally:
            if lease is not None:
                lease.release()
        return Opened(pa.schema(columns), _sliced(batch_of(table, columns, rows)), None)

    def _asked(self, request: ScanRequest) -> tuple[ReadOptions, str, Columns]:
        options = self._store.options_of(request)
        assert options.table is not None
        return options, options.table, columns_of_table(options.table, options.columns)

    def _resolved(self, options: ReadOptions) -> ReadOptions:
        """Return what the server's list leaves, which names no topic that the client has not named."""
        return replace(self._store.resolved(options), topics_admitted=options.topics is None)

    def _shown(self, table: str) -> Callable[[Row], Row]:
        """Return a function that hides the columns of a row that a client must not see."""
        of_others = OF_ALL_TOPICS.get(table, frozenset())
        hidden = OF_THE_HOST if self._store.served is None else OF_THE_HOST | of_others
        shown = [name not in hidden for name, _kind in TABLES[table]]
        return lambda row: tuple(value if is_shown else None for value, is_shown in zip(row, shown, strict=True))


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slice a batch, so that no more is sent to a client that leaves than of messages."""
    return (batch.slice(first, BATCH_ROWS) for first in range(0, batch.num_rows, BATCH_ROWS))
