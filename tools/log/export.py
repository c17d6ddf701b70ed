"""`slipstream log export`: the messages of a store as a Parquet file, or as JSON lines, in bounded memory.

Parquet, and what JSON's fields are called: topic string, queueId int32, queueOffset int64, physicalOffset int64, msgId
string, tags string, keys string, properties map<string,string>, body binary (decompressed unless --raw-bodies), flag
int32, sysFlag int32, bornTimestamp and storeTimestamp timestamp[ms, UTC], bornHost string, storeHost string,
reconsumeTimes int32, preparedTransactionOffset int64, bodyCrc int32 (of the stored body). In JSON times are
milliseconds, and bodies are text where they are UTF-8 (`body`), else base64 (`bodyBase64`).

A message whose body cannot be decompressed is reported on standard error and exported as it is stored.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click

from store.errors import MalformedData
from store.files import file_io
from store.message.compression import body_of
from store.message.record import Message, identity_at
from store.reading.by_time import first_since
from store.reading.log_reader import LogReader, open_log
from store.reading.summary import records
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.message_text import BODY_BYTES_MAX
from tools.common.output_form import json_text
from tools.common.progress import Update, progress
from tools.log.cat import Wanted
from tools.log.export_columns import COLUMNS, chosen_columns

UNFINISHED = ".unfinished"
BATCH_BYTES, BATCH_ROWS = 16 << 20, 65536
PROBLEMS_MAX = 100  # reported one by one


def export(
    store: Path,
    parquet: Path | None,
    json_file: Path | None,
    topics: tuple[str, ...],
    start: int | None,
    end: int | None,
    since: int | None,
    until: int | None,
    columns: str | None,
    limit: int | None,
    raw_bodies: bool,
    shown: bool | None,
    as_json: bool,
) -> int:
    """Write the messages of STORE to a file, which appears under its name when it is whole."""
    target = parquet or json_file
    assert target is not None
    names = chosen_columns(columns)
    reader = open_log(store)
    first = reader.min_offset if start is None else reader.boundary_at(start)
    first = first if since is None else max(first, first_since(reader, since))
    wanted, problems = Wanted(topics, None, since, until, None), list[str]()
    unfinished = target.with_name(target.name + UNFINISHED)
    with progress("export", shown) as update:
        chosen = wanted.of(_read(reader, first, end, update))
        rows = ([*_row(message, names, raw_bodies, problems)] for message in islice(chosen, limit))
        try:
            count = (_write_parquet if parquet else _write_json)(unfinished, names, rows)
            file_io.sync_path(unfinished)
            file_io.rename(unfinished, target)
        finally:
            file_io.unlink(unfinished)
    for problem in problems:
        click.echo(problem, err=True)
    fields = {"messages": count, "file": str(target), "bodiesAsStored": len(problems)}
    click.echo(json_text("log.export", fields) if as_json else f"{how_many(count, 'message')} in {target}")
    return ExitCode.FOUND if problems else 0


def _read(reader: LogReader, first: int, end: int | None, update: Update) -> Iterator[memoryview]:
    total = (reader.max_offset if end is None else min(end, reader.max_offset)) - first
    for number, record in enumerate(records(reader, first)):
        offset, _ = identity_at(record, 0)
        if end is not None and offset >= end:
            return
        if not number % BATCH_ROWS:
            update(offset - first, total)
        yield record


def _row(message: Message, names: list[str], raw_bodies: bool, problems: list[str]) -> Iterator[Any]:
    for name in names:
        if name == "body" and not raw_bodies:
            try:
                yield bytes(body_of(message.body, message.sys_flag, BODY_BYTES_MAX))
                continue
            except MalformedData as error:
                if len(problems) < PROBLEMS_MAX:
                    problems.append(f"offset {message.physical_offset}: its body is exported as stored: {error}")
        yield COLUMNS[name][1](message)


def _write_json(path: Path, names: list[str], rows: Iterator[list[Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            fields = dict(zip(names, row, strict=True))
            if "body" in fields:
                body = fields["body"]
                fields["body"] = None
                with suppress(UnicodeDecodeError):
                    fields["body"] = body.decode()
                if fields["body"] is None:
                    del fields["body"]
                    fields["bodyBase64"] = base64.b64encode(body).decode()
            file.write(json.dumps(fields, ensure_ascii=True) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, names: list[str], rows: Iterator[list[Any]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"map": pa.map_(pa.string(), pa.string()), "timestamp": pa.timestamp("ms", tz="UTC")}
    types = [(name, kinds.get(COLUMNS[name][0]) or getattr(pa, COLUMNS[name][0])()) for name in names]
    schema, count = pa.schema(types), 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            columns = [
                pa.array([list(value.items()) for value in column] if COLUMNS[name][0] == "map" else column, kind)
                for (name, kind), column in zip(types, zip(*batch, strict=True), strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            count += len(batch)
    return count


def _batches(rows: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    """Rows together until they have many bytes."""
    batch: list[list[Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes | str)) + 64
        if size >= BATCH_BYTES or len(batch) >= BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
