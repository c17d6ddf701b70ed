"""Checks the arguments of `slipstream log` before its work is loaded."""

from __future__ import annotations

from pathlib import Path

import click

from ipc.extras import require_arrow
from store.errors import NotAStore
from store.files.directory import store_directory
from store.reading.extent import require_idle, require_running
from tools.log.delays import delays_of
from tools.log.export_columns import chosen_columns
from tools.log.options import NotReadable


def cat(store: Path, since: int | None, until: int | None, follow: bool, **_others: object) -> None:
    """Check the arguments of `log cat`. Raises NotReadable, NoBroker."""
    if since is not None and until is not None and since >= until:
        raise NotReadable("--since is not before --until, so no message can match; exchange them")
    if follow and store.is_file():
        raise NotReadable(f"{store} is a file, and no broker appends to it; --follow needs a store")
    if follow:
        require_running(store)


def find(
    store: Path,
    key: str | None,
    message_id: str | None,
    offset: int | None,
    queue: tuple[str, int] | None,
    moment: int | None,
    **_others: object,
) -> None:
    """Check the arguments of `log find`. Raises UsageError, NotAStore."""
    asked = [key is not None, message_id is not None, offset is not None, queue is not None or moment is not None]
    if sum(asked) != 1 or (queue is None) != (moment is None):
        raise click.UsageError("give one of --key, --id, --offset, or --queue together with --time")
    if queue is not None:
        directory = store_directory(store).consumequeue / queue[0] / str(queue[1])
        if not directory.is_dir():
            raise NotAStore(str(directory), "the queue does not exist")


def export(parquet: Path | None, json_file: Path | None, columns: str | None, **_others: object) -> None:
    """Check the arguments of `log export`. Raises NotReadable, ExtraMissing."""
    target = parquet or json_file
    if target is None or (parquet and json_file):
        raise NotReadable("give one of --parquet FILE and --json FILE")
    if not target.absolute().parent.is_dir():
        raise NotReadable(f"{target.parent} is not a directory")
    chosen_columns(columns)
    if parquet is not None:
        require_arrow("--parquet")


def verify(store: Path, delay_levels: str | None, **_others: object) -> None:
    """Check the arguments of `log verify`. Raises NotReadable."""
    delays_of(delay_levels, store)


def sidecar(is_check: bool, is_drop: bool, **_others: object) -> None:
    """Check the arguments of `log sidecar`. Raises UsageError, ExtraMissing."""
    if is_check and is_drop:
        raise click.UsageError("--check and --drop cannot be combined")
    if not is_drop:
        require_arrow("slipstream log sidecar")


def repair(store: Path, other: Path | None, cut_at: int | None, forget_missing: bool, **_others: object) -> None:
    """Check the arguments of `log repair`. Raises NotReadable, NotAStore, StoreLocked."""
    if (other is not None) + (cut_at is not None) + forget_missing != 1:
        raise NotReadable("give one of --from STORE (of a replica), --cut OFFSET, --forget-missing")
    if other is not None:
        if other.exists() and other.resolve() == store.resolve():
            raise NotReadable("--from names the store itself")
        store_directory(other)
    require_idle(store_directory(store))


def rebuild_queue(
    store: Path, topic: str | None, queue_id: int | None, delay_levels: str | None, **_others: object
) -> None:
    """Check the arguments of `log rebuild-queue`. Raises NotReadable, StoreLocked."""
    if queue_id is not None and topic is None:
        raise NotReadable("--queue needs --topic")
    delays_of(delay_levels, store)
    require_idle(store_directory(store))


def rebuild_index(store: Path, slots: int | None, entries: int | None, **_others: object) -> None:
    """Check the arguments of `log rebuild-index`. Raises NotReadable, StoreLocked."""
    if (slots is None) != (entries is None):
        raise NotReadable("--slots and --entries must be given together")
    require_idle(store_directory(store))
