"""What the source does in a Python process of Spark's own, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_bridge.stores import SmallStore

SCRIPT = """
import gc, importlib.machinery, sys

sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
import spark_bridge.batch

frozen = gc.get_freeze_count()
print(frozen > len(gc.get_objects()) if frozen else None)
"""

POOL = """
import importlib.machinery, sys
import pyarrow

sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
before = pyarrow.default_memory_pool().backend_name
import spark_bridge.batch

print(before, pyarrow.default_memory_pool().backend_name)
"""

READ = """
import gc, importlib.machinery, sys

sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
from spark_bridge.source import RocketMQSource

source = RocketMQSource({"path": sys.argv[2]})
reader = source.reader(source.schema())
rows = [sum(batch.num_rows for batch in reader.read(split)) for _ in range(2) for split in reader.partitions()]
modules = vars(sys.modules["spark_bridge.records.reader"])

looked_through = any(found is modules for found in gc.get_objects())
print(rows, looked_through)
"""


@pytest.mark.parametrize(
    ("module", "expected"), [("pyspark.daemon", "True"), ("somebody.elses.program", "None"), ("pytest", "None")]
)
def test_modules_are_kept_out_of_the_search_for_garbage_that_spark_asks_for_after_each_task(
    module: str, expected: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, module], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.strip() == expected


@pytest.mark.parametrize(("module", "pool"), [("pyspark.daemon", "system"), ("somebody.elses.program", "mimalloc")])
def test_arrows_buffers_are_the_c_librarys_in_processes_that_spark_made(
    monkeypatch: pytest.MonkeyPatch, module: str, pool: str
) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    ran = subprocess.run([sys.executable, "-c", POOL, module], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout.split() == ["mimalloc", pool]


@pytest.mark.parametrize(("module", "looked_through"), [("pyspark.daemon", False), ("somebody.elses.program", True)])
def test_what_the_first_split_loads_is_kept_too(tmp_path: Path, module: str, looked_through: bool) -> None:
    store = SmallStore(tmp_path)
    store.put("orders")
    store.put("orders")
    store.dispatch()
    ran = subprocess.run(
        [sys.executable, "-c", READ, module, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.strip() == f"[2, 2] {looked_through}"
