"""The columns of a message, RocketMQ's: their Arrow types, and how records become arrays of them.

One array operation per field, no Python per record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.columns import hosts
from store.columns.records import Records
from store.columns.spans import BIGINT, BINARY, INT, STRING, TIMESTAMP, numbers, repeated, spelled_out
from store.message.properties import KEYS, TAGS
from store.message.record import (
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    BORN_V6,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_V6,
    fixed_dtype,
)

FIXED_OFFSETS = {name: int(place[1]) for name, place in (fixed_dtype(0).fields or {}).items()}
RECONSUME_TIMES_AT = FIXED_OFFSETS["reconsume_times"]
MAP = pa.map_(pa.field("key", STRING, nullable=False), pa.field("value", STRING))


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    return numbers(milliseconds * 1000, TIMESTAMP)


def _born_host(records: Records) -> pa.DictionaryArray:
    return _host(records, records.starts + BORN_HOST_AT, BORN_V6)


def _store_host(records: Records) -> pa.DictionaryArray:
    return _host(records, records.store_host_at, STORE_V6)


def _host(records: Records, at: npt.NDArray[np.int64], bit: int) -> pa.DictionaryArray:
    return hosts.host_texts(records.window, at, (records.sys_flag & bit) != 0)


def _message_id(records: Records) -> pa.StringArray:
    v6 = (records.sys_flag & STORE_V6) != 0
    return hosts.message_ids(records.window, records.store_host_at, records.starts + PHYSICAL_OFFSET_AT, v6)


def _broker_name(records: Records) -> pa.StringArray:
    return repeated(records.window.broker_name or None, len(records))


class Column(NamedTuple):
    """One column: its name and type, how it is made, and whether its bytes weigh (a batch is cut by them).

    `encode` makes texts that repeat as a dictionary.
    """

    name: str
    kind: pa.DataType
    build: Callable[[Records], Any]
    heavy: bool = False
    encode: Callable[[Records], pa.DictionaryArray] | None = None

    @property
    def encoded(self) -> Column:
        """The column as dictionaries, one a batch, where its texts repeat; else as it is."""
        if self.encode is None:
            return self
        return self._replace(kind=pa.dictionary(pa.int32(), self.kind), build=self.encode)


def int32_column(name: str, at: int) -> Column:
    """A fixed field of four bytes, at its place in records."""
    return Column(name, INT, lambda records: numbers(records.int32_at(at), INT))


def int64_column(name: str, at: int) -> Column:
    """A fixed field of eight bytes before the hosts, at its place in records."""
    return Column(name, BIGINT, lambda records: numbers(records.int64_at(at), BIGINT))


TOPIC = Column("topic", STRING, lambda records: records.topic, encode=lambda records: records.topic_dictionary)
BORN = Column("bornTimestamp", TIMESTAMP, lambda r: _timestamps(r.int64_at(BORN_TIMESTAMP_AT)))
COLUMNS = (
    TOPIC,
    int32_column("queueId", QUEUE_ID_AT),
    int64_column("queueOffset", QUEUE_OFFSET_AT),
    Column("physicalOffset", BIGINT, lambda records: numbers(records.window.offsets(records.starts), BIGINT)),
    Column("msgId", STRING, _message_id),
    Column("tags", STRING, lambda r: r.property_value(TAGS), heavy=True, encode=lambda r: r.property_dictionary(TAGS)),
    Column("keys", STRING, lambda records: records.property_value(KEYS), heavy=True),
    Column("properties", MAP, lambda records: records.properties, heavy=True),
    Column("body", BINARY, lambda records: records.body, heavy=True),
    int32_column("flag", FLAG_AT),
    Column("sysFlag", INT, lambda records: numbers(records.sys_flag, INT)),
    BORN,
    Column("bornHost", STRING, lambda records: spelled_out(_born_host(records)), encode=_born_host),
    Column("storeTimestamp", TIMESTAMP, lambda records: _timestamps(records.stored_ms)),
    Column("storeHost", STRING, lambda records: spelled_out(_store_host(records)), encode=_store_host),
    Column("reconsumeTimes", INT, lambda r: numbers(r.int32_at(RECONSUME_TIMES_AT, r.hosts_shift), INT)),
    Column("bodyLength", INT, lambda records: numbers(records.body_length, INT)),
    Column("brokerName", STRING, _broker_name, encode=lambda records: _broker_name(records).dictionary_encode()),
)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of these columns."""
    return pa.schema([(column.name, column.kind) for column in columns])


def in_place(column: Column) -> Column:
    """The column of bodies as binary views into the records' memory, which stays as long as they do."""
    return column._replace(kind=pa.binary_view(), build=lambda records: records.body_view)
