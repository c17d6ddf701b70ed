"""A standalone Spark cluster on loopback, made by hand: one master and two workers of one core each."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from spark_bridge import java_home
from tools.common.local_broker import end

LOOPBACK = "127.0.0.1"
START_SECONDS, STOP_SECONDS = 180.0, 30.0
WORKERS = 2


class SparkCluster:
    """A context manager; `url` is what a driver connects to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[str]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("deploy.master.Master", "Starting Spark master at", "--port", "0")
            self.url = master.get(timeout=START_SECONDS).rsplit(" ", 1)[1]
            sizes = ["--port", "0", "--cores", "1", "--memory", "1g"]
            folders = [str(self._directory / f"worker-{number}") for number in range(WORKERS)]
            workers = [
                self._start("deploy.worker.Worker", "registered with master", *sizes, "--work-dir", folder, self.url)
                for folder in folders
            ]
            for worker in workers:
                worker.get(timeout=START_SECONDS)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):  # the workers first, before they miss their master
            end(process, STOP_SECONDS)

    def _start(self, name: str, until: str, *arguments: str) -> queue.Queue[str]:
        """Start one of the cluster's processes; there comes the line of its log that says that it serves."""
        java_home.ensure()
        script = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        command = [script, f"org.apache.spark.{name}", "--host", LOOPBACK, "--webui-port", "0", *arguments]
        # A session of an earlier test may have set PYTHONPATH: executors have what their driver sends them.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={
                **kept,
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            },
        )
        self._processes.append(process)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(process, until, lines), daemon=True).start()
        return lines


def _read(process: subprocess.Popen[str], until: str, lines: queue.Queue[str]) -> None:
    """Read the log to its end, so that nobody waits for a full pipe."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            if until in line:
                lines.put(line.strip())
