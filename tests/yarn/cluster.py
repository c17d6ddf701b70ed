"""YARN on loopback: a ResourceManager and two NodeManagers as Hadoop publishes them, and jobs that are submitted to it.

There is no HDFS: what a job brings lies in a folder of this host. Containers are those of DefaultContainerExecutor,
processes of the user who runs the NodeManagers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from xml.sax.saxutils import escape

import psutil
import pyspark

from tests.harness.conditions import await_that
from tests.interop.jars import Jars
from tools.common.local_broker import end, free_port

HOST = "127.0.0.1"
NODES = 2
START_SECONDS, STOP_SECONDS, JOB_SECONDS, CONTAINERS_SECONDS = 180.0, 60.0, 600.0, 60.0
PYSPARK = Path(pyspark.__file__).parent
RESOURCES, NODE = "resourcemanager.ResourceManager", "nodemanager.NodeManager"
BEGUN = {RESOURCES: "Transitioned to active state", NODE: "Registered with ResourceManager"}
RESOURCE_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
NODE_ADDRESSES = ("address", "localizer.address", "collector-service.address", "webapp.address")
SCHEDULER = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
WITH_US = ["setpriv", "--pdeathsig", "TERM"]  # and NodeManagers end their containers
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # processes that live for seconds
OF_CONTAINERS = {"SPARK_LOCAL_IP": HOST, "GRPC_DNS_RESOLVER": "native"}
CONF = {
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.yarn.jars": f"local:{PYSPARK}/jars/*",
    "spark.yarn.am.extraJavaOptions": QUICK,
    "spark.driver.defaultJavaOptions": QUICK,
    "spark.executor.defaultJavaOptions": QUICK,
    **{f"spark.executorEnv.{name}": value for name, value in OF_CONTAINERS.items()},
    **{f"spark.yarn.appMasterEnv.{name}": value for name, value in OF_CONTAINERS.items()},
    # A container's folder is too long for the name of a socket, and that is where they would be.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",
    # No task begins before all executors are there: a quick one would leave nothing to one that is slow to start.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
LOGGING = """rootLogger.level = info
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d %p %c{1}: %m%n
"""


def hadoop_version() -> str:
    """That of the client which PySpark brings: the daemons take it for theirs."""
    (jar,) = (PYSPARK / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def jars() -> Jars:
    """Of the daemons."""
    version = hadoop_version()
    return Jars(f"yarn-{version}", version, Path(__file__).with_name("pom.xml"), ())


class YarnCluster:
    """A context manager; `daemons` is a folder with their jars, and what they leave is below `folder`."""

    def __init__(self, folder: Path, daemons: Path) -> None:
        self.folder, self._daemons = folder, daemons
        self._client = folder / "client"
        self._running = ExitStack()

    def __enter__(self) -> Self:
        addresses = {f"resourcemanager.{name}": f"{HOST}:{free_port()}" for name in RESOURCE_ADDRESSES}
        shared = {
            "resourcemanager.hostname": HOST,
            "resourcemanager.scheduler.class": SCHEDULER,
            **addresses,
            "scheduler.minimum-allocation-mb": 64,
        }
        _configure(self._client, shared)
        with ExitStack() as starting:
            starting.callback(self._end_containers)
            self._start(starting, RESOURCES, self._client, self.folder / "resources.log")
            for number in range(NODES):
                files = self.folder / f"node-{number}"
                _configure(files / "conf", {**shared, **_of_node(files)})
                self._start(starting, NODE, files / "conf", files / "log")
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._running.close()

    def _start(self, stack: ExitStack, name: str, conf: Path, log: Path) -> None:
        """One of the daemons, until it serves."""
        options = ["-Xmx256m", *QUICK.split(), f"-Dlog4j2.configurationFile={conf}/log4j2.properties"]
        class_path = f"{conf}:{self._daemons}/*:{PYSPARK}/jars/*"
        command = [*WITH_US, "java", *options, "-cp", class_path, f"org.apache.hadoop.yarn.server.{name}"]
        with log.open("wb") as to:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=to, cwd=self.folder)
        stack.callback(end, process, STOP_SECONDS)

        def has_begun() -> bool:
            assert process.poll() is None, f"{name} ended with {process.returncode}: {log.read_text()[-4000:]}"
            return BEGUN[name] in log.read_text()

        await_that(has_begun, f"{name} serves: {log}", START_SECONDS)

    def _end_containers(self) -> None:
        """Whoever still works below the folder: a job that nobody waits for any more."""
        left = [process for process in psutil.process_iter() if _works_below(process, self.folder)]
        for process in left:
            process.kill()
        psutil.wait_procs(left, CONTAINERS_SECONDS)

    def submit(
        self, mode: str, given: Sequence[object], conf: Mapping[str, str], environment: Mapping[str, str], cwd: Path
    ) -> str:
        """A job by spark-submit, to its end, which has to be a good one; what that said, in client mode the driver.

        `given` is its program and what follows.
        """
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        own = {"HADOOP_CONF_DIR": str(self._client), "SPARK_LAUNCHER_OPTS": QUICK, **OF_CONTAINERS, **environment}
        staging = {"spark.yarn.stagingDir": f"file://{self.folder}/staging"}
        all_of_it = {**CONF, **staging, **({"spark.driver.host": HOST} if mode == "client" else {}), **conf}
        command = [
            str(PYSPARK / "bin" / "spark-submit"),
            "--master",
            "yarn",
            "--deploy-mode",
            mode,
            *(part for name, value in all_of_it.items() for part in ("--conf", f"{name}={value}")),
            *map(str, given),
        ]
        ran = subprocess.run(
            command,
            cwd=cwd,
            env={**kept, **own},
            check=False,
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == 0, f"{mode}: {ran.stdout}{ran.stderr[-4000:]}{self.said()[-4000:]}"
        return ran.stdout + ran.stderr

    def said(self) -> str:
        """All that containers have said until now."""
        logs = sorted(self.folder.glob("node-*/logs/*/*/std*"))
        return "".join(path.read_text("utf-8", "replace") for path in logs)


def _of_node(files: Path) -> dict[str, object]:
    addresses = {f"nodemanager.{name}": f"{HOST}:{free_port()}" for name in NODE_ADDRESSES}
    return {
        "nodemanager.hostname": HOST,
        **addresses,
        "nodemanager.local-dirs": files / "local",
        "nodemanager.log-dirs": files / "logs",
        "nodemanager.resource.memory-mb": 4096,
        "nodemanager.resource.cpu-vcores": 4,
        "nodemanager.vmem-check-enabled": "false",
        "nodemanager.pmem-check-enabled": "false",
        # Whose disk it is decides: a guest on a machine uses what there is.
        "nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
    }


def _configure(folder: Path, values: Mapping[str, object]) -> None:
    """As Hadoop reads it; names without their `yarn.`."""
    folder.mkdir(parents=True)
    (folder / "log4j2.properties").write_text(LOGGING)
    core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": folder / "tmp"}
    of_yarn = {f"yarn.{name}": value for name, value in values.items()}
    for name, properties in (("core", core), ("yarn", of_yarn)):
        lines = (
            f"<property><name>{key}</name><value>{escape(str(value))}</value></property>"
            for key, value in properties.items()
        )
        (folder / f"{name}-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>\n")


def _works_below(process: psutil.Process, folder: Path) -> bool:
    try:
        return folder in Path(process.cwd()).parents
    except psutil.Error:
        return False
