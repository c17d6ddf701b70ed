"""A driver program for YARN: it reads a store in place and through Flight, in batches and as streams, and writes rows.

    job.py STORE LOCATION TOPIC WRITTEN_TO WRITTEN ROWS FOLDER

It has nothing of this checkout but the package that was sent with it. What it found is FOLDER/found.json; a cluster's
driver says nothing to who submitted it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import slipstream

Place = tuple[str, int, str, str, str]  # working directory, user, Python, package, where from


def told(row: Row) -> tuple[Place, str]:
    """Where an executor had that row, and its body."""
    return (os.getcwd(), os.getuid(), sys.prefix, slipstream.__file__, row._replica), bytes(row.body).decode()


def batch(spark: SparkSession, path: str, topic: str) -> dict[str, Any]:
    """Every message, once."""
    frame = slipstream.read(spark, path, columns=["body", "_replica"], topics=[topic], maxBytesPerPartition=1 << 18)
    rows = frame.rdd.map(told).collect()
    return {"places": sorted({place for place, _body in rows}), "bodies": [body for _place, body in rows]}


def stream(spark: SparkSession, path: str, topic: str, progress: Path) -> list[str]:
    """The same by a streaming query, to its end."""
    bodies: list[str] = []

    def take(rows: DataFrame, _number: int) -> None:
        bodies.extend(bytes(row.body).decode() for row in rows.collect())

    reader = spark.readStream.format("rocketmq").option("columns", "body").option("topic", topic)
    writer = reader.load(path).writeStream.foreachBatch(take).option("checkpointLocation", f"file://{progress}")
    writer.trigger(availableNow=True).start().awaitTermination()
    return bodies


def write(spark: SparkSession, path: str, topic: str, rows: int) -> None:
    """Rows of all executors."""
    frame = spark.range(0, rows, 1, 4).selectExpr("cast(cast(id as string) as binary) body")
    frame.write.format("rocketmq").mode("append").option("path", path).option("topic", topic).save()


def main() -> None:
    """All of it, to its end."""
    store, location, topic, written_to, written, rows, given = sys.argv[1:]
    folder = Path(given)
    spark = SparkSession.builder.getOrCreate()
    slipstream.register(spark)
    found: dict[str, Any] = {"driver": [os.getcwd(), sys.prefix, slipstream.__file__]}
    for way, path in (("in place", store), ("Flight", location)):
        found[f"batch, {way}"] = batch(spark, path, topic)
        found[f"stream, {way}"] = stream(spark, path, topic, folder / f"progress-{way.replace(' ', '-')}")
    write(spark, written_to, written, int(rows))
    spark.stop()
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
