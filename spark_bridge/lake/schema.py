"""The columns of a table, and which change of them may be: new ones may come, and none goes or becomes another.

Numbers may become wider where the format keeps both in one column, as Iceberg does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.lake.errors import SchemaRefused
from spark_bridge.options.columns import canonical
from spark_bridge.options.rows import ERROR_COLUMN, RAW, RowOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import columns_of
from store.columns.columns import arrow_schema

BODY = "body"
COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "tags", "keys",
    "properties", BODY, "brokerName",
)  # fmt: skip
ELSE_DO = "take the schema of before with more fields, or name another table"
WIDE = {
    pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}  # fmt: skip


def read_names(names: Sequence[str] | None, rows: RowOptions) -> list[str]:
    """The columns that are read for a table: those named, else all, and the one that tells of damage.

    Raises InvalidOption.
    """
    read = list(COLUMNS) if names is None else canonical(names)
    if rows.permissive and ERROR_COLUMN not in read:
        read.append(ERROR_COLUMN)
    columns_of(read, rows)
    return read


def table_schema(names: Sequence[str], rows: RowOptions) -> pa.Schema:
    """The table's columns: those read, the fields of a decoded body in its place. Raises InvalidOption."""
    fields: list[pa.Field] = []
    for field in arrow_schema(columns_of(names, rows)):
        fields += _fields_of_body(field) if _is_spread(field, rows) else [field]
    taken: set[str] = set()
    for field in fields:
        if field.name.lower() in taken:
            do = "leave the message's column out with --columns, or give the field another name"
            raise InvalidOption(f"column {field.name!r} is there twice, as a message's and as a body's; {do}")
        taken.add(field.name.lower())
        _refuse_nothing(field.name, field.type)
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in fields])


def _refuse_nothing(name: str, kind: pa.DataType) -> None:
    """Raise InvalidOption for a field of which there is nothing to store, or in which there is one."""
    if pa.types.is_null(kind):
        raise InvalidOption(f"field {name!r} can only be null, which no table stores; leave it out")
    if pa.types.is_struct(kind) and not kind.num_fields:
        raise InvalidOption(f"field {name!r} has no fields of its own, which no table stores; leave it out")
    for number in range(kind.num_fields):
        inside = kind.field(number)
        _refuse_nothing(f"{name}.{inside.name}", inside.type)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that tables have for it: none of them knows whole numbers of 8 and 16 bits in Iceberg."""
    if pa.types.is_integer(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.field("key", kind.key_type, nullable=False), pa.field("value", _stored(kind.item_type)))
    return kind


def table_rows(batch: pa.RecordBatch, schema: pa.Schema, rows: RowOptions) -> pa.Table:
    """A batch that was read, in the table's columns."""
    arrays: list[pa.Array] = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        arrays += array.flatten() if _is_spread(field, rows) else [array]
    return pa.Table.from_arrays(
        [_as(array, field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
    )


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else pc.cast(array, kind)


def _is_spread(field: pa.Field, rows: RowOptions) -> bool:
    return field.name == BODY and rows.decode != RAW and pa.types.is_struct(field.type)


def _fields_of_body(field: pa.Field) -> list[pa.Field]:
    return [one.with_nullable(True) for one in field.type]


def additions(table: str, there: pa.Schema, wanted: pa.Schema, *, may_widen: bool = False) -> list[str]:
    """The columns, and fields of columns, that a table has to get for these rows, or to get wider.

    `may_widen` where the format reads what it has of a narrower type as the wider one. Raises SchemaRefused.
    """
    return list(_Change(table, may_widen).added("", list(there), list(wanted)))


class _Change:
    """The schema that a table has to get. Raises SchemaRefused where it must not."""

    def __init__(self, table: str, may_widen: bool) -> None:
        self._table, self._may_widen = table, may_widen

    def added(self, path: str, there: list[pa.Field], wanted: list[pa.Field]) -> list[str]:
        by_lower = {field.name.lower(): field for field in there}
        new: list[str] = []
        for field in wanted:
            known = by_lower.pop(field.name.lower(), None)
            name = f"{path}{field.name}"
            if known is None:
                new.append(name)
            elif known.name != field.name:
                raise self._refused(f"column {name!r} is called {known.name!r} there")
            else:
                new += self._grown(name, known.type, field.type)
        left = [field for field in by_lower.values() if f"{path}{field.name}" != ERROR_COLUMN]
        if left:
            raise self._refused(f"column {path}{left[0].name!r} of the table is not among those of these rows")
        return new

    def _grown(self, name: str, there: pa.DataType, wanted: pa.DataType) -> list[str]:
        """Return what is new inside of a column."""
        if pa.types.is_struct(there) and pa.types.is_struct(wanted):
            return self.added(f"{name}.", list(there), list(wanted))
        if _is_list(there) and _is_list(wanted):
            return self._grown(f"{name}.element", there.value_type, wanted.value_type)
        if pa.types.is_map(there) and pa.types.is_map(wanted):
            same_key = _Change(self._table, may_widen=False)._grown(f"{name}.key", there.key_type, wanted.key_type)
            return same_key + self._grown(f"{name}.value", there.item_type, wanted.item_type)
        there, wanted = WIDE.get(there, there), WIDE.get(wanted, wanted)
        if there == wanted:
            return []
        if self._may_widen and _is_wider(wanted, there):
            return [name]
        raise self._refused(f"column {name!r} is {there} there and {wanted} in these rows")

    def _refused(self, what: str) -> SchemaRefused:
        may = "only new columns, and wider numbers, may come" if self._may_widen else "only new columns may come"
        return SchemaRefused(f"{self._table}: {what}; {may}: {ELSE_DO}")


def _is_wider(kind: pa.DataType, than: pa.DataType) -> bool:
    """Whether Iceberg reads all values of the other type as of this one."""
    if pa.types.is_decimal(kind) and pa.types.is_decimal(than):
        return bool(kind.scale == than.scale and kind.precision > than.precision)
    return (than, kind) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
