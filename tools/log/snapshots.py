"""What `slipstream snapshot` does: take one, drop one, show them all with what has become of each."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from engine.net.printable import printable
from store.errors import OwnFileDamaged, StoreError
from store.files.directory import store_directory
from store.upkeep import snapshots
from store.upkeep.snapshots import SNAPSHOTS_MAX, Snapshot, SnapshotForeign, SnapshotUnknown
from tools.common.how_many import how_many
from tools.common.moments import time_text
from tools.common.output_form import json_text

KEPT, EXPIRED, FOREIGN, DAMAGED = "kept", "expired", "foreign", "damaged"
Json = dict[str, Any]


def snapshot(words: tuple[str, ...], is_list: bool, is_drop: bool, keep_ms: int, as_json: bool) -> int:
    """Take, drop or list snapshots. Raises UsageError, and what the store's snapshots raise."""
    if is_list and is_drop:
        raise click.UsageError("--list and --drop cannot be combined")
    if len(words) != (1 if is_list else 2):
        raise click.UsageError("give only STORE with --list, otherwise NAME and STORE")
    store = Path(words[-1])
    if is_list:
        return _show(store, as_json)
    if is_drop:
        store_directory(store)
        snapshots.drop(store, words[0])
        _say(store, [], as_json, f"snapshot {words[0]}: dropped")
        return 0
    store_directory(store)
    snapshots.refuse_unkept(store, words[0], keep_ms)
    from store.upkeep import snapshot_state  # wrong arguments are reported without loading numpy

    taken = snapshot_state.take(store, words[0], keep_ms)
    text = (
        f"snapshot {taken.name}: {how_many(taken.queues, 'queue')}, the log from {taken.min_offset:,}"
        f" to {taken.end_offset:,};"
        f" kept until {time_text(taken.expires_ms)}"
    )
    _say(store, [_fields(taken, KEPT, "") | {"offsets": _offsets(taken)}], as_json, text)
    return 0


def _show(store: Path, as_json: bool) -> int:
    store_directory(store)
    names = sorted(itertools.islice(snapshots.names(store), SNAPSHOTS_MAX + 1))
    rows = [row for row in (_row(store, name) for name in names) if row is not None]
    if as_json:
        _say(store, rows, as_json, "")
        return 0
    if not rows:
        click.echo("no snapshots; `slipstream snapshot NAME STORE` makes one")
        return 0
    from rich.table import Table

    from tools.common.watch import plain_console

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "state", "queues", "from", "to", "kept until"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        counts = (f"{row[name]:,}" if name in row else "-" for name in ("queues", "minOffset", "endOffset"))
        until = time_text(row["expiresMs"]) if "expiresMs" in row else "-"
        table.add_row(row["name"], row["state"], *counts, until)
    plain_console(is_table=True).print(table)
    for row in rows:
        if row["reason"]:
            click.echo(printable(row["reason"]))
    return 0


def _row(store: Path, name: str) -> Json | None:
    """Return a snapshot as a row, with its state; None for one that has just gone."""
    from store.upkeep import snapshot_state

    try:
        one = snapshots.read(store, name)
    except SnapshotUnknown:
        return None
    except (OwnFileDamaged, SnapshotForeign) as error:
        return {"name": name, "state": DAMAGED, "reason": str(error)}
    try:
        snapshot_state.require(store, one)
    except SnapshotForeign as error:
        return _fields(one, FOREIGN, str(error))
    except StoreError as error:
        return _fields(one, EXPIRED, str(error))
    return _fields(one, KEPT, "")


def _fields(one: Snapshot, state: str, reason: str) -> Json:
    return {
        "name": one.name, "state": state, "reason": reason, "queues": one.queues, "minOffset": one.min_offset,
        "endOffset": one.end_offset, "createdMs": one.created_ms, "expiresMs": one.expires_ms,
    }  # fmt: skip


def _offsets(one: Snapshot) -> dict[str, dict[str, int]]:
    return {topic: {str(queue): end for queue, end in ends.items()} for topic, ends in one.offsets.items()}


def _say(store: Path, rows: list[Json], as_json: bool, text: str) -> None:
    click.echo(json_text("snapshot", {"store": str(store), "snapshots": rows}) if as_json else text)
