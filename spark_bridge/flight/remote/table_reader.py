"""`option("table", ...)` where the driver has no store: rows that a Flight server makes of the one beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_bridge.flight.replicas import all_told, answers
from spark_bridge.flight.request import ScanRequest
from spark_bridge.options.flights import Flights
from spark_bridge.tables.reader import TableReader

OF_REPLICAS = "replicas"


class RemoteTableReader(TableReader):
    """A read of one metadata table, through the servers that the paths name."""

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all of them now, of each store from one replica: rows of two would be of two moments."""
        flights = self.options.flights
        assert flights is not None
        asked = {name: text for name, text in flights.asked.items() if name != "columns"}
        request = ScanRequest(columns=tuple(self.arrow_schema.names), options=asked)
        if self.table == OF_REPLICAS:
            yield from self._of_all(flights, request)
            return
        for batches, _location, _replicas in answers(flights, lambda store: store.table(request)):
            yield from (_as(batch, self.arrow_schema) for batch in batches)

    def _of_all(self, flights: Flights, request: ScanRequest) -> Iterator[pa.RecordBatch]:
        """A row of each replica, whose path is the address that it was asked at; one that is silent has no more."""
        silent = pa.RecordBatch.from_pylist([{}], schema=self.arrow_schema)
        for name, location, batches in all_told(flights, lambda store: store.table(request)):
            for batch in [silent] if batches is None else batches:
                row = _with(_as(batch, self.arrow_schema), "path", location)
                yield _with(row, "brokerName", name) if batches is None else row


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the types that were asked for, whatever version answered."""
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with(batch: pa.RecordBatch, name: str, text: str) -> pa.RecordBatch:
    """Fill a column with a text, if the column was asked for."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        return batch
    arrays = [*batch.columns[:place], pa.array([text] * len(batch), pa.string()), *batch.columns[place + 1 :]]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
