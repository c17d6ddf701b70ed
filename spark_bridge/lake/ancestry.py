"""Which offsets an Iceberg table's current snapshot has: its own, or those of the nearest ancestor that says them.

    S1 (ours: 100) ── S2 (ours: 200)        rolled back to S1: the current snapshot's line does not lead through S2,
     └── C3 (compaction) ◀── current        so 100 counts

Snapshots of other programs that add, delete or rewrite rows leave the offsets as they are. One that replaces rows may
have taken a whole load away: Iceberg calls a DELETE that rewrites files `overwrite`, as it calls INSERT OVERWRITE.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

OVERWRITE, DELETE, APPEND = "overwrite", "delete", "append"


class End(Enum):
    """The end of a line of snapshots."""

    AT_OFFSETS = auto()
    AT_FIRST = auto()
    AT_EXPIRED = auto()


class Line(NamedTuple):
    """The current snapshot and its ancestors, up to the first one with offsets.

    `ids` also has the parent of the last one, which may be expired. `replaced_by` is the oldest snapshot of another
    program that replaced rows, or None.
    """

    ids: tuple[int, ...]
    end: End
    offsets: str | None
    replaced_by: int | None
    is_empty: bool


def line_of(current: Snapshot, by_id: Callable[[int], Snapshot | None], key: str) -> Line:
    """The line of a snapshot; `key` names the offsets in a summary."""
    ids: list[int] = []
    replaced_by: int | None = None
    newer_operation = ""
    is_empty = _said(current, "total-records") == "0"
    end, offsets, snapshot = End.AT_EXPIRED, None, by_id(current.snapshot_id)
    while snapshot is not None:
        ids.append(snapshot.snapshot_id)
        offsets, parent = _said(snapshot, key), snapshot.parent_snapshot_id
        if offsets is not None or parent is None:
            end = End.AT_FIRST if offsets is None else End.AT_OFFSETS
            break
        operation = "" if snapshot.summary is None else str(snapshot.summary.operation.value)
        if _replaces(snapshot, operation, newer_operation):
            replaced_by = snapshot.snapshot_id
        newer_operation = operation
        if parent in ids:
            break
        snapshot = by_id(parent)
        if snapshot is None:
            ids.append(parent)
    return Line(tuple(ids), end, offsets, replaced_by, is_empty)


def _replaces(snapshot: Snapshot, operation: str, newer_operation: str) -> bool:
    """Whether another program may have put rows of its own in the place of the loader's.

    PyIceberg overwrites by two snapshots: one deletes rows, the next one appends. What only takes files away is a
    DELETE, whatever the engine calls it.
    """
    if operation == OVERWRITE and _said(snapshot, "added-data-files") not in (None, "0"):
        return _said(snapshot, "deleted-data-files") not in (None, "0")
    if operation == OVERWRITE:
        operation = DELETE
    if operation == DELETE:
        return newer_operation == APPEND
    return operation == ""


def _said(snapshot: Snapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)
