"""The columns that a request or a ticket names, and their types in Arrow: those that a read in place has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from spark_bridge.options.rows import ERROR_COLUMN, RowOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import Column, arrow_schema, canonical, columns_of


class Wanted(NamedTuple):
    """Columns by name, how they are made, and the schema of their batches."""

    names: tuple[str, ...]
    columns: list[Column]
    schema: pa.Schema


def wanted_of(names: Sequence[str] | None, rows: RowOptions) -> Wanted:
    """Return the wanted columns. Raises InvalidOption for an unknown one, and where no column can report damage."""
    chosen = None if names is None else canonical(names)
    columns = columns_of(chosen, rows)
    named = tuple(column.name for column in columns)
    if rows.permissive and ERROR_COLUMN not in named:
        raise InvalidOption(f"mode=permissive reports damage in column {ERROR_COLUMN}: add it to the columns")
    return Wanted(named, columns, arrow_schema(columns))
