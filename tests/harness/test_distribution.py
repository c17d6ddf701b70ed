"""The order and the groups in which workers get tests."""

from __future__ import annotations

from tests.harness.distribution import SPARK_LANES, Shared, group_of, order

PLAIN = frozenset[str]()


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


def test_spark_tests_share_a_few_workers_by_file() -> None:
    tests = [shared(f"f{n % 10}::{n}", marks=frozenset({"spark"})) for n in range(100)]
    groups = {test.name: group_of(test) for test in tests}
    assert len(set(groups.values())) == SPARK_LANES
    for n in range(10):
        assert len({group_of(test) for test in tests if test.file == f"f{n}"}) == 1


def test_every_test_is_handed_out_once() -> None:
    tests = [shared(f"f{n % 7}::{n}", *(["x"] if n % 3 else [])) for n in range(50)]
    assert sorted(order(tests, {})) == list(range(50))
