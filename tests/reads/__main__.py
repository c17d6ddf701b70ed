"""`make reads`: the long proof of the readers, for docs/reads.md; parts by name, or one case: `--damaged 7`.

    python -m tests.reads damaged where pushed spark memory --ledger docs/reads.md

A part that is not named keeps its section of the ledger.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeVar

from tests.reads import damaged, flat, pushed, scanned
from tests.reads.damaged import Share, pieces_of, unpacked_segments
from tests.reads.made_stores import KINDS, Made, made_store
from tests.reads.scanned import Tally

FLIPS, CONDITIONS, SPARK_CONDITIONS, GIB = 1_000_000, 100_000, 100, 20
CHUNK, DIFFERENCES_SHOWN, STORES, WIDTH = 500, 5, 32, 120
HEAD = """# Reads against plain readers: the ledger

Written by `make reads`. Every reader of messages finds records by one compiled walk, and filters in it. Here the walk
is compared with readers that share no code with it, and a long read is watched. Each section has the figures of its
last run.

"""
SAID = {
    "damaged": """Pieces of the segments of RocketMQ's golden stores, of both lines: with one to four bits changed,
mostly in heads; and the last 4 KiB of records of each segment, with the log's limit and with the file's end at every
byte. The compiled walk and the search of every byte with numpy give the same rows (starts, heads, where parts lie), the
same faults and the same error. Of some, all columns are compared with `decode`, a permissive read with one that
searches, and a read of one topic with a plain filter.""",
    "where": """{stores} generated stores, of each kind the same number: {kinds}. They have topics of users, of retries
and of brokers, tags and keys or none, flags, prepared and rolled back messages, hosts of both families. A scan has up
to three conditions, of every column that `where=` takes, some also topics, `keys` or `subExpression`. It gives the rows
that a filter in plain Python keeps of rows that plain Python decodes.""",
    "pushed": """The same stores. Conditions of AND, OR, NOT, comparisons, IN, BETWEEN and IS NULL, with nulls and with
constants of wider types, as trees that answer as Spark's do. What a plan takes of them leaves out no row that the
condition keeps.""",
    "spark": """Such conditions as SQL given to `spark_bridge.read`, each with ANSI on and off. The rows are those of
