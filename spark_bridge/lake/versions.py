"""Which version's offsets a Delta table has: those of its last load, unless a RESTORE went back behind that.

    v3 load ── v5 load ── v6 RESTORE to v4 ── v7 OPTIMIZE        the offsets of v4 count, which are those of v3

Application transactions outlive a RESTORE, so the table's history is read from its newest version on. A load's commit
says on which version it was built: a RESTORE that came between the two is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from deltalake import DeltaTable as Table

BUILT_ON = "slipstream.built-on"  # of a load's commit: the version that it read
PAGE, PAGE_GROWTH = 64, 8
RESTORE = "RESTORE"
REPLACING = ("REPLACE TABLE", "CLONE")  # in the names of operations
MODES = {"mode": "overwrite", "outputMode": "complete"}  # of operations that replace rows


class Source(NamedTuple):
    """Source of a table's offsets, and what is doubtful about them.

    `version` is that of the table whose transactions count. `doubt` says why they may not be those of the rows that
    are there, None where they are; rows before the last ones are missing then where `has_gap`. `is_expired` where the
    history ends before a load.
    """

    version: int
    doubt: str | None = None
    is_expired: bool = False
    has_gap: bool = False


def entries_of(table: Table) -> Iterator[Mapping[str, Any]]:
    """The table's history, newest first, each with its `version`; read page by page."""
    done, limit = 0, PAGE
    while True:
        page = table.history(limit)
        yield from page[done:]
        if len(page) < limit:
            return
        done, limit = len(page), limit * PAGE_GROWTH


def source_of(table: Table, version: int, version_at: Callable[[int], int]) -> tuple[Source, int | None]:
    """The source of the offsets of a version; and the version that a RESTORE brought back, if one was met.

    Where the second one is not None, the source's version is the RESTORE's own. `table` is the newest version, whose
    history is read: deltalake gives no other one. `version_at` finds the version of a time.
    """
    doubt: str | None = None
    oldest = version
    built_on: int | None = None  # of the load that was met: it did not read what lies between
    for entry in entries_of(table):
        if int(entry["version"]) > version:
            continue
        oldest = int(entry["version"])
        if built_on is not None and oldest <= built_on:
            return Source(version, doubt), None
        what = reverting(entry)
        if what is not None and built_on is not None:
            return Source(version, f"version {oldest} ({what}) came while a load was committed", has_gap=True), None
        if what == RESTORE:
            target = restored_version(entry, version_at)
            if target is not None and target < oldest:
                return Source(oldest, doubt), target
            return Source(version, f"version {oldest} (RESTORE) does not say which version it brought back"), None
        if what is not None:
            doubt = doubt or f"version {oldest} ({what}) of another program replaced rows"
        elif built_on is None and BUILT_ON in entry:
            built_on = _built_on(entry, oldest)
    return Source(version, doubt, is_expired=built_on is None and oldest > 0), None


def reverting(entry: Mapping[str, Any]) -> str | None:
    """Return what a commit of another program did that may have taken whole loads away; None for all else."""
    operation = str(entry.get("operation", ""))
    if operation == RESTORE:
        return RESTORE
    parameters = entry.get("operationParameters")
    given = parameters if isinstance(parameters, Mapping) else {}
    if any(name in operation for name in REPLACING):
        return operation
    if any(str(given.get(name, "")).strip('"').lower() == mode for name, mode in MODES.items()):
        return f"{operation}, overwriting"
    return None


def reverted_since(table: Table, version: int) -> str | None:
    """The newest commit after that version that reverted or replaced rows, in words."""
    for entry in entries_of(table):
        if int(entry["version"]) <= version:
            return None
        what = reverting(entry)
        if what is not None:
            return f"version {entry['version']} ({what})"
    return None


def restored_version(entry: Mapping[str, Any], version_at: Callable[[int], int]) -> int | None:
    """The version that a RESTORE brought back; None where it says a time in words, which depend on a zone."""
    parameters = entry.get("operationParameters")
    given = parameters if isinstance(parameters, Mapping) else {}
    version, at_ms = _plain(given.get("version")), _plain(given.get("datetime"))
    if version.isdecimal():
        return int(version)
    return version_at(int(at_ms)) if at_ms.isdecimal() else None


def _plain(value: object) -> str:
    """A parameter as it is meant: some programs write JSON into its text."""
    text = str(value)
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def _built_on(entry: Mapping[str, Any], version: int) -> int:
    text = str(entry[BUILT_ON])
    return int(text) if text.isdecimal() and int(text) < version else version - 1
