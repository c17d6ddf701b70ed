"""`spark.readStream` where the driver has no replica: a stream as in place, whose stores are asked through Flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_bridge.flight.questions import told_options
from spark_bridge.flight.reader_decoding import decodes_here, undecoded
from spark_bridge.flight.remote.anywhere import RemoteSplit, read_anywhere, split_anywhere
from spark_bridge.flight.remote.remote_tails import RemoteStores
from spark_bridge.options.flights import Flights
from spark_bridge.records.spark_schema import json_schema
from spark_bridge.stream.plan import Task
from spark_bridge.stream.reader import RocketMQStreamReader
from spark_bridge.stream.stores import StreamStores
from spark_bridge.user_errors import in_one_line


class RemoteStreamReader(RocketMQStreamReader):
    """One streaming query's source; offsets and checkpoints are those of a store in place."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(schema, options)
        self._sent = told_options(options)
        if decodes_here(self.rows):
            self._sent = undecoded(self._sent)
            return
        value_schema = json_schema(schema, self.options.read.rows)
        if value_schema is not None:
            self._sent["valueSchema"] = value_schema

    @property
    def _flights(self) -> Flights:
        flights = self.options.read.flights
        assert flights is not None
        return flights

    def _open(self) -> StreamStores:
        return RemoteStores(self.options.read, self._flights, self._sent)

    def _as_sent(self, task: Task) -> tuple[RemoteSplit, ...]:
        """Tickets, that any replica of their broker serves."""
        stores = self._stores
        assert isinstance(stores, RemoteStores)
        sent: list[RemoteSplit] = []
        for split in task:
            locations = stores.locations_of(split.log.broker_name)
            for part in split_anywhere(split, self.column_names, self._sent, self.rows, self._flights, locations):
                turn = (split.pieces[0].queue_id + len(sent)) % len(locations)
                sent.append(replace(part, locations=locations[turn:] + locations[:turn]))
        return tuple(sent)

    @in_one_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        for split in partition.value or ():
            yield from read_anywhere(split, self.arrow_schema)
