"""Tables of a database of Spark's catalogue, made as they are to be: a second time nothing is done, others' are left.

The options that a table keeps say whether it is Slipstream's, and of which store (`spark_bridge.catalogue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_bridge.catalogue import PLACES, options_kept
from spark_bridge.options.values import InvalidOption
from spark_bridge.source import FORMAT
from spark_bridge.sql.names import checked_name, quoted


class Table(NamedTuple):
    """One table as it is to be: its schema keeps its options."""

    name: str
    schema: StructType
    topic: str


class TableOfAnotherStore(InvalidOption):
    """Raised when a table of that name belongs to another store.

    Next: another `database`, or `DROP DATABASE ... CASCADE` before, which does not change stores.
    """

    code = "TABLE_OF_ANOTHER_STORE"


def make_tables(
    spark: SparkSession, database: str, tables: Sequence[Table], place: Mapping[str, str], *, prune: bool
) -> dict[str, str]:
    """Make what is missing or differs, with `prune` drop what earlier calls made of this place and is gone.

    What comes back are the topics whose table cannot be made, because one that is not ours has the name, to the reason
    why. Raises TableOfAnotherStore before anything is changed.
    """
    checked_name("database", database)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
    there = {name: _schema_of(spark, database, name) for name in _names(spark, database)}
    left_out: dict[str, str] = {}
    missing, changed = [], []
    for table in tables:
        schema = there.pop(table.name.lower(), None)
        if schema is None:
            missing.append(table)
        elif not options_kept(schema):
            left_out[table.topic] = f"{table.topic!r}: {database}.{table.name} is a table that register did not make"
        elif not _is_of(schema, place):
            raise TableOfAnotherStore(_whose(database, table, schema))
        elif _said(schema) != _said(table.schema):
            changed.append(table)
    gone = [name for name, schema in there.items() if prune and _is_of(schema, place)]
    for name in (*gone, *(table.name for table in changed)):
        spark.sql(f"DROP TABLE IF EXISTS {quoted(database, name)}")
    for table in (*missing, *changed):
        _make(spark, database, table)
    return left_out


def _make(spark: SparkSession, database: str, table: Table) -> None:
    """Make a table; one that another session has made as it is to be, in the meantime, is that table."""
    try:
        # Without a location: nothing that Spark does to a table of its own touches the store.
        spark.catalog.createTable(quoted(database, table.name), source=FORMAT, schema=table.schema)
    except AnalysisException:
        if _said(_schema_of(spark, database, table.name)) != _said(table.schema):
            raise


def _is_of(schema: StructType, place: Mapping[str, str]) -> bool:
    """Return whether a table is this source's, and of the same stores."""
    kept = options_kept(schema)
    return bool(kept) and {name: kept[name] for name in PLACES if name in kept} == dict(place)


def _said(schema: StructType) -> tuple[object, dict[str, str]]:
    """Return what distinguishes two tables of this source."""
    return [(field.name, field.dataType) for field in schema.fields], options_kept(schema)


def _whose(database: str, table: Table, schema: StructType) -> str:
    kept = options_kept(schema)
    where = ", ".join(f"{name}={kept[name]!r}" for name in PLACES if name in kept)
    do = f"give another database=..., or DROP DATABASE {database} CASCADE first, which leaves the stores as they are"
    return f"{database}.{table.name} is a table of {where}; {do}"


def _names(spark: SparkSession, database: str) -> list[str]:
    """Return the tables' names in lower case, without temporary views, which every database shows."""
    rows = spark.sql(f"SHOW TABLES IN {quoted(database)}").collect()
    return [row["tableName"].lower() for row in rows if not row["isTemporary"]]


def _schema_of(spark: SparkSession, database: str, name: str) -> StructType:
    """A table's columns; none where they cannot be found out, as of a source that is not there."""
    try:
        return spark.table(quoted(database, name)).schema
    except AnalysisException:
        return StructType()
