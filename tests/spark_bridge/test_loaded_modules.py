"""What each of Spark's Python processes loads to answer: not what only another of them needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipc.compiled.kernels import is_carried
from tests.spark_bridge.stores import SmallStore

SCHEMA = """
from pyspark_slipstream import DefaultSource

source = DefaultSource({"path": sys.argv[1], "includeProperties": "false"})
source.schema().json()
"""
PLAN = SCHEMA + "parts = source.reader(source.schema()).partitions()\n"
READ = """
import pickle

source, columns, parts = pickle.load(open(sys.argv[1], "rb"))
reader = source.reader(columns)
rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
assert rows == 3, rows
"""
SESSION = "from slipstream import read, session\n"
PICKLED = (
    PLAN
    + """
from pyspark import cloudpickle

with open(sys.argv[2], "wb") as file:
    file.write(cloudpickle.dumps((source, source.schema(), parts)))
"""
)
TOLD = "\nprint(*sorted(sys.modules))\n"
ARROW = {"numpy", "pyarrow", "pyarrow.lib"}  # and compiled code, which stands on numpy
UNUSED = {
    "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.fs", "pyarrow.json", "pandas", "grpc", "ssl",
    "http.client", "numpy.ma", "spark_bridge.flight", "spark_bridge.columnar.reader", "spark_bridge.replica.remoting",
    "spark_bridge.sink.writer", "engine",
}  # fmt: skip


def loaded(script: str, *arguments: object) -> set[str]:
    """The modules that a Python process has loaded when the script is done."""
    code = f"import sys\n{script}{TOLD}"
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=120
    )
    return set(ran.stdout.split())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    small = SmallStore(tmp_path / "store")
    for _ in range(3):
        small.put("orders")
    small.dispatch()
    return small.root


@pytest.fixture
def by_itself() -> set[str]:
    """What PySpark loads before it asks anything."""
    return loaded("import pyspark.daemon, pyspark.sql.worker.create_data_source\n")


def test_who_is_asked_for_a_schema_loads_neither_arrow_nor_numpy(store: Path, by_itself: set[str]) -> None:
    modules = loaded(SCHEMA, store) - by_itself
    assert "spark_bridge.source" in modules
    assert not modules & (ARROW | UNUSED)
    assert not {name for name in modules if name.startswith(("engine", "ipc.compiled", "numba", "pandas"))}


def test_a_session_is_made_without_arrow(by_itself: set[str]) -> None:
    assert not (loaded(SESSION) - by_itself) & (ARROW | UNUSED)


@pytest.mark.parametrize("step", ["plan", "read"])
def test_planner_and_workers_load_nothing_that_a_read_in_place_does_not_need(
    tmp_path: Path, store: Path, step: str
) -> None:
    pickled = tmp_path / "pickled"
    modules = loaded(PICKLED, store, pickled)
    if step == "read":
        modules = loaded(READ, pickled)
        assert "spark_bridge.plan.planner" not in modules
    if is_carried():  # numba loads numpy's masked arrays, too
        assert not modules & {*UNUSED, "numba", "llvmlite"}
    else:
        assert not modules & UNUSED - {"numpy.ma"}
