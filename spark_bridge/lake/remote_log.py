"""What is to be loaded from stores of other hosts: as in place, their queues and messages asked of Flight servers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from spark_bridge.flight.client import STREAMS_AT_ONCE
from spark_bridge.flight.questions import told_options
from spark_bridge.flight.reader_decoding import decodes_here, undecoded
from spark_bridge.flight.remote.anywhere import read_anywhere, split_anywhere
from spark_bridge.flight.remote.remote_tails import RemoteStores
from spark_bridge.lake.local_log import LocalLog
from spark_bridge.lake.progress import QueueAt
from spark_bridge.options.flights import Flights
from spark_bridge.options.rows import DEFAULT_ROWS, RowOptions
from spark_bridge.records.columns import columns_of
from spark_bridge.split.splits import QueuePiece, QueueSplit, Selection, Split
from spark_bridge.stream.offsets import Bounds, Offsets, QueueKey
from spark_bridge.stream.options import StreamOptions
from spark_bridge.stream.stores import StreamStores
from store.columns.columns import arrow_schema
from store.errors import StoreError

log = logging.getLogger("slipstream.lake")

PLACED = ("topic", "queueId", "physicalOffset")


class RemoteLog(LocalLog):
    """The stores of one table, behind addresses of Flight servers; `given` are the options as they were given."""

    def __init__(
        self, table: str, options: StreamOptions, names: list[str], schema: pa.Schema, given: Mapping[str, str]
    ) -> None:
        sent = told_options(given)
        self._sent = undecoded(sent) if decodes_here(options.read.rows) else sent
        self._looked: dict[QueueKey, int] = {}
        super().__init__(table, options, names, schema)

    @property
    def _flights(self) -> Flights:
        flights = self._options.read.flights
        assert flights is not None
        return flights

    def _opened(self) -> StreamStores:
        return RemoteStores(self._options.read, self._flights, self._sent)

    def _batches(self, split: Split, names: Sequence[str], rows: RowOptions) -> Iterator[pa.RecordBatch]:
        """These columns of a split's messages, from a replica that has them."""
        stores = self._stores
        assert isinstance(stores, RemoteStores)
        locations = stores.locations_of(split.log.broker_name)
        schema, sent = arrow_schema(columns_of(names, rows)), {} if rows is DEFAULT_ROWS else self._sent
        for part in split_anywhere(split, names, sent, rows, self._flights, locations):
            yield from read_anywhere(part, schema)

    def _threads(self) -> int:
        return STREAMS_AT_ONCE

    def _may_be_anew(self, key: QueueKey, at: QueueAt, there: Bounds) -> bool:
        """Decide once for each offset: it is a question to a server, and looks are many."""
        if self._looked.get(key) == at.offset or not super()._may_be_anew(key, at, there):
            return False
        self._looked[key] = at.offset
        return True

    def _lie_at(self, queues: Offsets) -> dict[QueueKey, int]:
        """Return where the messages before these offsets lie: one question of each store."""
        lie_at: dict[QueueKey, int] = {}
        for store, view in self._stores.views.items():
            pieces = []
            for key, offset in queues.items():
                tail = self._stores.tail_of(key)
                if key.store == store and tail is not None and tail.first < offset <= tail.end:
                    pieces.append(QueuePiece("", key.topic, key.queue_id, offset - 1, offset))
            if not pieces:
                continue
            try:
                for batch in self._plain(QueueSplit(view.extent, tuple(pieces), Selection()), PLACED):
                    for row in batch.to_pylist():
                        lie_at[QueueKey(store, row["topic"], row["queueId"])] = row["physicalOffset"]
            except StoreError as error:  # of those behind the damage nothing is known
                log.debug("%s", error)
        return lie_at
