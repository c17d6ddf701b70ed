"""The order and the groups in which workers get tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.harness.distribution import SPARK_LANES, Shared, group_of, order, slowest_files
from tests.harness.scheduler import GroupScheduling

PLAIN = frozenset[str]()
WORKER = "PYTEST_XDIST_WORKER"
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
CONFTEST = """
from pathlib import Path
from tests.harness.scheduler import GroupScheduling, tell_groups

GROUPS = Path(__file__).with_name("groups.json")

def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log, GROUPS)

def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        tell_groups(GROUPS, {item.nodeid: item.name.split("_")[1] for item in items})
"""
DIES = "os._exit(1)"


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


@pytest.mark.parametrize(
    "deadly", [["a_1"], ["a_2"], ["c_1"], ["a_1", "b_1"], ["a_1", "a_2", "b_1", "c_1"]], ids=" ".join
)
def test_a_test_in_which_a_worker_dies_has_failed_and_the_run_goes_on(tmp_path: Path, deadly: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    tests = [f"def test_{name}(): {DIES if name in deadly else 'pass'}\n" for name in ("a_1", "a_2", "b_1", "c_1")]
    (tmp_path / "test_some.py").write_text("import os\n" + "".join(tests))
    command = [sys.executable, "-m", "pytest", "-n2", "-p", "no:cacheprovider", "-rA", "--rootdir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [*command, str(tmp_path)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    said = [line.split()[:2] for line in ran.stdout.splitlines() if line.startswith(("PASSED ", "FAILED "))]
    expected = {f"test_some.py::test_{name}": "PASSED" for name in ("a_1", "a_2", "b_1", "c_1")}
    expected |= {f"test_some.py::test_{name}": "FAILED" for name in deadly}
    assert (ran.returncode, sorted(said)) == (1, sorted([how, name] for name, how in expected.items())), ran.stdout


def test_a_worker_that_died_before_it_got_its_group_keeps_it_until_its_end_is_told() -> None:
    scheduling: Any = GroupScheduling.__new__(GroupScheduling)
    scheduling.workqueue, scheduling.assigned_work = OrderedDict(group={"a": False, "b": False}), {}
    node = Mock(**{"send_runtest_some.side_effect": OSError("cannot send (already closed?)")})
    scheduling.registered_collections = {node: ["a", "b"]}
    scheduling._assign_work_unit(node)
    assert scheduling.assigned_work == {node: {"group": {"a": False, "b": False}}}
    assert (scheduling.remove_node(node), dict(scheduling.workqueue)) == ("a", {"group": {"a": True, "b": False}})


def test_the_slowest_files_add_up_their_tests() -> None:
    seconds = {"a.py::1": 3.0, "b.py::1": 2.0, "b.py::2[x::y]": 2.5} | {f"c{n}.py::1": 0.1 for n in range(20)}
    assert slowest_files(seconds)[:3] == [("b.py", 4.5), ("a.py", 3.0), ("c0.py", 0.1)]
    assert len(slowest_files(seconds)) == 10
