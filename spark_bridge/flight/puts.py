"""Rows of a writer elsewhere into the rings of the master beside this server: what a put says, checked, and done.

    command   {"version": 1, "query": ID, "epoch": 7, "partition": 0, "acks": "broker", "idempotent": true,
               "timeout": 60.0, "since": 0, "keyed": false}
    batches   topic, tags, keys: string, properties: map<string, string>, body: binary, queueId: int32
    answer    {"appended": 990, "inLog": 10}, when the acknowledgement asked for is there

A row's key is made here of the command and of what the row says, as on the master's own host: so a task that was
repeated there, here, or once there and once here, has each row once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.flight.errors import InvalidPut, MayNotWrite, NotWritable
from spark_bridge.flight.questions import VERSION, fields_of
from spark_bridge.flight.streams import Stream
from spark_bridge.sink.append import Appended, NoEngine, append, engine_of
from spark_bridge.sink.options import ACKS, BROKER, SinkColumns, WriteOptions
from spark_bridge.sink.task import TaskId
from store.message.topics import is_system_topic

COMMAND_BYTES_MAX = 1 << 16
BATCH_BYTES_MAX = 64 << 20  # Slipstream's client sends batches of 4 MiB
BATCH_ROWS_MAX = 1 << 17
QUERY_CHARACTERS_MAX = 1024
WAIT_SECONDS_MAX = 600.0  # whatever a client would wait
SILENT_SECONDS = 600.0  # a writer whose next rows take their time
LARGEST = 2**63 - 1
MESSAGES = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.string()),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
        pa.field("body", pa.binary()),
        pa.field("queueId", pa.int32()),
    ]
)
PLACES = {"topic": 0, "tags": 1, "keys": 2, "properties": 3, "body": 4, "queue_id": 5}
FIELDS = frozenset({"version", "query", "epoch", "partition", "acks", "idempotent", "timeout", "since", "keyed"})


@dataclass(frozen=True)
class Put:
    """The words of a writer on its rows: whose task they are, and how sure it wants to be."""

    task: TaskId
    acks: str = BROKER
    idempotent: bool = True
    timeout_s: float = 60.0
    since_ms: int = 0
    is_keyed: bool = False

    def encoded(self) -> bytes:
        """Return the put as JSON for a descriptor's command."""
        fields = {
            "version": VERSION, "query": self.task.query, "epoch": self.task.epoch, "partition": self.task.partition,
            "acks": self.acks, "idempotent": self.idempotent, "timeout": self.timeout_s, "since": self.since_ms,
            "keyed": self.is_keyed,
        }  # fmt: skip
        return json.dumps(fields, separators=(",", ":")).encode("ascii")


def parsed(command: bytes) -> Put:
    """Return what a client's command says. Raises InvalidPut."""
    fields = fields_of(command, COMMAND_BYTES_MAX, FIELDS, _wrong)
    query, timeout = fields.get("query"), fields.get("timeout", 60.0)
    if not isinstance(query, str) or not 0 < len(query) <= QUERY_CHARACTERS_MAX or not query.isprintable():
        raise _wrong(f"query is not a printable text of 1 to {QUERY_CHARACTERS_MAX} characters")
    if type(timeout) not in (int, float) or not 0 < timeout <= LARGEST:
        raise _wrong("timeout is not a number of seconds")
    acks, idempotent, keyed = fields.get("acks", BROKER), fields.get("idempotent", True), fields.get("keyed", False)
    if acks not in ACKS.values() or type(idempotent) is not bool or type(keyed) is not bool:
        raise _wrong(f"acks is one of {', '.join(sorted(set(ACKS.values())))}, idempotent and keyed are true or false")
    numbers = [fields.get(name, 0) for name in ("epoch", "partition", "since")]
    if not all(type(number) is int and 0 <= number <= LARGEST for number in numbers):
        raise _wrong("epoch, partition and since are whole numbers from 0")
    epoch, partition, since = numbers
    return Put(TaskId(query, epoch, partition), acks, idempotent, min(timeout, WAIT_SECONDS_MAX), since, keyed)


class Incoming(Stream):
    """A writer's batches as they come, each checked before anything is done with it."""

    patience_s = SILENT_SECONDS

    def receive(self, reader: Any, served: frozenset[str] | None) -> None:
        """Begin to receive batches of served topics. Raises InvalidPut."""
        if not reader.schema.equals(MESSAGES):
            raise InvalidPut(f"a put's rows have the columns {', '.join(MESSAGES.names)} in their types")
        self.begin(self._checked(reader, served), None)

    def __next__(self) -> pa.RecordBatch:
        self.waits_since = time.monotonic()
        try:
            self.refuse_when_stopped()
            return next(self._batches)
        finally:
            self.waits_since = None

    def _checked(self, reader: Any, served: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                what = " ".join(str(error).split())[:200]
                raise InvalidPut(f"the writer disconnected, or sent no valid batch: {what}") from None
            if batch is None or not batch.num_rows:
                continue
            if batch.nbytes > BATCH_BYTES_MAX or batch.num_rows > BATCH_ROWS_MAX:
                what = f"a batch of {batch.num_rows} rows and {batch.nbytes} bytes"
                raise InvalidPut(f"{what}; {BATCH_ROWS_MAX} rows and {BATCH_BYTES_MAX} bytes at most")
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InvalidPut(f"an invalid batch: {str(error)[:200]}") from None
            for topic in pc.unique(batch["topic"]).to_pylist():
                if topic is not None and (is_system_topic(topic) or (served is not None and topic not in served)):
                    raise MayNotWrite(f"topic {topic[:255]!r} is not written to through this server")
            yield batch


def takes_puts(root: str) -> bool:
    """Whether a master runs on the store."""
    try:
        engine_of(root)
    except NoEngine:
        return False
    return True


def done(put: Put, root: str, batches: Iterator[pa.RecordBatch]) -> Appended:
    """Append the rows that the log lacks. Raises NotWritable, and what a write on the master's host raises."""
    if not takes_puts(root):
        raise NotWritable("no master runs on the store that is served here; ask the server beside the master")
    options = WriteOptions(
        path=os.fspath(root),
        acks=put.acks,
        idempotent=put.idempotent,
        write_id=put.task.query,
        timeout_s=put.timeout_s,
        drops_system_properties=False,
    )
    return append(batches, put.task, options, SinkColumns(PLACES, put.is_keyed), put.since_ms)


def answer(writer: Any, written: Appended) -> None:
    """Tell the writer. Raises InvalidPut where it has gone: what it sent until then is in the log."""
    try:
        writer.write(json.dumps({"appended": written.appended, "inLog": written.in_log}).encode())
    except (pa.ArrowException, OSError):
        what = f"the writer disconnected before its answer; {written.appended} of its rows were appended"
        raise InvalidPut(what) from None


def _wrong(what: str) -> InvalidPut:
    return InvalidPut(f"a put's command: {what}; docs/flight.md says what it is")
