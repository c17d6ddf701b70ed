"""Which tests share a worker, and which begin: what xdist is told before it hands out tests.

Tests that share a fixture of their module (a broker, a pair of brokers, a JVM) run on one worker, which makes it once;
those that use the Spark session share `SPARK_LANES` workers: a session takes longer to start and to get warm than most
tests need. The longest begin, so that none is left over for the end: how long they take is remembered from the last
run, and told by their marks before the first one.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

SPARK_LANES = 1
# Of a test that never ran.
SECONDS_BY_MARK = {"minutes": 150.0, "interop": 20.0, "spark": 5.0, "crash": 10.0, "broker": 3.0}
SECONDS = 0.1
SLOWEST_FILES = 10


@dataclass(frozen=True, slots=True)
class Shared:
    """What decides a test's place: its file, its marks, and the module's fixtures it uses with their parameters."""

    name: str
    file: str
    marks: frozenset[str]
    fixtures: tuple[str, ...] = ()


def group_of(test: Shared) -> str:
    """Tests of one group run one after the other on one worker."""
    if "spark" in test.marks:
        return f"spark-{zlib.crc32(test.file.encode()) % SPARK_LANES}"
    return "|".join([test.file, *test.fixtures]) if test.fixtures else test.name


def order(tests: Sequence[Shared], seconds: Mapping[str, float]) -> list[int]:
    """The numbers of the tests in the order in which groups begin; within a group as they came."""
    groups: dict[str, list[int]] = {}
    for number, test in enumerate(tests):
        groups.setdefault(group_of(test), []).append(number)

    def cost(members: Iterable[int]) -> float:
        return sum(seconds.get(tests[number].name, guess(tests[number].marks)) for number in members)

    return [number for members in sorted(groups.values(), key=cost, reverse=True) for number in members]


def guess(marks: Iterable[str]) -> float:
    """The seconds of a test that nobody has timed."""
    return max((SECONDS_BY_MARK.get(mark, SECONDS) for mark in marks), default=SECONDS)


def slowest_files(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return at most ten files with the seconds that their tests took together, slowest first."""
    spent: defaultdict[str, float] = defaultdict(float)
    for test, took in seconds.items():
        spent[test.partition("::")[0]] += took
    return heapq.nlargest(SLOWEST_FILES, spent.items(), key=itemgetter(1))
