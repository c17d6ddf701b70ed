"""`option("table", ...)` where the driver has no store: rows that a Flight server makes of the one beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_bridge.flight.replicas import answers
from spark_bridge.flight.request import ScanRequest
from spark_bridge.tables.reader import TableReader


class RemoteTableReader(TableReader):
    """A read of one metadata table, through the servers that the paths name."""

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """All of them now, of each store from one replica: rows of two would be of two moments."""
        flights = self.options.flights
        assert flights is not None
        asked = {name: text for name, text in flights.asked.items() if name != "columns"}
        request = ScanRequest(columns=tuple(self.arrow_schema.names), options=asked)
        for batches, _location, _replicas in answers(flights, lambda store: store.table(request)):
            yield from (_as(batch, self.arrow_schema) for batch in batches)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """In the types that were asked for, whatever version answers."""
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
