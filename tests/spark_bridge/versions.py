"""The tests of the Spark bridge with the PySpark of this environment, and a ledger of how they ended.

    python -m tests.spark_bridge.versions [--ledger docs/spark-versions.md] [PYTEST_ARGUMENTS]

`make spark-versions` runs it where the oldest PySpark that pyproject.toml allows is installed; CI runs them with the
locked one.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pyarrow as pa
import pyspark

HEAD = """# The Spark bridge with the oldest PySpark

Written by `make spark-versions`: all of `tests/spark_bridge`. CI runs the same tests with the locked PySpark.

| PySpark | pyarrow | Python | tests | passed | skipped | failed | seconds |
|---|---|---|---|---|---|---|---|
"""


def run(arguments: tuple[str, ...]) -> tuple[int, dict[str, float]]:
    """Pytest's exit code, and its counts: tests, failures, errors, skipped, time (seconds)."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", "-n", "auto", f"--junitxml={report}"]
        code = subprocess.run([*pytest, *arguments, "tests/spark_bridge"], check=False).returncode
        suite = ET.parse(report).getroot().find("testsuite")
        assert suite is not None, "pytest wrote no report"
        return code, {name: float(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped", "time")}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--ledger", type=click.Path(path_type=Path), help="The file to write.")
@click.argument("arguments", nargs=-1)
def main(ledger: Path | None, arguments: tuple[str, ...]) -> None:
    """Run the tests with the PySpark that is installed."""
    code, counts = run(arguments)
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    versions = (pyspark.__version__, pa.__version__, platform.python_version())
    numbers = (counts["tests"], passed, counts["skipped"], failed, counts["time"])
    row = "| " + " | ".join([*versions, *(f"{number:.0f}" for number in numbers)]) + " |"
    print(row)
    if ledger is not None:
        ledger.write_text(HEAD + row + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
