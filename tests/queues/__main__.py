"""`make queues`: 100,000 queues in a master and its slave, through stops, starts and kills; for docs/queues.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.queues.run import Row, Run, Shape

HEAD = """# A hundred thousand queues: the ledger

Written by `make queues`. A master, its slave and a name server run on one machine and one disk, with small queue
files. The run fails at a wrong exit code, a lost message or a lost entry of a queue.
"""


def shape_of(text: str) -> Shape:
    """`12500x8` or `12500x8@5`."""
    size, _, compat = text.partition("@")
    topics, _, queues = size.partition("x")
    return Shape(int(topics), int(queues), compat or "4.9")


def main() -> None:
    """Each shape in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", type=shape_of, default=[Shape(12_500, 8), Shape(100_000, 1, "5")])
    parser.add_argument("--directory", type=Path, help="on a disk with some GiB free; the usual one for such files")
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args()
    text = HEAD
    for shape in asked.shapes:
        title = f"\n## {shape.topics:,} topics of {shape.queues}, compat {shape.compat}\n\n| what | took |\n|---|---|\n"
        print(title, end="")
        rows: list[Row] = []

        def told(row: Row, rows: list[Row] = rows) -> None:
            rows.append(row)
            print(f"| {row.what} | {row.value} |", flush=True)

        with tempfile.TemporaryDirectory(prefix="slipstream-queues-", dir=asked.directory) as directory:
            Run(Path(directory), shape, told).everything()
        text += title + "".join(f"| {row.what} | {row.value} |\n" for row in rows)
    if asked.ledger is not None:
        asked.ledger.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
