"""A driver program of a test: one streaming query into Parquet files, until it is killed or told to end.

    python -m tests.spark_bridge.stream_driver MASTER STORE WORK live|drain [option=value ...]

Spark's file sink notes in its own log which files count, so a batch that is run again is there once. `live` goes on for
ever, and starts a query that failed again; `drain` ends once everything is read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

import spark_bridge

RESTARTS_MAX = 100
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # these processes live too short for more
CONF = {
    "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8", "spark.executor.extraJavaOptions": JAVA,
    "spark.driver.extraJavaOptions": JAVA,
    "spark.worker.cleanup.enabled": "false", "spark.sql.streaming.minBatchesToRetain": "5",
}  # fmt: skip


def main(master: str, store: str, work: Path, mode: str, options: list[str]) -> None:
    """Run the query."""
    spark = spark_bridge.session("stream-driver", master, **CONF, **{"spark.local.dir": str(work / "local")})
    reader = spark.readStream.format("rocketmq").option("path", store)
    reader = reader.schema("topic string, queueId int, queueOffset bigint, body binary")
    frame = reader.options(**dict(option.split("=", 1) for option in options)).load()
    writer = frame.writeStream.format("parquet").option("path", str(work / "rows"))
    writer = writer.option("checkpointLocation", str(work / "checkpoint"))
    writer = writer.trigger(availableNow=True) if mode == "drain" else writer.trigger(processingTime="0 seconds")
    for _ in range(RESTARTS_MAX if mode == "live" else 0):
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            print(f"the query failed and is started again: {error}", flush=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5:])
