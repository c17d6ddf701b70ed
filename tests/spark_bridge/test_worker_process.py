"""What the source does in a Python process of Spark's own, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, importlib.machinery, sys

sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
import spark_bridge.source

frozen = gc.get_freeze_count()
print(frozen > len(gc.get_objects()) if frozen else None)
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
