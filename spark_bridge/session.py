"""Helpers for a driver program: a Spark session with the settings that this source likes, and a pruned read.

None of them is needed: `spark.read.format("rocketmq")` works in any session that finds `pyspark_slipstream`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_bridge.columns import schema_of
from spark_bridge.source import FORMAT, RocketMQSource

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
LOOPBACK = "127.0.0.1"
RECOMMENDED_CONF = {
    PUSHDOWN_CONF: "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def session(app_name: str = "slipstream", master: str = "local[2]", **conf: Any) -> SparkSession:
    """A session on this machine; `conf` (`**{"spark.driver.memory": "2g"}`) overrides the recommended settings.

    Java is the one of JAVA_HOME, or `java` in PATH: 17 or newer.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a virtual environment that is not activated has no PATH
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    _make_importable(Path(__file__).resolve().parent.parent)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**RECOMMENDED_CONF, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _make_importable(root: Path) -> None:
    """Python workers find these packages, and Spark the source, where a checkout is used without being installed."""
    if (root / "pyspark_slipstream.py").exists() and root.name != "site-packages":
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(root) not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, paths)])


def register(spark: SparkSession) -> None:
    """For a session that does not find the source by itself (packages sent with --py-files)."""
    spark.dataSource.register(RocketMQSource)


def read(
    spark: SparkSession,
    path: str | Path,
    columns: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """A store as a DataFrame of these columns and topics, None is all; switches filter push-down on.

    Spark does not prune the columns of a Python source itself: those left out here cost nothing, others are decoded.
    """
    spark.conf.set(PUSHDOWN_CONF, "true")
    reader = spark.read.format(FORMAT).schema(schema_of(columns)).option("path", str(path))
    if topics is not None:
        reader = reader.option("topic", ",".join(topics))
    return reader.options(**options).load()
