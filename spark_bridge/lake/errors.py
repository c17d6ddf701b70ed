"""What can end a load into a table, each with its code and what to do."""

from __future__ import annotations

DROPPED = "it was dropped during the load; start again to create it anew"
MADE_ANEW = "it was dropped and created anew during the load; start again to load the new one from the log's beginning"


class LakeError(Exception):
    """A load ended, or did not begin. All that is in the table is whole: rows and offsets come in one commit."""

    code = "LAKE_FAILED"


class LakeFailed(LakeError):
    """Raised when the catalog, the storage or a disk failed or could not be reached.

    Next: do what the error says; then the same command continues after the last commit.
    """

    code = "LAKE_FAILED"


class OtherLog(LakeError):
    """Raised when a table's offsets belong to another log: of another broker, of another history, or cut since.

    Next: give the store that the table was loaded from, an equally complete replica, or a new table.
    """

    code = "LAKE_OTHER_LOG"


class TableNotOurs(LakeError):
    """Raised when a table has rows, but no offsets of their messages.

    Next: name a new table, or one without rows.
    """

    code = "LAKE_NOT_OURS"


class SchemaRefused(LakeError):
    """Raised when the columns of table and rows do not match; nothing was written.

    Next: only new columns, and in Iceberg wider numbers, may come; change the schema file, change the column in the
    table's engine, or a new table.
    """

    code = "LAKE_SCHEMA"


class OffsetsDamaged(LakeError):
    """Raised when the offsets in a table cannot be read.

    Next: restore the property from an earlier version of the table's metadata, or load a new table.
    """

    code = "LAKE_OFFSETS"


class Overtaken(LakeError):
    """Raised when another process loads the same table and committed first.

    Next: let one of them run.
    """

    code = "LAKE_OVERTAKEN"


class TableGone(LakeError):
    """Raised when the table was dropped or created anew during the load.

    Next: start again to create the table and load it from the log's beginning.
    """

    code = "LAKE_TABLE_GONE"


class RolledBack(LakeError):
    """Raised when another program rolled the table back or replaced its rows during the load.

    Next: start again; the load continues after the present offsets of the table.
    """

    code = "LAKE_ROLLED_BACK"


class OffsetsUnknown(LakeError):
    """Raised when another program replaced the table's rows, or restored a state without recorded offsets.

    Next: restore the version of the table that the error names, name a new table, or load only what is newer than
    everything loaded before, with `--on-loss go-on`.
    """

    code = "LAKE_OFFSETS_UNKNOWN"


class Conflict(Exception):
    """A commit was refused because the table has changed: whether by another loader, the table's offsets tell."""
