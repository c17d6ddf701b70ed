"""`slipstream lake`, at work: commit after commit, until all is loaded or a signal to stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipc.extras import require_lake
from ipc.stop_signals import handle_stop_signals
from tools.common.how_many import how_many
from tools.common.output_form import json_text

if TYPE_CHECKING:
    from spark_bridge.lake.load import Committed
    from spark_bridge.lake.request import Request
    from spark_bridge.lake.tables import Tables

LOOK_SECONDS = 0.2
EARLIEST = "earliest"
SCHEMA_BYTES_MAX = 1 << 20
SCHEMA_OPTIONS, PROTOBUF = {"json": "valueSchema", "avro": "avroSchema"}, "protobuf"  # whose schema is more than a text


def load(
    store: tuple[str, ...],
    to: str,
    table: str,
    catalog: str | None,
    warehouse: str | None,
    storage: str | None,
    topics: tuple[str, ...],
    decode: str | None,
    schema_file: str | None,
    message: str | None,
    columns: str | None,
    permissive: bool,
    start: str,
    confirmed: bool,
    on_loss: str,
    more: tuple[str, ...],
    once: bool,
    every_ms: int,
    max_rows: int,
    max_bytes: int,
    as_json: bool,
) -> int:
    """Load. Raises LakeError, InvalidOption, DataLost, StoreNotReady, ConfigError, ExtraMissing, and StoreError."""
    require_lake("slipstream lake", to)
    from spark_bridge.lake.request import Request

    _refuse_misplaced(to, catalog or warehouse, storage)
    options: dict[str, object] = {"failOnDataLoss": on_loss == "stop", **_given(more)}
    if start != EARLIEST:  # which it is unless an option says a time, or offsets
        options["startingOffsets"] = start
    options |= _decoding(decode, schema_file, message)
    if permissive:
        options["mode"] = "permissive"
    if confirmed:
        options["onlyConfirmed"] = True
    properties = _catalog(catalog, warehouse) if to == "iceberg" else _file(storage)
    named = None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip())
    stores = store[0] if len(store) == 1 else store
    request = Request(stores, to, table, properties, topics or None, named, max_rows, max_bytes, options)
    request.check()
    from spark_bridge.lake.tables import Tables  # loads Arrow, which wrong options do not need

    with Tables(request, is_once=once) as tables:
        tables.open()
        if once:
            _load_all(tables, request, as_json)
        else:
            _follow(tables, request, store, every_ms / 1000, as_json)
    return 0


def _load_all(tables: Tables, request: Request, as_json: bool) -> None:
    rows = commits = 0
    for committed in tables.commits(is_due=True):
        _say(committed, request, as_json)
        rows, commits = rows + committed.rows, commits + 1
    if not as_json:
        click.echo(f"{how_many(rows, 'row')} in {how_many(commits, 'commit')}" if commits else "nothing new")


def _follow(tables: Tables, request: Request, store: Sequence[str], every_s: float, as_json: bool) -> None:
    """Load until a signal to stop; a commit under way is finished."""
    from engine.net import log_lines
    from tools.run.readiness import ServiceManager, announce

    stopped = threading.Event()
    handle_stop_signals(lambda _number, _frame: stopped.set())
    log_lines.configure()
    what = f"{', '.join(store)} into {request.table}"
    if not as_json:
        announce(f"ready: {what}, process {os.getpid()}")
    ServiceManager().ready(what)
    due = time.monotonic()
    while not stopped.wait(LOOK_SECONDS):
        tables.open()
        is_due = time.monotonic() >= due
        for committed in tables.commits(is_due=is_due, is_stopped=stopped.is_set):
            _say(committed, request, as_json)
        if is_due:
            due = time.monotonic() + every_s


def _say(committed: Committed, request: Request, as_json: bool) -> None:
    if as_json:
        fields = {"table": committed.table, "version": committed.version, "rows": committed.rows,
                  "bytes": committed.nbytes}  # fmt: skip
        click.echo(json_text("lake", fields))
        return
    kind = "snapshot" if request.to == "iceberg" else "version"
    click.echo(f"{committed.table}: {how_many(committed.rows, 'row')} in {kind} {committed.version}")


def _given(more: tuple[str, ...]) -> dict[str, str]:
    """Options as NAME=VALUE. Raises InvalidOption."""
    from spark_bridge.options.values import InvalidOption

    options = {}
    for text in more:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidOption(f"--option {text!r}: not NAME=VALUE, for example --option subExpression=new")
        options[name.strip()] = value
    return options


def _decoding(decode: str | None, schema_file: str | None, message: str | None) -> dict[str, str]:
    """Return the options for decoding bodies. Raises InvalidOption, OSError."""
    from spark_bridge.options.values import InvalidOption

    if decode is None and schema_file is not None:
        known = ", ".join([*SCHEMA_OPTIONS, PROTOBUF])
        raise InvalidOption(f"--schema {schema_file}: needs --decode, one of {known}")
    if message is not None and decode != PROTOBUF:
        raise InvalidOption(f"--message {message}: needs --decode {PROTOBUF} and a descriptor set as --schema")
    if decode is None:
        return {}
    options = {"decode": decode}
    if decode == PROTOBUF:
        given = {"protobufDescriptors": schema_file, "protobufMessage": message}
        return options | {name: value for name, value in given.items() if value is not None}
    if schema_file is not None:
        options[SCHEMA_OPTIONS[decode]] = _text(schema_file)
    return options


def _text(schema_file: str) -> str:
    """Return the text of a schema file. Raises InvalidOption, OSError."""
    from spark_bridge.options.values import InvalidOption

    with Path(schema_file).open("rb") as file:
        data = file.read(SCHEMA_BYTES_MAX + 1)
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InvalidOption(f"--schema {schema_file}: not UTF-8 ({error.reason} at byte {error.start})") from None
    if len(data) > SCHEMA_BYTES_MAX or not text:
        raise InvalidOption(f"--schema {schema_file}: {len(data)} bytes; is it the right file?")
    return text


def _catalog(catalog: str | None, warehouse: str | None) -> dict[str, str]:
    """PyIceberg's properties of the catalog. Raises InvalidOption, ConfigError."""
    from spark_bridge.lake.request import catalog_properties, is_uri
    from spark_bridge.options.values import InvalidOption

    if catalog is None:
        what = "--catalog is missing: give a URI, such as sqlite:////srv/lake.db or https://catalog:8181"
        raise InvalidOption(f"{what}, or a file with PyIceberg's properties of it")
    return catalog_properties(catalog if is_uri(catalog) else _file(catalog), warehouse)


def _file(name: str | None) -> dict[str, str]:
    """A file of properties, as brokers have them. Raises ConfigError."""
    if name is None:
        return {}
    from engine.settings.config import entries_of

    return {entry.key: entry.value for entry in entries_of(name)}


def _refuse_misplaced(to: str, catalog: str | None, storage: str | None) -> None:
    from spark_bridge.options.values import InvalidOption

    if to == "iceberg" and storage is not None:
        raise InvalidOption("--storage belongs to --to delta; Iceberg's storage is configured in the catalog's file")
    if to == "delta" and catalog is not None:
        raise InvalidOption("--catalog and --warehouse belong to --to iceberg; a Delta table is its directory or URL")
