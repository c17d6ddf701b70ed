"""Driver programs of the standalone cluster's tests; what each task found is a line of its own, "name: JSON object".

    python -m tests.spark_bridge.cluster_driver MASTER STORE DIRECTORY read|write|stream ...

One driver does several tasks, one after the other: most of its time it starts, and so do its executors.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import spark_bridge
from store.reading import extent

ROWS, PARTITIONS = 20_000, 4
DIES_AFTER = 3000
WAIT_SECONDS, POLL_SECONDS = 120.0, 0.05
STREAM_SECONDS = 600
CONF = {
    "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200", "spark.executor.cores": "1",
    # No task begins before all executors are there: a quick one would leave nothing to one that is slow to start.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}  # fmt: skip


def who(records: Any) -> list[Any]:
    """A kernel: how many records, and in which executor; all Python workers of one have one parent."""
    return [[os.getppid()], [len(records.starts)]]


def read(spark: SparkSession, store: str, _directory: str) -> dict[str, Any]:
    """Count by row and by kernel."""
    counted = spark_bridge.read(spark, store, columns=["queueId"], topics=["before"]).count()
    kernel = spark_bridge.map_segments(spark, store, who, "executor bigint, n bigint", splitBytes=65536).collect()
    body = spark_bridge.read(spark, store, columns=["topic", "body"], topics=["before"]).rdd
    total = body.map(lambda row: int(row.body)).sum()
    return {
        "counted": counted,
        "total": total,
        "kernel": sum(row.n for row in kernel),
        "executors": len({row.executor for row in kernel}),
    }


def dying(store: str) -> Any:
    """Rows whose first attempt of one partition kills its executor once some of them are in the log."""
    grown = extent.readable_range(store).max_physical_offset + 10_000

    def rows(partition: int, numbers: Iterable[int]) -> Iterator[tuple[str]]:
        first_attempt = TaskContext.get().attemptNumber() == 0
        for count, number in enumerate(numbers):
            if partition == 1 and first_attempt and count == DIES_AFTER:
                await_that(lambda: extent.readable_range(store).max_physical_offset > grown, "no row came into the log")
                os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the executor's JVM
            yield (f"row {number}",)

    return rows


def await_that(met: Callable[[], bool], told: str) -> None:
    """Until that is so."""
    waiting = threading.Event()
    for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
        if met():
            return
        waiting.wait(POLL_SECONDS)
    raise TimeoutError(told)


def parent_of(pid: int) -> int:
    """As the kernel says."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def write(spark: SparkSession, store: str, _directory: str) -> dict[str, Any]:
    """Write rows while an executor is killed; how many there are, and how many different ones."""
    numbers = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    frame = spark.createDataFrame(numbers.mapPartitionsWithIndex(dying(store)), "body string")
    frame.write.format("rocketmq").mode("append").option("path", store).option("topic", "rows").save()
    return {}


def stream(spark: SparkSession, store: str, directory: str) -> dict[str, Any]:
    """Lines of files, one file an epoch, into a topic; the files come when the test has seen what was before."""
    await_that(Path(f"{directory}/source").exists, "no source")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{directory}/source")
    writer = lines.writeStream.format("rocketmq").option("path", store).option("topic", "lines")
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    return {"ended": query.awaitTermination(STREAM_SECONDS)}


def main() -> None:
    master, store, directory, *tasks = sys.argv[1:]
    both = {"read", "write"} & set(tasks)  # a stream that goes on needs one executor
    spark = spark_bridge.session("cluster", master=master, **CONF, **{"spark.cores.max": "2" if both else "1"})
    for task in tasks:
        found = {"read": read, "write": write, "stream": stream}[task](spark, store, directory)
        print(f"{task}: {json.dumps(found)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
