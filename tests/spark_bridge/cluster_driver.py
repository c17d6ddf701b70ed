"""Driver programs of the standalone cluster's tests; what they found is one JSON object on the last line.

    python -m tests.spark_bridge.cluster_driver read|write|stream MASTER STORE [DIRECTORY]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
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
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200", "spark.cores.max": "2", "spark.executor.cores": "1",
}  # fmt: skip


def who(records: Any) -> list[Any]:
    """A kernel: how many records, and in which executor; all Python workers of one have one parent."""
    return [[os.getppid()], [len(records.starts)]]


def read(spark: SparkSession, store: str) -> dict[str, Any]:
    """Count by row and by kernel."""
    counted = spark_bridge.read(spark, store, columns=["queueId"], topics=["before"]).count()
    kernel = spark_bridge.map_segments(spark, store, who, "executor bigint, n bigint", splitBytes=65536).collect()
    body = spark_bridge.read(spark, store, columns=["topic", "body"], topics=["before"]).rdd
    total = body.map(lambda row: int(row.body)).sum()
    return {"counted": counted, "total": total, "kernel": sum(row.n for row in kernel),
            "executors": len({row.executor for row in kernel})}  # fmt: skip


def dying(store: str) -> Any:
    """Rows whose first attempt of one partition kills its executor once some of them are in the log."""
    begin = extent.readable_range(store).max_physical_offset

    def rows(partition: int, numbers: Iterable[int]) -> Iterator[tuple[str]]:
        first_attempt = TaskContext.get().attemptNumber() == 0
        for count, number in enumerate(numbers):
            if partition == 1 and first_attempt and count == DIES_AFTER:
                await_growth(store, begin)
                os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the executor's JVM
            yield (f"row {number}",)

    return rows


def await_growth(store: str, begin: int) -> None:
    """Until the log has grown by some rows."""
    waiting = threading.Event()
    for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
        if extent.readable_range(store).max_physical_offset > begin + 10_000:
            return
        waiting.wait(POLL_SECONDS)
    raise TimeoutError("no row came into the log")


def parent_of(pid: int) -> int:
    """As the kernel says."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def write(spark: SparkSession, store: str) -> dict[str, Any]:
    """Write rows while an executor is killed; how many there are, and how many different ones."""
    numbers = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    frame = spark.createDataFrame(numbers.mapPartitionsWithIndex(dying(store)), "body string")
    frame.write.format("rocketmq").mode("append").option("path", store).option("topic", "rows").save()
    return {}


def stream(spark: SparkSession, store: str, directory: str) -> dict[str, Any]:
    """Lines of files, one file an epoch, into a topic."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{directory}/source")
    writer = lines.writeStream.format("rocketmq").option("path", store).option("topic", "lines")
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    return {"ended": query.awaitTermination(STREAM_SECONDS)}


def main() -> None:
    task, master, store, *rest = sys.argv[1:]
    spark = spark_bridge.session("cluster", master=master, **CONF)
    result = {"read": read, "write": write, "stream": stream}[task](spark, store, *rest)  # type: ignore[operator]
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
