"""One Spark session for all tests of the bridge that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import spark_bridge

CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_bridge.session(
        "tests",
        **{
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            # Hadoop starts a process for each mode and link of a checkpoint's files that it asks for.
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
            "spark.sql.streaming.pollingDelay": "50ms",  # a stream that waits asks its source a hundred times a second
        },
    )
    yield session
    session.stop()
