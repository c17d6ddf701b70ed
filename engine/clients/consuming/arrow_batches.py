"""Messages that were handed out together as Arrow record batches, with the columns of `scan`.

No Python runs for each message, but for compressed bodies and messages that come again through a retry topic. On a
broker's host bodies are views into the mapped segment, which stays mapped as long as a batch of it exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from engine.clients.blocks import COPIED, Block, MappedMessage, mapped_message
from engine.clients.cluster import log
from engine.clients.consuming.back_off import sent_to
from engine.clients.consuming.shelf import HandedBlock
from engine.clients.measure_kernel import Part
from engine.clients.names import ClientError
from store.columns.bodies import inflated
from store.columns.columns import COLUMNS, TOPIC, Column, arrow_schema, in_place
from store.columns.records import Records
from store.columns.spans import texts
from store.columns.window import CopiedRecords, LogWindow
from store.errors import MalformedData
from store.message.properties import RETRY_TOPIC
from store.message.topics import RETRY_PREFIX

BODY = "body"
OFFERED = {column.name: in_place(column) if column.name == BODY else column for column in COLUMNS}


def columns_named(names: Sequence[str] | None) -> list[Column]:
    """The columns of these names, or all. Raises ClientError."""
    unknown = [name for name in names or () if name not in OFFERED]
    if unknown:
        raise ClientError(f"no column {', '.join(map(repr, unknown))}; these are: {', '.join(OFFERED)}")
    return [OFFERED[name] for name in (OFFERED if names is None else names)]


class MadeBatch:
    """A record batch, and which of the messages that were handed out are its rows."""

    def __init__(self, handed: Sequence[HandedBlock], first: int, batch: pa.RecordBatch) -> None:
        self._handed, self._first, self.batch = handed, first, batch

    @property
    def broker(self) -> str:
        """Return the broker that all its messages came from."""
        return self._handed[0].queue.place.broker

    def messages(self, rows: Sequence[int]) -> list[MappedMessage]:
        """The messages of some rows. Raises ClientError for a row that is none."""
        wrong = [row for row in rows if not 0 <= row < self.batch.num_rows]
        if wrong:
            raise ClientError(f"row {wrong[0]}: the batch has {self.batch.num_rows}")
        ends = np.cumsum([len(one.records) for one in self._handed])
        messages = []
        for row in dict.fromkeys(self._first + row for row in rows):
            number = int(np.searchsorted(ends, row, "right"))
            block = self._handed[number].records
            messages.append(mapped_message(block.origin, block.parts[row - ends[number] + len(block.parts)].tolist()))
        return messages


def made_batches(handed: Sequence[HandedBlock], columns: Sequence[Column]) -> Iterator[MadeBatch]:
    """Yield the batches of what was handed out together: one, or more where compressed bodies grow."""
    records = _records_of([one.records for one in handed])
    if any(one.queue.place.topic.startswith(RETRY_PREFIX) for one in handed):
        columns = [one._replace(build=_topics_sent_to) if one.name == TOPIC.name else one for one in columns]
    schema, first = arrow_schema(columns), 0
    parts = inflated(records, _note) if any(one.name == BODY for one in columns) else iter((records,))
    for part in parts:
        arrays = [column.build(part) for column in columns]
        cast = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        yield MadeBatch(handed, first, pa.RecordBatch.from_arrays(cast, schema=schema))
        first += len(part)


def _records_of(blocks: Sequence[Block]) -> Records:
    """The records of blocks that join. Copies lie one behind the other in one buffer then."""
    origin = blocks[0].origin
    positions = [block.parts[:, Part.POSITION] for block in blocks]
    if origin.base_offset != COPIED:
        ends = origin.base_offset + len(origin.array)
        window = LogWindow(origin.path, origin.base_offset, origin.array, ends, origin.broker)
        return Records(window, np.concatenate(positions))
    origins = {id(block.origin): block.origin for block in blocks}
    begins = dict(zip(origins, np.cumsum([0, *(len(one.array) for one in origins.values())]).tolist(), strict=False))
    array = origin.array if len(origins) == 1 else np.concatenate([one.array for one in origins.values()])
    at = [begins[id(block.origin)] + places for block, places in zip(blocks, positions, strict=True)]
    return Records(CopiedRecords("", array, origin.broker), np.concatenate(at))


def _note(records: Records, row: int, error: MalformedData) -> None:
    """A body that cannot be inflated is null: the rest of its row, and the other rows, are handed out."""
    records.errors[row] = str(error)
    log.warning("a body is null in its batch: %s", error)


def _topics_sent_to(records: Records) -> pa.StringArray:
    """The topics that messages were sent to, also those that come through a retry topic."""
    return texts([*map(sent_to, records.topic.to_pylist(), records.property_value(RETRY_TOPIC).to_pylist())])
