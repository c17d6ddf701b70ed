"""Jobs on a YARN cluster of this user, one after the other: how each brings the package along, and what it found."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.yarn.cluster import YarnCluster

TOPIC = "before"
NO_LEASE = "read without a lease"
ENVIRONMENT = "environment"
PYTHON = f"{ENVIRONMENT}/bin/python"
ARCHIVE, CONFIGURED, PY_FILES, INSTALLED = "--archives", "spark.yarn.dist.archives", "--py-files", "installed"


@dataclass(frozen=True)
class Case:
    """A job; `written` is the topic of its rows, through Flight unless the package is installed with its kernels."""

    mode: str
    way: str
    written: str

    @property
    def is_written_in_place(self) -> bool:
        """By executors that have compiled code."""
        return self.way == INSTALLED


@dataclass(frozen=True)
class Material:
    """What jobs are made of: paths, and the address of a Flight server."""

    store: str
    location: str
    program: str
    rows: int
    daemons: str
    archive: str  # of `environment`, which has the package
    environment: str
    package: str  # the wheel under a name that Spark takes
    python: str  # one with all that the package depends on


@dataclass(frozen=True)
class Ran:
    """What a job found, how long it took to its end, and whether one of its processes read without a lease."""

    found: dict[str, Any]
    seconds: float
    is_without_lease: bool


def run(folder: Path, material: Material, cases: Sequence[Case]) -> list[Ran]:
    """All of them, on a cluster that ends with this call; its files are below `folder`, and stay."""
    (folder / ENVIRONMENT).symlink_to(material.environment)
    ran = []
    with YarnCluster(folder / "yarn", Path(material.daemons)) as cluster:
        said = 0  # by containers, of leases
        for number, case in enumerate(cases):
            begun, place = time.monotonic(), folder / f"job-{number}"
            place.mkdir()
            submitted = _submit(cluster, material, case, place)
            contained = cluster.said().count(NO_LEASE)
            found = json.loads((place / "found.json").read_text())
            ran.append(Ran(found, time.monotonic() - begun, NO_LEASE in submitted or contained > said))
            said = contained
    return ran


def _submit(cluster: YarnCluster, material: Material, case: Case, place: Path) -> str:
    """What it said. As docs/spark-clusters.md has it."""
    given: list[object] = []
    conf, environment = {}, {}
    if case.way == PY_FILES:
        given = [PY_FILES, material.package]
        environment = {"PYSPARK_PYTHON": material.python}
    elif case.way == ARCHIVE:
        given = [ARCHIVE, f"{material.archive}#{ENVIRONMENT}"]
        environment = {"PYSPARK_PYTHON": f"./{PYTHON}", "PYSPARK_DRIVER_PYTHON": PYTHON}
    elif case.way == INSTALLED:
        environment = {"PYSPARK_PYTHON": sys.executable}
    else:
        conf = {CONFIGURED: f"{material.archive}#{ENVIRONMENT}", "spark.pyspark.python": f"./{PYTHON}"}
    written_to = material.store if case.is_written_in_place else material.location
    given += [material.program, material.store, material.location, TOPIC, written_to, case.written, material.rows]
    given.append(place)
    return cluster.submit(case.mode, given, conf, environment, cwd=place.parent)


def main(folder: str, material: str, cases: str) -> None:
    """For another user's process: all handed in as texts, and what came of it as a line."""
    ran = run(Path(folder), Material(**json.loads(material)), [Case(**case) for case in json.loads(cases)])
    print(json.dumps([asdict(one) for one in ran]))
