"""Bodies decoded by the reader of Flight: where a schema lies in its files or registry, or times are of its zone.

No server asks a registry for a stranger, whose address a request could name, nor opens a file for one; and the zone of
a Spark session is known where its tasks run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from spark_bridge.options.columns import BODY_COLUMNS
from spark_bridge.options.decoding import DECODE_OPTION_NAMES
from spark_bridge.options.rows import ERROR_COLUMN, JSON, RowOptions
from spark_bridge.options.value_types import holds
from spark_bridge.records.damage import error_text
from spark_bridge.records.decoders import decoded_bodies
from spark_bridge.records.formats.json_values import is_made
from store.errors import MalformedData

_DECODING = frozenset(name.lower() for name in DECODE_OPTION_NAMES)
PLACE_COLUMN = "physicalOffset"  # what an error names a record by


def decodes_here(rows: RowOptions) -> bool:
    """Whether servers are asked for the bodies as they are."""
    of_json = rows.decode == JSON and rows.value_type is not None
    return rows.registry is not None or rows.protobuf is not None or (of_json and holds(rows.value_type, is_made))


def undecoded(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for servers when the reader decodes the bodies itself."""
    return {name: text for name, text in options.items() if name.lower() not in _DECODING}


def placed_columns(columns: Sequence[str]) -> list[str]:
    """The columns that servers are asked for then."""
    return list(dict.fromkeys([*columns, PLACE_COLUMN]))


def decoded_batch(batch: pa.RecordBatch, rows: RowOptions) -> pa.RecordBatch:
    """Decode a batch's bodies. Raises RegistryError, and MalformedData unless a column reports it."""
    failures: dict[int, str] = {}
    names = batch.schema.names
    arrays = dict(zip(names, batch.columns, strict=True))
    for name in set(BODY_COLUMNS) & arrays.keys():
        arrays[name] = decoded_bodies(arrays[name], rows, failures)
    if failures:
        places = arrays[PLACE_COLUMN].to_pylist()
        errors = {
            row: MalformedData(f"record at offset {places[row]}: its body as {rows.decode}", reason)
            for row, reason in sorted(failures.items())
        }
        if not rows.permissive:
            raise next(iter(errors.values()))
        known = arrays[ERROR_COLUMN].to_pylist()
        texts = [known[row] or (error_text(errors[row]) if row in errors else None) for row in range(len(known))]
        arrays[ERROR_COLUMN] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], names)
