"""FORMAT.md says what the code does: its tables are held against the code's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from store.files import checkpoint
from store.index.index_file import ENTRY_DTYPE, HEADER_DTYPE
from store.message.record import BLANK_MAGIC, FIXED_BYTES, RECORD_FIELDS, fixed_dtype
from store.queues.batch_consume_queue import BATCH_DTYPE
from store.queues.consume_queue import CQ_DTYPE
from store.queues.extension import EXT_DTYPE

TEXT = (Path(__file__).parents[3] / "store" / "FORMAT.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    part = TEXT.split(f"# {heading}\n", 1)[1]
    rows: list[list[str]] = []
    for line in part.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def test_the_record_s_table_is_the_codec_s() -> None:
    rows = table("Record")
    assert [(row[2], row[3], row[4]) for row in rows] == [(f.name, f.rocketmq, f.meaning) for f in RECORD_FIELDS]
    dtype = fixed_dtype(0)
    assert dtype.fields is not None
    for offset, size, name, _, _ in rows:
        if name not in dtype.fields:
            continue
        kind, at = dtype.fields[name][:2]
        assert (int(offset), int(size.split()[0])) == (at, kind.itemsize), name
    assert int(rows[-5][0]) + 1 + 2 == FIXED_BYTES


def test_the_blank_record_s_magic_is_the_code_s() -> None:
    assert table("Blank record")[1][3] == f"0x{BLANK_MAGIC:X}"


def test_the_checkpoint_s_table_is_the_code_s() -> None:
    rows = [(int(row[0]), int(row[1])) for row in table("Checkpoint")]
    words = [8 * index for index in range(checkpoint.TIMES.size // 8)]
    words += range(checkpoint.INDEX_AT, checkpoint.INDEX_AT + checkpoint.INDEX.size, 8)
    words += [checkpoint.INDEX_CRC_AT, *range(checkpoint.OURS_AT, checkpoint.OURS_AT + checkpoint.OURS.size, 8)]
    assert rows == [(at, 8) for at in [*words, checkpoint.CRC_AT]]


@pytest.mark.parametrize(
    "heading, dtype",
    [
        ("Consume queue entry", CQ_DTYPE), ("Extension unit", EXT_DTYPE), ("Batch queue unit", BATCH_DTYPE),
        ("Index file", HEADER_DTYPE), ("Index entry", ENTRY_DTYPE),
    ],
)  # fmt: skip
def test_the_tables_are_the_code_s(heading: str, dtype: np.dtype[np.void]) -> None:
    assert dtype.fields is not None
    found = [(int(row[0]), int(row[1]), row[2]) for row in table(heading)]
    assert found == [(at, kind.itemsize, name) for name, (kind, at) in dtype.fields.items()]  # type: ignore[misc]
