"""`CREATE TABLE ... USING rocketmq`: options kept where Spark keeps a table's schema, since it passes none to a query.

Spark's catalogue asks a Python source for the schema of a new table, with the options; a query on that table has only
the schema. So the options lie in the metadata of a column. A query on a table is planned when it runs, each time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

log = logging.getLogger("slipstream.spark")

CREATION = ("provider", "owner")  # what Spark's catalogue says of a table beside the user's options
OPTION_PREFIX = "option."
METADATA = "rocketmq.options"
PLACES = ("path", "paths", "nameserver", "kafka.bootstrap.servers")
WITH_WARNING = (
    "a table is read WITH (%s): in a statement that names it twice Spark may answer both from one of the reads, and of"
    " a cached table it ignores these options; make a table for each selection, or use slipstream.read(..., topics=)"
)
_warned: set[str] = set()  # of this process


def options_of_creation(given: Mapping[str, str]) -> dict[str, str] | None:
    """The user's options when a table is being created; None when it is not about that."""
    options = {name.lower(): value for name, value in given.items()}
    if not all(name in options for name in CREATION):
        return None
    own = {name.removeprefix(OPTION_PREFIX): options[name] for name in options if name.startswith(OPTION_PREFIX)}
    return own if "path" not in options else {**own, "path": options["path"]}


def keeping(schema: StructType, options: Mapping[str, str], comment: str = "") -> StructType:
    """The schema of a new table, with its options, and with a comment at the column that keeps them."""
    first, *others = schema.fields
    metadata = {**first.metadata, **({"comment": comment} if comment else {})}
    kept = StructField(first.name, first.dataType, first.nullable, {**metadata, METADATA: dict(options)})
    return StructType([kept, *others])


def kept_options(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a query: those given, behind them those of the table that the schema is of, if it is of one.

    What says itself where its store is (`WITH (path ...)`, `load(path)`) has nothing of a table but the columns.
    """
    options = {name.lower(): value for name, value in given.items()}
    if any(place in options for place in PLACES):
        return options
    kept = options_kept(schema)
    if kept and options.keys() - set(CREATION):
        _warn(", ".join(sorted(options.keys() - set(CREATION))))
    return {**kept, **options}


def _warn(names: str) -> None:
    """Warn once for the same options: Spark plans a query several times."""
    if names not in _warned:
        _warned.add(names)
        log.warning(WITH_WARNING, names)


def options_kept(schema: StructType) -> dict[str, str]:
    """Return what a table keeps; nothing where the schema is not of one of this source's tables."""
    kept: dict[str, str] = next((field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata), {})
    return dict(kept)
