"""What can end a load into a table, each with its code and what to do."""

from __future__ import annotations

DROPPED = "it was dropped meanwhile; start again, which makes it anew"
MADE_ANEW = "it was dropped and made anew meanwhile; start again, which loads the new one from the log's beginning"


class LakeError(Exception):
    """A load ended, or did not begin. All that is in the table is whole: rows and offsets come in one commit."""

    code = "LAKE_FAILED"


class LakeFailed(LakeError):
    """The catalog, the storage or a disk failed, or could not be asked.

    Next: do what the message says; then the same command goes on behind the last commit.
    """

    code = "LAKE_FAILED"


class OtherLog(LakeError):
    """The offsets in a table are of another log: another broker's, another history, or one that was cut since.

    Next: give the store that the table was loaded from, a replica of it that is as far, or a new table.
    """

    code = "LAKE_OTHER_LOG"


class TableNotOurs(LakeError):
    """A table has rows, and no offsets that say of which messages.

    Next: name a new table, or one without rows.
    """

    code = "LAKE_NOT_OURS"


class SchemaRefused(LakeError):
    """A table's columns and those of the rows do not go together; nothing was written.

    Next: only new columns, and in Iceberg wider numbers, may come; change the schema file, change the column in the
    table's engine, or a new table.
    """

    code = "LAKE_SCHEMA"


class OffsetsDamaged(LakeError):
    """What a table has as offsets cannot be read.

    Next: put the property back from an earlier version of the table's metadata, or load a new table.
    """

    code = "LAKE_OFFSETS"


class Overtaken(LakeError):
    """Another process loads the same table, and its commit came first.

    Next: let one of them run.
    """

    code = "LAKE_OVERTAKEN"


class TableGone(LakeError):
    """The table was dropped, or made anew, while it was loaded.

    Next: start again, which makes a table and loads it from the log's beginning.
    """

    code = "LAKE_TABLE_GONE"


class RolledBack(LakeError):
    """Another program rolled the table back, or replaced its rows, while it was loaded.

    Next: start again; the load goes on behind the offsets of the table as it is now.
    """

    code = "LAKE_ROLLED_BACK"


class OffsetsUnknown(LakeError):
    """Another program replaced the table's rows, or brought back a state of the table whose offsets are not recorded.

    Next: put the table back to the version that the message names, name a new table, or load only what is newer than
    everything loaded before, with `--on-loss go-on`.
    """

    code = "LAKE_OFFSETS_UNKNOWN"


class Conflict(Exception):
    """A commit was refused because the table has changed: whether by another loader, the table's offsets tell."""
