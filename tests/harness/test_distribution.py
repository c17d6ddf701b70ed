"""The order and the groups in which workers get tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.harness.distribution import SPARK_LANES, Shared, group_of, order, slowest_files

PLAIN = frozenset[str]()
WORKER = "PYTEST_XDIST_WORKER"


def shared(name: str, *fixtures: str, marks: frozenset[str] = PLAIN) -> Shared:
    return Shared(name, name.partition("::")[0], marks, fixtures)


def test_tests_of_one_fixture_stay_together_and_the_longest_group_begins() -> None:
    tests = [
        shared("a::1"),
        shared("b::1", "broker0"),
        shared("b::2", "broker1"),
        shared("b::3", "broker0"),
        shared("c::1"),
    ]
    seconds = {"a::1": 4.0, "b::1": 3.0, "b::2": 1.0, "b::3": 3.0, "c::1": 5.0}
    assert order(tests, seconds) == [1, 3, 4, 0, 2]


def test_what_was_never_timed_goes_by_its_marks() -> None:
    marks = [frozenset(each) for each in ((), ("broker",), ("broker", "crash"), ("broker", "interop"))]
    tests = [shared(f"f{n}::t", marks=each) for n, each in enumerate(marks)]
    assert order(tests, {}) == [3, 2, 1, 0]
    assert order(tests, {"f0::t": 30.0}) == [0, 3, 2, 1]


def test_spark_tests_share_a_worker_or_more_by_file() -> None:
    tests = [shared(f"f{n % 10}::{n}", marks=frozenset({"spark"})) for n in range(100)]
    groups = {test.name: group_of(test) for test in tests}
    assert len(set(groups.values())) == SPARK_LANES
    for n in range(10):
        assert len({group_of(test) for test in tests if test.file == f"f{n}"}) == 1


def test_every_test_is_handed_out_once() -> None:
    tests = [shared(f"f{n % 7}::{n}", *(["x"] if n % 3 else [])) for n in range(50)]
    assert sorted(order(tests, {})) == list(range(50))


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker has a directory of its own in one that all share: this fails where a second worker makes it, too."""
    made = tmp_path_factory.getbasetemp().parent / f"made-once-{os.environ['PYTEST_XDIST_TESTRUNUID']}"
    made.mkdir()
    yield


@pytest.mark.skipif(WORKER not in os.environ, reason="xdist distributes: only its workers know")
@pytest.mark.parametrize("number", range(8))
def test_workers_get_whole_groups(number: int, made_once: None) -> None:
    """One of many, so that every worker gets some of them where groups are not kept."""


def test_the_slowest_files_add_up_their_tests() -> None:
    seconds = {"a.py::1": 3.0, "b.py::1": 2.0, "b.py::2[x::y]": 2.5} | {f"c{n}.py::1": 0.1 for n in range(20)}
    assert slowest_files(seconds)[:3] == [("b.py", 4.5), ("a.py", 3.0), ("c0.py", 0.1)]
    assert len(slowest_files(seconds)) == 10
