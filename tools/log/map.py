"""`slipstream log map`: a store's segments as a picture: data, on disk, in the page cache, needed by readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from ipc.clock import monotonic_ms, wall_ms
from ipc.errors import RegionMissing
from store.errors import BrokerOutOfReach
from store.files import checkpoint, file_io, mapped_files
from store.files.segment_files import named_files
from store.reading.extent import Running, running, tell_unreached
from store.reading.log_reader import LogReader, open_log
from store.upkeep import snapshots
from store.upkeep.leases import held_from
from store.verify import digests
from tools.common.output_form import json_text
from tools.common.watch import plain_console

CELLS = 32
CURSORS = ("min_physical_offset", "confirm_offset", "flushed_offset", "reput_from_offset", "max_physical_offset")
# a cell: no data yet; data in the page cache for a part of less than a third, two thirds, more
EMPTY, SHADES = "·", "░▒▓█"


def show_map(store: Path, as_object: bool) -> int:
    """The segments of STORE: sealed, flushed, in the page cache, leased; and where a running broker's cursors are."""
    picture = map_of(store)
    if as_object:
        click.echo(json_text("log.map", picture))
        return 0
    segments = picture["segments"]
    console = plain_console(is_table=True)
    if segments:
        console.print(_table(segments))
    state = "a broker runs" if picture["live"] else "no broker runs"
    console.print(f"{state}; {_legend(picture['cursors'], picture['leasedFrom'])}", highlight=False)
    console.print(f"{EMPTY} no data  {SHADES[0]} on disk only  {SHADES[1]}{SHADES[2]}{SHADES[3]} in the page cache")
    return 0


def map_of(store: Path, chosen: Callable[[list[int]], list[int]] = lambda bases: bases) -> dict[str, Any]:
    """The picture as plain values; of the segments that `chosen` takes of all their base offsets."""
    reader = open_log(store)
    cursors = _cursors(store, reader)
    kept = snapshots.Holds().look(store, wall_ms()).from_offset
    leased = min((low for low in (held_from(store, monotonic_ms()), kept) if low is not None), default=None)
    segments = [_segment(reader, base, cursors, leased) for base in chosen(_bases(reader))]
    known = digests.read(store)
    for segment in segments:
        segment["digest"] = segment["baseOffset"] in known
    return {"live": reader.live, "leasedFrom": leased, "cursors": cursors, "segments": segments}


def _bases(reader: LogReader) -> list[int]:
    return [base for base, size in named_files(reader.directory.commitlog) if size]


def _cursors(store: Path, reader: LogReader) -> dict[str, int]:
    """A running broker's; without one the log's ends and the checkpoint's word."""
    broker = running(store)
    if broker is not None:
        try:
            return _of_broker(broker)
        except (RegionMissing, BrokerOutOfReach) as error:
            tell_unreached(error)  # or it has stopped since
    cursors = {"min_physical_offset": reader.min_offset, "max_physical_offset": reader.max_offset}
    flushed = checkpoint.read(reader.directory.checkpoint).flushed_offset
    if flushed is not None:
        cursors["flushed_offset"] = flushed
    return cursors


def _of_broker(broker: Running) -> dict[str, int]:
    counters = broker.counters()
    try:
        return {name: counters.cursor(name).read() for name in CURSORS}
    finally:
        counters.close()


def _segment(reader: LogReader, base: int, cursors: dict[str, int], leased: int | None) -> dict[str, Any]:
    assert reader.files is not None
    end = base + reader.files.segment_bytes
    used = max(0, min(cursors["max_physical_offset"], end) - base)
    flushed = max(0, min(cursors.get("flushed_offset", 0), end) - base)
    with reader.files.open(base) as segment:
        pages = mapped_files.resident_pages(segment.array)
        allocated = Path(segment.path).stat().st_blocks * 512
    return {
        "file": reader.files.path_of(base).name,
        "baseOffset": base,
        "bytes": end - base,
        "allocatedBytes": allocated,
        "usedBytes": used,
        "sealed": cursors["max_physical_offset"] >= end,
        "flushedBytes": flushed,
        "residentBytes": int(pages.sum()) * file_io.PAGE_BYTES,
        "leased": leased is not None and leased < end,
        "cells": [round(float(part.mean()), 2) if len(part) else 0.0 for part in np.array_split(pages, CELLS)],
    }


def _table(segments: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("segment", no_wrap=True)
    table.add_column("picture", no_wrap=True)
    for heading in ("MiB", "used", "flushed", "cached"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for segment in segments:
        size = segment["bytes"]
        shares = (segment["usedBytes"], segment["flushedBytes"], min(segment["residentBytes"], size))
        marks = [name for name in ("sealed", "leased", "digest") if segment[name]]
        table.add_row(
            segment["file"],
            _picture(segment),
            f"{size / (1 << 20):,.1f}",
            *(f"{share / size:.0%}" for share in shares),
            " ".join(marks),
        )
    return table


def _picture(segment: dict[str, Any]) -> str:
    used = segment["usedBytes"] / segment["bytes"] * CELLS
    shades = [SHADES[min(int(share * 3) + (share > 0), 3)] for share in segment["cells"]]
    return "".join(shade if number < used else EMPTY for number, shade in enumerate(shades))


def _legend(cursors: dict[str, int], leased: int | None) -> str:
    parts = [f"{name.removesuffix('_offset').replace('_', ' ')} {offset:,}" for name, offset in cursors.items()]
    return ", ".join([*parts, *([f"leased from {leased:,}"] if leased is not None else [])])
