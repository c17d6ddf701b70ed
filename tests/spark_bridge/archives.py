"""An environment to be sent to executors as an archive, and the driver program of its test.

    python -m venv FOLDER; FOLDER/bin/pip install 'slipstream-log[spark]'; tar -C FOLDER -czf ARCHIVE .

Nothing is fetched: what the environment has of others are links to the files of the tests' own. It has no numba, which
a read beside a running broker and one through Flight do without, and is a third of the size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.harness.installed import PRESENT, pip

OTHERS = ("lz4", "numpy", "numpy.libs", "pyarrow", "zstandard")
LEFT_OUT = ("include", "tests", "*.pyi")
DRIVER = '''
import json
import os
import sys

from pyspark.sql import SparkSession

import slipstream


def told(row):
    """Where it ran, by which Python, with whose package, and where from it came."""
    return os.getcwd(), sys.prefix, slipstream.__file__, row._replica, int(row.body)


spark = SparkSession.builder.getOrCreate()
slipstream.register(spark)
for path in sys.argv[1:]:
    reader = spark.read.format("rocketmq").option("columns", "body,_replica").option("topic", "before")
    rows = reader.option("maxBytesPerPartition", 1 << 18).load(path).rdd.map(told).collect()
    print(json.dumps({"places": sorted({row[:4] for row in rows}), "bodies": sorted(row[4] for row in rows)}))
'''


def make_environment(folder: Path, wheel: Path) -> None:
    """A virtual environment with the wheel and what it takes to read."""
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for name in OTHERS:
        shutil.copytree(PRESENT / name, packages / name, copy_function=_link, ignore=shutil.ignore_patterns(*LEFT_OUT))
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def pack(folder: Path, archive: Path) -> None:
    """As the page says it."""
    subprocess.run(["tar", "-C", str(folder), "-I", "gzip -1", "-cf", str(archive), "."], check=True)
