"""Spark's own standalone cluster in nodes: a master, a worker of one core in each of the others, and a driver.

Executors are given the wheel with the job (`--py-files`): their Python has PySpark, and nothing of Slipstream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark

from ipc.descriptors import await_readable
from ipc.module_names import SOURCES
from spark_bridge import spark_home
from tools.dev.cluster.nodes import TEMPORARY, Node, NodeFailed, Program

MASTER_PORT = 7077
DRIVER = Path(__file__).with_name("driver.py")
SENT = "slipstream.zip"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # processes that live for seconds
OF_SPARK = ("SPARK_DAEMON_JAVA_OPTS", "SPARK_HOME", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
ANSWER_SECONDS = 300.0


def build_wheel(into: Path) -> Path:
    """The wheel of this checkout, under a name that Spark takes; nothing is fetched. Raises NodeFailed."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
               "--disable-pip-version-check", "--wheel-dir", str(into), str(SOURCES)]  # fmt: skip
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = list(into.glob("*.whl"))
    if made.returncode != 0 or not wheels:
        raise NodeFailed(f"no wheel of {SOURCES}: {made.stderr.strip()[-1000:]}")
    return wheels[0].rename(into / SENT)


def make_python(node: Node) -> Path:
    """Make a Python in a node, with this environment's packages except Slipstream; return its path there."""
    folder = node.here / "python"
    node.run("venv", [sys.executable, "-m", "venv", "--without-pip", folder])
    (lib,) = (node.files / "python" / "lib").glob("python*")
    (lib / "site-packages" / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


class SparkCluster:
    """A master with room for the driver, and workers; they run once this is made. Raises NodeFailed."""

    def __init__(self, first: Node, others: Sequence[Node]) -> None:
        self._first = first
        self.url = f"spark://{first.name}:{MASTER_PORT}"
        for node in (first, *others):
            self._python = make_python(node)
        begun = self._daemon(first, "master.Master", "--port", MASTER_PORT)
        begun.await_line("Starting Spark master at")
        sizes = ["--cores", 1, "--memory", "1g", "--work-dir", first.here / "work", self.url]
        workers = [self._daemon(node, "worker.Worker", "--port", 0, *sizes) for node in others]
        for worker in workers:
            worker.await_line("registered with master")

    def _daemon(self, node: Node, name: str, *arguments: object) -> Program:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        words = [script, f"org.apache.spark.deploy.{name}", "--host", node.name, "--webui-port", 0, *arguments]
        return node.start(f"spark-{name.lower()}", words, self._environment(node))

    def _environment(self, node: Node) -> dict[str, str]:
        home = spark_home.kept()
        own = {"SPARK_HOME": str(home)} if home is not None else {}
        given = {name: os.environ[name] for name in OF_SPARK if name in os.environ}
        temporary = f"-Djava.io.tmpdir={TEMPORARY}"
        java = f"{given.get('SPARK_DAEMON_JAVA_OPTS', QUICK)} {temporary}"
        submit = f'{java} "-Dspark.executor.defaultJavaOptions={java}"'
        return {
            "SPARK_LAUNCHER_OPTS": QUICK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": TEMPORARY,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            **own,
            **given,
            "SPARK_DAEMON_JAVA_OPTS": java,
            "SPARK_SUBMIT_OPTS": submit,
        }

    def driver(self, setting: dict[str, Any]) -> Driver:
        """A driver program beside the master, to be asked one thing after the other."""
        node = self._first
        (node.files / "driver.py").write_bytes(DRIVER.read_bytes())
        (node.files / "setting.json").write_text(json.dumps({**setting, "master": self.url, "py_files": SENT}))
        environment = {**self._environment(node), "PYTHONPATH": str(node.here / SENT), "PYTHONUNBUFFERED": "1"}
        command = [self._python, node.here / "driver.py", node.here / "setting.json"]
        return Driver(node.start("driver", command, environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE))


class Driver:
    """A driver program that does what it is asked: a line of JSON in, a line of JSON out."""

    def __init__(self, program: Program) -> None:
        self.program = program
        assert program.process.stdin is not None and program.process.stdout is not None
        self._asked, self._answers = program.process.stdin, program.process.stdout

    def ask(self, task: str, **more: object) -> None:
        """Send a task to the driver program."""
        self._asked.write(json.dumps({"task": task, **more}) + "\n")
        self._asked.flush()

    def answer(self) -> dict[str, Any]:
        """Return what the task that was asked for came to. Raises NodeFailed."""
        if not await_readable(self._answers, timeout_ms=ANSWER_SECONDS * 1000):
            raise self.program.failed(f"no answer within {ANSWER_SECONDS:.0f} s")
        line = self._answers.readline()
        if not line.startswith("{"):
            self.program.process.wait(ANSWER_SECONDS)
            raise self.program.failed("ended without an answer")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise self.program.failed(said["error"])
        return said

    def end(self) -> int:
        """Return what it ended with, once nothing more is asked."""
        self._asked.close()
        return self.program.process.wait(ANSWER_SECONDS)
