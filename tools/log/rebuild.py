"""`slipstream log rebuild`: consume queues or index files rebuilt from the log, while no broker runs."""

from __future__ import annotations

from pathlib import Path

import click

from store.files.directory import store_directory
from store.index.index_file import Geometry
from store.repair.rebuild import Rebuilt, locked, rebuild_index, rebuild_queues
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.log.delays import delays_of
from tools.log.options import NotReadable

NAMED_MAX = 5


def queue(
    store: Path,
    topic: str | None,
    queue_id: int | None,
    file_bytes: int | None,
    delay_levels: str | None,
    shown: bool | None,
    as_json: bool,
) -> int:
    """Build the consume queues of STORE again."""
    directory, delays_ms = store_directory(store), delays_of(delay_levels, store)
    with locked(directory), progress("rebuild queue", shown) as update:
        done = rebuild_queues(directory, update, topic, queue_id, file_bytes, delays_ms)
    if topic is not None and not done.replaced:
        raise NotReadable(f"the log holds nothing of topic {topic!r}" + (f", queue {queue_id}" if queue_id else ""))
    _say_how_many(done, "queues", as_json)
    return 0


def index(store: Path, slots: int | None, entries: int | None, shown: bool | None, as_json: bool) -> int:
    """Build the index of STORE again."""
    geometry = Geometry(slots, entries) if slots is not None and entries is not None else None
    directory = store_directory(store)
    with locked(directory), progress("rebuild index", shown) as update:
        done = rebuild_index(directory, update, geometry)
    _say_how_many(done, "index files", as_json)
    return 0


def _say_how_many(done: Rebuilt, what: str, as_json: bool) -> None:
    if as_json:
        fields = {"replaced": len(done.replaced), "kept": done.kept, "findings": done.findings}
        click.echo(json_text("log.rebuild", fields))
        return
    click.echo(f"{len(done.replaced)} {what} rebuilt from the log")
    if done.kept:
        more = f" and {len(done.kept) - NAMED_MAX} more" if len(done.kept) > NAMED_MAX else ""
        names = ", ".join(done.kept[:NAMED_MAX])
        click.echo(f"{len(done.kept)} kept unchanged, because the log has no plain records of them: {names}{more}")
    for finding in done.findings:
        click.echo(finding, err=True)
