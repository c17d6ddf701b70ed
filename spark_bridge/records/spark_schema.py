"""The columns as Spark has them: its types for Arrow's, and what a schema that a user gave says of a read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_bridge.options.columns import BODY_COLUMNS, TYPES, names_asked
from spark_bridge.options.rows import DEFAULT_ROWS, ERROR_COLUMN, JSON, RAW, RowOptions
from spark_bridge.options.values import InvalidOption

if TYPE_CHECKING:  # a process that Spark asks for a schema loads no Arrow unless bodies are decoded
    import pyarrow as pa

_JSON_TYPES = (
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType, StringType,
    TimestampType, TimestampNTZType, DateType, BinaryType,
)  # fmt: skip


_OF_TEXTS = MapType(StringType(), StringType())
_PAIRS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_SPARK_TYPES = {
    one.simpleString(): one
    for one in (StringType(), IntegerType(), LongType(), TimestampType(), BinaryType(), _OF_TEXTS, _PAIRS)
}


def schema_of(names: Sequence[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> StructType:
    """Spark's schema of the columns named, all of them by default. Raises InvalidOption for an unknown one."""
    return StructType([StructField(name, _type_of(name, rows)) for name in names_asked(names, rows)])


def _type_of(name: str, rows: RowOptions) -> DataType:
    if name in BODY_COLUMNS and rows.decode != RAW and rows.value_type is not None:
        return spark_type(rows.value_type)
    return _SPARK_TYPES[TYPES[name]]


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type for one of Arrow's."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _is_checked_text(rows: RowOptions) -> bool:
    """Whether bodies are JSON that a user's schema may give a type."""
    import pyarrow as pa

    return rows.decode == JSON and bool(rows.value_type == pa.string())


def settled(schema: StructType, rows: RowOptions) -> RowOptions:
    """Return the options after a check of the user's schema: each of its columns is one of this source's, in its type.

    JSON bodies may be given their type there. Raises InvalidOption.
    """
    names = schema.fieldNames()
    if rows.permissive and ERROR_COLUMN not in names:
        raise InvalidOption(f"mode=permissive reports damage in column {ERROR_COLUMN}: add '{ERROR_COLUMN} string'")
    for field in schema.fields:
        untyped = field.name in BODY_COLUMNS and field.dataType != StringType()
        if untyped and _is_checked_text(rows):
            if not isinstance(field.dataType, StructType):
                raise InvalidOption(f"column {field.name}: JSON is decoded to a struct, or checked and kept as string")
            from pyspark.sql.pandas.types import to_arrow_type

            from spark_bridge.options.value_types import checked

            _check_json_type(f"column {field.name}", field.dataType)
            kind = checked(f"column {field.name}", to_arrow_type(field.dataType, timezone="UTC"))
            rows = replace(rows, value_type=kind)
    for given, ours in zip(schema.fields, schema_of(names, rows).fields, strict=True):
        if given.dataType != ours.dataType:
            wanted, given_type = ours.dataType.simpleString(), given.dataType.simpleString()
            raise InvalidOption(f"column {ours.name} is {wanted}, the schema says {given_type}")
    return rows


def json_schema(schema: StructType, rows: RowOptions) -> str | None:
    """Return what JSON bodies are decoded to as the option `valueSchema` says it, where the schema alone tells."""
    fields = [field.dataType for field in schema.fields if field.name in BODY_COLUMNS]
    if not fields or not isinstance(fields[0], StructType) or not _is_checked_text(rows):
        return None
    return str(fields[0].json())


def _check_json_type(what: str, of_type: DataType) -> None:
    """Raise InvalidOption for what no JSON value is read as."""
    if isinstance(of_type, StructType):
        for field in of_type.fields:
            _check_json_type(f"{what}.{field.name}", field.dataType)
    elif isinstance(of_type, ArrayType):
        _check_json_type(f"{what}[]", of_type.elementType)
    elif isinstance(of_type, MapType) and of_type.keyType == StringType():
        _check_json_type(f"{what}{{}}", of_type.valueType)
    elif not isinstance(of_type, _JSON_TYPES):
        from spark_bridge.options.value_types import KNOWN

        raise InvalidOption(f"{what}: JSON is not decoded to {of_type.simpleString()}; known: {KNOWN}")