the plain filter, what is taken into the plan is what is taken of the trees above, and what ANSI makes an error is one
with it alone.""",
    "memory": """A log of {gib} GiB, bodies of 900 to 1,150 bytes, seven columns with bodies.{less} Private memory (USS
without the mapped segments, which are the page cache's) of each process, in MiB: the most in the third twentieth of the
log, in the one behind the middle, in the last one; and by how much the second half's most is above the first's.""",
}
TITLES = {
    "damaged": "Damaged records", "where": "Conditions of a scan", "pushed": "Conditions of Spark, without a JVM",
    "spark": "Conditions in a Spark session", "memory": "Memory over a long log",
}  # fmt: skip


class Sum(Protocol):
    """Figures that can be added up, and the differences that were found."""

    differences: list[str]

    def add(self, other: Self) -> None: ...


Figures = TypeVar("Figures", bound=Sum)


class Section:
    """The text of a section, prose and then a table, and what is wrong."""

    def __init__(self, part: str, *lines: str, wrong: Sequence[str], words: Mapping[str, object] | None = None) -> None:
        prose = textwrap.fill(SAID[part].format(**(words or {})), WIDTH)
        self.text, self.wrong = "\n".join([prose, "", *lines]), wrong


def table(heading: str, *rows: str) -> Iterator[str]:
    """The lines of a table."""
    columns = heading.count("|") - 1
    yield from (heading, "|---" * columns + "|", *rows)


def summed(
    pool: ProcessPoolExecutor, total: Figures, work: Callable[..., Figures], *arguments: Iterable[object]
) -> None:
    """Add up what all processes find."""
    for part in pool.map(work, *arguments):
        total.add(part)


_pieces: list[damaged.Piece] = []
_stores: list[Made] = []


def flips(directory: Path, first: int, count: int) -> Share:
    """Some cases, in a process that reads the pieces once."""
    if not _pieces:
        _pieces.extend(pieces_of(sorted(directory.glob("*/*/store/commitlog/*"))))
    return damaged.flip_cases(_pieces, first, count)


def part_damaged(pool: ProcessPoolExecutor, scratch: Path, counts: argparse.Namespace) -> Section:
    """Changed bits, and cuts at every byte."""
    segments, began = unpacked_segments(scratch / "golden"), time.monotonic()
    flipped, cut = Share(), Share()
    firsts = range(0, counts.flips, CHUNK)
    lengths = [min(CHUNK, counts.flips - first) for first in firsts]
    summed(pool, flipped, partial(flips, scratch / "golden"), firsts, lengths)
    middle = time.monotonic()
    summed(pool, cut, damaged.cut_cases, segments)
    rows = [
        f"| {name} | {share.cases:,} | {share.rows:,} | {share.errors:,} | {share.plain:,} | {share.permissive:,}"
        f" | {share.asked:,} | {len(share.differences)} | {seconds:,.0f} |"
        for name, share, seconds in (
            ("changed bits", flipped, middle - began), ("cuts", cut, time.monotonic() - middle)
        )
    ]  # fmt: skip
    return Section(
        "damaged",
        *table(
            "| | cases | rows | with an error | all columns | permissive | one topic | differences | seconds |", *rows
        ),
        wrong=[*flipped.differences, *cut.differences],
    )


def stores_of(directory: Path, count: int) -> list[Made]:
    """The stores of the first seeds, made if they are missing."""
    return [made_store(directory / f"store-{seed}", seed) for seed in range(count)]


def checked(check: Callable[[Made, int], Tally], directory: Path, first: int, count: int) -> Tally:
    """Some conditions, in a process that makes its own stores once."""
    if not _stores:
        _stores.extend(stores_of(directory / str(os.getpid()), STORES))
    tally = Tally()
    for number in range(first, first + count):
        tally.add(check(_stores[number % STORES], number))
    return tally


def _conditions(
    pool: ProcessPoolExecutor, scratch: Path, count: int, check: Callable[[Made, int], Tally]
) -> tuple[Tally, float]:
    total, began, firsts = Tally(), time.monotonic(), range(0, count, CHUNK)
    lengths = [min(CHUNK, count - first) for first in firsts]
    summed(pool, total, partial(checked, check, scratch / "stores"), firsts, lengths)
    return total, time.monotonic() - began


def part_where(pool: ProcessPoolExecutor, scratch: Path, counts: argparse.Namespace) -> Section:
    """Conditions of `scan`."""
    tally, seconds = _conditions(pool, scratch, counts.conditions, scanned.check)
    row = f"| {tally.conditions:,} | {tally.part:,} | {tally.kept:,} | {len(tally.differences)} | {seconds:,.0f} |"
    return Section(
        "where",
        *table("| scans | that keep some rows of a store | rows kept | differences | seconds |", row),
        words={"stores": STORES, "kinds": "; ".join(KINDS)},
        wrong=tally.differences,
    )


def part_pushed(pool: ProcessPoolExecutor, scratch: Path, counts: argparse.Namespace) -> Section:
    """What of a condition of Spark is taken into the plan."""
    tally, seconds = _conditions(pool, scratch, counts.conditions, pushed.check)
    share = tally.read / max(1, tally.visible)
    row = (
        f"| {tally.conditions:,} | {tally.part:,} | {tally.kept:,} | {share:.2f} | {len(tally.differences)}"
        f" | {seconds:,.0f} |"
    )
    return Section(
        "pushed",
        *table(
            "| conditions | that keep some rows of a store | rows kept | share of the rows that was read | differences"
            " | seconds |", row,
        ),
        wrong=tally.differences,
    )  # fmt: skip


def part_spark(_pool: ProcessPoolExecutor, scratch: Path, counts: argparse.Namespace) -> Section:
    """Conditions through a session."""
    import spark_bridge
    from tests.reads import in_spark

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # with ANSI some conditions are errors
    session = spark_bridge.session("reads", **in_spark.SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    tally, began, stores = Tally(), time.monotonic(), stores_of(scratch / "of-spark", len(KINDS))
    try:
        for number, made in enumerate(stores):
            tally.add(in_spark.check(session, made, range(number, counts.spark_conditions, len(stores))))
    finally:
        session.stop()
    row = f"| {tally.conditions:,} | {tally.kept:,} | {len(tally.differences)} | {time.monotonic() - began:,.0f} |"
    return Section(
        "spark",
        *table("| reads | rows kept | differences | seconds |", row),
        wrong=tally.differences,
    )


def part_memory(_pool: ProcessPoolExecutor, scratch: Path, counts: argparse.Namespace) -> Section:
    """Memory over a long log."""
    gib = min(counts.gib, flat.room_gib(scratch))
    found = flat.measure(scratch, gib)
    rows = [
        f"| {one.name} | {one.rows:,} | {one.samples:,} | {one.most_mib[flat.WARM_PARTS]:,.0f}"
        f" | {one.most_mib[len(one.most_mib) // 2]:,.0f} | {one.most_mib[-1]:,.0f} | {one.growth_mib:+,.1f}"
        f" | {one.seconds:,.0f} |"
        for one in found
    ]
    less = "" if gib == counts.gib else f" The disk had no room for {counts.gib} GiB."
    return Section(
        "memory",
        *table("| process | rows | samples | at 10 % | at 50 % | at the end | growth | seconds |", *rows),
        words={"gib": gib, "less": less},
        wrong=[f"memory of {one.name} grows: {one}" for one in found if one.growth_mib > flat.GROWTH_MIB_MAX],
    )


PARTS: dict[str, Callable[[ProcessPoolExecutor, Path, argparse.Namespace], Section]] = {
    "damaged": part_damaged, "where": part_where, "pushed": part_pushed, "spark": part_spark, "memory": part_memory,
}  # fmt: skip


def write(ledger: Path, made: dict[str, Section]) -> None:
    """Put these sections into the ledger, in the places of their last run's."""
    known = ledger.read_text().split("\n## ")[1:] if ledger.exists() else []
    sections = dict(section.split("\n", 1) for section in known)
    sections |= {TITLES[name]: f"\n{section.text}" for name, section in made.items()}
    texts = [f"## {title}\n\n{sections[title].strip()}\n" for title in TITLES.values() if title in sections]
    ledger.write_text(HEAD + "\n".join(texts))


def one_case(damage: int | None, where: int | None, condition: int | None) -> int:
    """Play one case again, and print what differs."""
    with tempfile.TemporaryDirectory() as scratch:
        if damage is not None:
            differences = damaged.flip_case(pieces_of(unpacked_segments(Path(scratch))), damage).differences
        else:
            number, check = (where, scanned.check) if where is not None else (condition or 0, pushed.check)
            made = made_store(Path(scratch, f"store-{number % STORES}"), number % STORES)
            differences = check(made, number).differences
    print("\n".join(differences) or "no difference")
    return int(bool(differences))


def main() -> int:
    """0 when nothing differs and no memory grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part", help=", ".join(PARTS))
    for name in ("damaged", "where", "pushed"):
        parser.add_argument(f"--{name}", type=int, help="the case with this number alone", metavar="NUMBER")
    for name, count in (
        ("flips", FLIPS), ("conditions", CONDITIONS), ("spark-conditions", SPARK_CONDITIONS), ("gib", GIB)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--ledger", type=Path)
    asked = parser.parse_args()
    if any(number is not None for number in (asked.damaged, asked.where, asked.pushed)):
        return one_case(asked.damaged, asked.where, asked.pushed)
    made: dict[str, Section] = {}
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in asked.parts or PARTS:
            made[name] = PARTS[name](pool, Path(scratch), asked)
            print(f"{TITLES[name]}\n{made[name].text}\n", *made[name].wrong[:DIFFERENCES_SHOWN], sep="\n", flush=True)
            if asked.ledger is not None:
                write(asked.ledger, made)
    return int(any(section.wrong for section in made.values()))


if __name__ == "__main__":
    sys.exit(main())
