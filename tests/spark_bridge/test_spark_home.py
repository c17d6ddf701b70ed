"""The SPARK_HOME whose Python processes load PySpark's compiled modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_bridge import spark_home

NAME = "SPARK_HOME"


def test_python_processes_of_it_load_the_installed_modules(tmp_path: Path) -> None:
    home = spark_home.make(tmp_path / "spark")
    assert home == tmp_path / "spark"
    zips = sorted(map(str, (home / "python" / "lib").iterdir()))
    installed = Path(pyspark.__file__).parent
    assert [Path(path).name for path in zips] == sorted(p.name for p in (installed / "python" / "lib").iterdir())
    script = "import pyspark.daemon as d, py4j as p; print(d.__file__, d.__cached__, p.__file__, sep=chr(10))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(zips)}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    module, compiled, py4j = map(Path, ran.stdout.splitlines())
    assert module.is_relative_to(home) and module.samefile(installed / "daemon.py")
    assert compiled.is_file() and py4j.is_relative_to(home)
    for part in ("bin/spark-submit", "bin/spark-class", "jars"):
        assert (home / part).samefile(installed / part)


def test_the_spark_home_is_used_unless_the_user_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv(NAME, "")  # so that what `ensure` sets goes with this test
    monkeypatch.delenv(NAME)
    spark_home.ensure("local[2]")
    assert NAME not in os.environ, "there is none"
    made = spark_home.make(tmp_path / "spark")
    for master in ("yarn", "spark://127.0.0.1:7077", "k8s://x"):
        spark_home.ensure(master)
        assert NAME not in os.environ, "hosts of a cluster have their own"
    spark_home.ensure("local[2]")
    assert os.environ[NAME] == str(made)
    monkeypatch.setenv(NAME, "/opt/spark")
    spark_home.ensure("local[2]")
    assert os.environ[NAME] == "/opt/spark"


def test_one_of_another_pyspark_is_not_used_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    home, other = tmp_path / "spark", tmp_path / "other"
    (other / "jars").mkdir(parents=True)
    home.mkdir()
    (home / "jars").symlink_to(other / "jars")
    assert spark_home.kept() is None
    assert spark_home.main() == 0
    assert spark_home.kept() == home
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "spark"]
