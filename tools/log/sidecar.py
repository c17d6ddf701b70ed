"""What `slipstream log sidecar` does: build, check or remove the columnar side files of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from engine.net.printable import printable
from store.errors import SegmentRemoved
from store.files.segment import file_name
from store.upkeep import side_files
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.common.watch import plain_console

BUILT, DROPPED = "built", "dropped"
WRONG = ("stale", "damaged")
Json = dict[str, Any]


def sidecar(
    store: Path, segments: tuple[int, ...], is_check: bool, is_drop: bool, as_json: bool, shown: bool | None
) -> int:
    """Build, check or drop side files. Raises UsageError, SideFilesBusy, and what is wrong with the store."""
    if is_drop:
        return _say(store, _drop(store, segments), as_json)
    from spark_bridge.columnar import rounds

    sealed = rounds.sealed_segments(store)
    if unknown := sorted(set(segments) - set(sealed.bases)):
        raise click.UsageError(f"--segment {unknown[0]}: no sealed segment of this log begins there")
    work = _check if is_check else _build
    wanted = segments or sealed.bases
    with progress("checking" if is_check else "building", shown) as update:
        rows = work(sealed, sorted(wanted), update)
    _say(store, rows, as_json)
    return ExitCode.FOUND if is_check and any(row["state"] in WRONG for row in rows) else ExitCode.WELL


def _build(sealed: Any, bases: Sequence[int], update: Callable[[int, int], None]) -> list[Json]:
    from spark_bridge.columnar import rounds
    from spark_bridge.columnar.side_file import State

    side_files.make_folder(sealed.root)
    fd = side_files.hold(sealed.root)
    try:
        rounds.tidy(sealed)
        wanted = rounds.wanting(sealed, bases)
        places = {base: number for number, (base, _) in enumerate(wanted)}
        length, built = sealed.files.segment_bytes, {}
        with closing(rounds.build_these(sealed, wanted)) as building:
            for one in building:
                if isinstance(one, rounds.Step):
                    update(places[one.base_offset] * length + one.done_bytes, len(wanted) * length)
                else:
                    state = BUILT if one.after.state is State.VALID else one.after.state.value
                    built[one.base_offset] = _row(one.base_offset, one.after, state, one.seconds)
    finally:
        os.close(fd)
    rows = []
    for base in bases:
        with suppress(SegmentRemoved):
            one = sealed.check(base)
            rows.append(built.get(base) or _row(base, one, one.state.value))
    return rows


def _check(sealed: Any, bases: Sequence[int], update: Callable[[int, int], None]) -> list[Json]:
    from spark_bridge.columnar import comparison
    from spark_bridge.columnar.side_file import State

    rows, length = [], sealed.files.segment_bytes
    for number, base in enumerate(bases):
        try:
            one = sealed.check(base)
            row = _row(base, one, one.state.value)
            if one.state is State.VALID:
                for done in comparison.compare(sealed.files, base, one):
                    update(number * length + done, len(bases) * length)
        except SegmentRemoved:
            continue
        except comparison.Differs as differs:
            row |= {"state": State.DAMAGED.value, "reason": str(differs)}
        rows.append(row)
    return rows


def _drop(store: Path, segments: Sequence[int]) -> list[Json]:
    from store.files.directory import store_directory

    root = store_directory(store).root
    folder = side_files.folder_of(root)
    side_files.refuse_foreign(folder)
    if not folder.is_dir():
        return []
    fd = side_files.hold(root)
    try:
        side_files.remove_leftovers(root)
        bases = segments or list(side_files.listed(root))
        dropped = [base for base in bases if side_files.remove(root, base)]
        with suppress(OSError):  # others are left, or strangers' files
            folder.rmdir()
    finally:
        os.close(fd)
    return [{"segment": file_name(base), "state": DROPPED, "reason": ""} for base in dropped]


def _row(base: int, one: Any, state: str, seconds: float | None = None) -> Json:
    row: Json = {"segment": file_name(base), "state": state, "reason": one.reason}
    if one.manifest is not None and one.manifest.data is not None:
        row |= {"rows": one.manifest.rows, "bytes": one.manifest.data.file_bytes}
    return row if seconds is None else row | {"seconds": round(seconds, 3)}


def _say(store: Path, rows: list[Json], as_json: bool) -> int:
    if as_json:
        click.echo(json_text("log.sidecar", {"store": str(store), "segments": rows}))
        return ExitCode.WELL
    if not rows:
        click.echo("no side files, and no sealed segments that could have one")
        return ExitCode.WELL
    table = Table(box=None, pad_edge=False)
    for heading in ("segment", "state", "rows", "bytes", "seconds"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        counts = (f"{row[name]:,}" if name in row else "-" for name in ("rows", "bytes", "seconds"))
        table.add_row(row["segment"], row["state"], *counts)
    plain_console(is_table=True).print(table)
    for row in rows:
        if row["reason"]:
            click.echo(printable(f"{row['segment']}: {row['reason']}"))
    return ExitCode.WELL
