"""One Spark session for all tests of the bridge that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import spark_bridge


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_bridge.session(
        "tests",
        **{
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    yield session
    session.stop()
