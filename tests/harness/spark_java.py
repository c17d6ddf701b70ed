"""Spark's processes in tests: Java that starts quickly, with Spark's classes from an archive that is made once.

    python -m tests.harness.spark_java    makes the archive, if there is none for this Java and this PySpark

They live for seconds: the first compiler and the plainest collector do. Reading and checking Spark's classes out of 300
jars costs a driver most of its start; Java keeps them as it has them in memory (class-data sharing). All of it is told
to Spark by the environment, so drivers, executors and a cluster's processes have it, however they are started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path

import pyspark

from spark_bridge import java_home, spark_home

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
SILENT = "-Xlog:disable -Xlog:all=error:stderr"  # nothing of archives on standard output
ARCHIVE_SECONDS = 600
# What most tests use: a session, a read, a stream, what Spark compiles for them.
TRAINING = """
import sys, tempfile
import spark_bridge
from tests.spark_bridge.stores import SmallStore
from pathlib import Path

work = Path(tempfile.mkdtemp(dir=sys.argv[1]))
made = SmallStore(work / "store")
for number in range(20):
    made.put("a", b"%d" % number, number % 2)
made.dispatch()
spark = spark_bridge.session("training", **{"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(work)})
frame = spark.read.format("rocketmq").option("path", str(made.root)).load()
frame.filter("topic = 'a'").groupBy("queueId").count().orderBy("queueId").collect()
stream = spark.readStream.format("rocketmq").option("path", str(made.root)).option("columns", "queueId").load()
places = {"checkpointLocation": str(work / "checkpoint"), "path": str(work / "rows")}
stream.writeStream.format("parquet").options(**places).trigger(availableNow=True).start().awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()  # it ends, and writes the archive
sys.exit(java.wait())
"""


def archive() -> Path:
    """Where this Java's archive of this PySpark's classes lies, or will."""
    java = Path(os.environ.get("JAVA_HOME", "")).resolve()
    installed_at = (Path(pyspark.__file__).parent / "jars").stat().st_mtime_ns  # Java asks for the files that it read
    key = zlib.crc32(f"{java} {pyspark.__version__} {installed_at} {os.environ.get('SPARK_HOME')}".encode())
    return Path(sys.prefix) / f"spark-classes-{key:08x}.jsa"


def options() -> str:
    """Java's options for each of Spark's processes."""
    return " ".join([QUICK, SILENT, *([f"-XX:SharedArchiveFile={archive()}"] if archive().exists() else [])])


@cache
def prepare() -> None:
    """Tell all of Spark that this process and its children start."""
    if "SPARK_HOME" not in os.environ and spark_home.kept() is None:
        spark_home.keep()
    spark_home.ensure("local")
    java = options()
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = java
    os.environ["SPARK_SUBMIT_OPTS"] = f'{java} "-Dspark.executor.defaultJavaOptions={java}"'


def can_archive() -> bool:
    """Whether this Java has an archive of its own classes, on which another one is laid; one in a package has not."""
    command = [str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"), "-Xshare:on", "-version"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


def make() -> None:
    """The archive, if there is none and this Java can have one."""
    os.environ["JAVA_HOME"] = str(java_home.find({**os.environ, "JAVA_HOME": str(Path(sys.prefix) / "java")}))
    prepare()
    path = archive()
    if path.exists() or not can_archive():
        return
    with tempfile.TemporaryDirectory(prefix="slipstream-classes-") as scratch:
        unfinished = path.with_suffix(f".{os.getpid()}")
        submit = f"{QUICK} {SILENT} -XX:ArchiveClassesAtExit={unfinished}"
        command = [sys.executable, "-c", TRAINING, scratch]
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": submit}
        ran = subprocess.run(
            command,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ARCHIVE_SECONDS,
        )
        if ran.returncode == 0 and unfinished.exists():
            unfinished.replace(path)
        else:
            unfinished.unlink(missing_ok=True)
            print(
                f"no archive of Spark's classes, tests that start Java take longer:\n{ran.stderr[-2000:]}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    make()
