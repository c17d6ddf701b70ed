"""A task's rows to the master's host, where the task's own has none: through the Flight server beside the master.

What is wrong with a row is said here, before it travels. The first rows are kept until there are too many to keep:
where the server goes meanwhile, the put begins anew at whichever server is a master's then. Behind that the task fails,
and Spark repeats it; either way rows that are in the log are not appended again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from spark_bridge.flight.client import PAUSE_S, RemoteStore
from spark_bridge.flight.errors import NotWritable, PutInterrupted
from spark_bridge.flight.puts import MESSAGES, Put
from spark_bridge.flight.wire_errors import RETRIED
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption
from spark_bridge.sink.append import Appended
from spark_bridge.sink.options import SinkColumns, WriteOptions
from spark_bridge.sink.rows import Messages, Rows
from spark_bridge.sink.task import TaskId

KEPT_BYTES_MAX = 16 << 20
PIECE_BYTES, PIECE_ROWS = 4 << 20, 1 << 14
ANSWER_S = 10.0


def append(
    batches: Iterator[pa.RecordBatch], task: TaskId, options: WriteOptions, columns: SinkColumns, since_ms: int
) -> Appended:
    """Append those rows of a task that are not in the log; returns when the acknowledgement asked for is there.

    Raises what an append in place raises, NotWritable where no server is a master's, and PutInterrupted.
    """
    assert options.flights is not None
    put = Put(task, options.acks, options.idempotent, options.timeout_s, since_ms, columns.is_keyed)
    rows = Rows(columns, options.topic, drops_system_properties=options.drops_system_properties)
    kept = _Kept(piece for batch in batches for piece in _pieces(rows.messages(batch)))
    deadline: float | None = None
    while True:
        try:
            with _master(options.flights) as store:
                return _put(store, put, kept)
        except Exception as error:
            if getattr(error, "code", "") not in RETRIED:
                raise
            now = time.monotonic()
            deadline = now + options.timeout_s if deadline is None else deadline
            if kept.is_over or now >= deadline:
                again = "run the task again: rows that are in the log are not appended again"
                raise PutInterrupted(f"{error}; {again}") from error
        time.sleep(PAUSE_S)


class _Kept:
    """Rows on their way; as long as they are few, from the first one on whenever they are asked for."""

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source, self._kept, self._bytes = source, list[pa.RecordBatch](), 0
        self.is_over = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._kept)
        for piece in self._source:
            self._bytes += piece.nbytes
            self.is_over = self.is_over or self._bytes > KEPT_BYTES_MAX
            if self.is_over:
                self._kept.clear()
            else:
                self._kept.append(piece)
            yield piece


def _master(flights: Flights) -> RemoteStore:
    """The server beside the master. Raises NotWritable where all answer and none is; ServerUnreachable."""
    if len(flights.stores) != 1:
        what = "the path of a write names one broker: give its replicas' servers, separated by commas"
        raise InvalidOption(what)
    refusal: Exception | None = None
    for location in flights.stores[0]:
        store = RemoteStore(location, flights.token, flights.roots)
        try:
            if store.store(ANSWER_S).get("takesPuts"):
                return store
        except Exception as error:
            if getattr(error, "code", "") not in RETRIED:
                store.close()
                raise
            refusal = error
        store.close()
    if refusal is not None:
        raise refusal
    what = f"{', '.join(flights.stores[0])}: no server accepts messages"
    raise NotWritable(f"{what}; start `slipstream flight --writable` on the master's host, and name it in path")


def _put(store: RemoteStore, put: Put, rows: Iterator[pa.RecordBatch] | _Kept) -> Appended:
    """Send them and hear what became of them. Raises what the server says."""
    with store.putting(put.encoded(), MESSAGES) as call:
        for piece in rows:
            call.send(piece)
        answer = call.answer()
    fields: dict[str, Any] = json.loads(answer)
    return Appended(int(fields["appended"]), int(fields["inLog"]))


def _pieces(messages: Messages) -> Iterator[pa.RecordBatch]:
    """Checked rows in the columns of a put, cut so that none is large."""
    columns: Sequence[Sequence[Any]] = (
        messages.topics,
        messages.tags,
        messages.keys,
        [list(held.items()) for held in messages.properties],
        messages.bodies,
        messages.queue_ids,
    )
    first = size = 0
    for row in range(len(messages)):
        size += len(messages.bodies[row])
        if size >= PIECE_BYTES or row + 1 - first >= PIECE_ROWS or row + 1 == len(messages):
            arrays = [
                pa.array(column[first : row + 1], field.type) for column, field in zip(columns, MESSAGES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
            first, size = row + 1, 0
