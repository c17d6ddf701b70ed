"""The wheel, not installed but sent along, `spark-submit --py-files`: a batch and a stream find what is in it.

The driver is in a project that has packages of the names that lie in the wheel, and imports those first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pyspark
import pytest

from ipc.compiled.kernels import is_carried
from tests.harness.installed import THEIRS_FIRST, make_project, shared_wheel
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

SECONDS = 900
DRIVER = """
    {first}
    import json, sys, tempfile
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    import slipstream

    slipstream.register(spark)
    from slipstream.ipc.compiled import carried

    found = {{"place": slipstream.__file__, "carried": carried.library() is not None, "why_not": carried.why_not()}}
    found["batch"] = spark.read.format("rocketmq").option("columns", "queueId").load(sys.argv[1]).count()
    rows = []
    stream = spark.readStream.format("rocketmq").option("columns", "queueId").load(sys.argv[1])
    query = (
        stream.writeStream.foreachBatch(lambda batch, _number: rows.append(batch.count()))
        .option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    print(json.dumps({{**found, "stream": sum(rows)}}))
"""


def bare_python(directory: Path) -> Path:
    """A Python that has PySpark and what it needs, and none of this project's packages."""
    venv.create(directory, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    pyspark_lies_in = Path(pyspark.__file__).parent.parent
    (directory / "lib" / version / "site-packages" / "pyspark.pth").write_text(f"{pyspark_lies_in}\n")
    return directory / "bin" / "python"


def test_a_batch_and_a_stream_with_py_files(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = SmallStore(tmp_path / "store")
    for number in range(50):
        made.put("a", b"%d" % number)
    made.dispatch()
    sent, project = tmp_path / "slipstream.zip", tmp_path / "project"
    shutil.copy(shared_wheel(tmp_path_factory), sent)
    make_project(project)
    (project / "driver.py").write_text(textwrap.dedent(DRIVER).format(first=THEIRS_FIRST))
    python = str(bare_python(tmp_path / "python"))
    kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    own = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    conf = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m", "spark.ui.enabled": "false"}
    run = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master",
            "local[1]",
            *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
            "--py-files",
            str(sent),
            "driver.py",
            str(made.root),
        ],
        cwd=project,
        env={**kept, **own, "PYTHONPATH": str(project)},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert "slipstream.zip" in found.pop("place")
    assert found == {"batch": 50, "stream": 50, "carried": is_carried(), "why_not": ""}
