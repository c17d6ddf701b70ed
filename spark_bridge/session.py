"""Helpers for a driver program: a Spark session with the settings that this source likes, and a pruned read.

None of them is needed: `spark.read.format("rocketmq")` works in any session that finds `pyspark_slipstream`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from spark_bridge.columns import schema_of
from spark_bridge.row_options import parse_row_options
from spark_bridge.source import FORMAT, RocketMQSource

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
WORD = re.compile(r"\w+")
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
    store: str | Path | Sequence[str | Path],
    columns: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    where: str | Column | None = None,
    **options: Any,
) -> DataFrame:
    """A store, or several, as a DataFrame of these columns and topics, None is all; switches filter push-down on.

    Spark does not prune the columns of a Python source itself: those left out here cost nothing, others are decoded.
    `where` may name any column; equalities on topic, queue, tags and broker are taken into the plan.
    """
    spark.conf.set(PUSHDOWN_CONF, "true")
    rows = parse_row_options({name: _text(value) for name, value in options.items()})
    needed = None
    if columns is not None:
        words = set(WORD.findall(str(where))) if where is not None else set()
        named = [*columns, *(name for name in schema_of(rows=rows).fieldNames() if name in words)]
        needed = list(dict.fromkeys(named))
    reader = spark.read.format(FORMAT).schema(schema_of(needed, rows))
    if isinstance(store, str | Path):
        reader = reader.option("path", str(store))
    else:
        reader = reader.option("paths", json.dumps([str(path) for path in store]))
    if topics is not None:
        reader = reader.option("topic", ",".join(topics))
    frame = reader.options(**options).load()
    frame = frame if where is None else frame.filter(where)
    return frame if columns is None or needed == list(columns) else frame.select(*columns)


def _text(value: Any) -> str:
    """An option's value as Spark's readers write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
