"""Spark schemas from short texts, without a session: `struct("body string, queueId bigint")`."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "array<string>": ArrayType(StringType()),
    "array<struct<key:string,value:binary>>": ArrayType(HEADER),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


def struct(text: str) -> StructType:
    """A schema of columns `name type` with ", " between them."""
    found = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        found = found.add(name, TYPES[kind])
    return found
