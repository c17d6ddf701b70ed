"""Helpers for a driver program: a Spark session with the settings that this source likes, and a pruned read.

None of them is needed: `spark.read.format("rocketmq")` works in any session that finds `pyspark_slipstream`. A session
that runs is left as it is, by both.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from ipc.module_names import IMPORTED_FROM
from spark_bridge import java_home, spark_home
from spark_bridge.catalogue import kept_options, options_kept
from spark_bridge.options.conditions import Analysed, admitted, columns_named, ranged
from spark_bridge.options.read import parse_options
from spark_bridge.options.rows import parse_row_options
from spark_bridge.options.values import InvalidOption, listed, option_text, place_of
from spark_bridge.options.where import COLUMNS, where_text
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.source import FORMAT

if TYPE_CHECKING:
    from spark_bridge.plan.explanation import ReadPlan

LOOPBACK = "127.0.0.1"
RECOMMENDED_CONF = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",  # a container's own may have a longer path than sockets may have
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def session(app_name: str = "slipstream", master: str = "local[2]", **conf: Any) -> SparkSession:
    """The session that runs, as it is; without one a session on this machine.

    `conf` (`**{"spark.driver.memory": "2g"}`) overrides the recommended settings. Java is the one of JAVA_HOME; where
    that is not set, a 17 or 21 of this machine, else the one that the extra `spark` brings. Raises JavaMissing.
    """
    if SparkContext._active_spark_context is not None:
        return _running(conf)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a virtual environment that is not activated has no PATH
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    _make_importable(IMPORTED_FROM)
    if "JAVA_HOME" not in os.environ:
        java_home.ensure()
    spark_home.ensure(master)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**RECOMMENDED_CONF, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _running(conf: Mapping[str, Any]) -> SparkSession:
    """Return the running session, and warn about settings that it lacks."""
    running = SparkSession.builder.getOrCreate()
    lacking = [name for name, value in conf.items() if running.conf.get(name, None) != option_text(value)]
    if lacking:
        text = f"a Spark session is already running, without {', '.join(sorted(lacking))}; stop it first"
        warnings.warn(text, stacklevel=3)
    return running


def _make_importable(root: Path) -> None:
    """Python workers find these packages, and Spark the source, where a checkout is used without being installed."""
    if (root / "pyspark_slipstream.py").exists() and root.name != "site-packages":
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(root) not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, paths)])


def read(
    spark: SparkSession,
    store: str | Path | Sequence[str | Path],
    columns: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    where: str | Column | None = None,
    placed: bool = False,
    **options: Any,
) -> DataFrame:
    """A store, or several, as a DataFrame of these columns and topics, None is all; changes no setting.

    Spark does not prune the columns of a Python source itself: those left out here cost nothing, others are decoded.
    `where` may name any column; of its equalities those on topic, queue, tags and broker, and of its comparisons those
    on offsets and times become options of the read, so that nothing else is touched; Spark Connect shows no condition,
    and filters all itself. Conditions added later, `read(...).filter(...)`, are Spark's to apply. With
    `columnarSidecar=True` sealed segments that have a valid side file are read by Spark as Parquet, planned when this
    is called, bodies only of rows that meet `where`. With `placed` tasks of a read through Flight prefer the servers'
    hosts.
    """
    rows = parse_row_options({name: option_text(value) for name, value in options.items()})
    topics, columns = listed("topics", topics), listed("columns", columns)
    if topics is not None:
        options["topic"] = ",".join(topics)
    if where is None:
        return _frame(spark, store, schema_of(columns, rows), options, placed)
    every = _reader(spark, store, schema_of(rows=rows), options).load()
    if not hasattr(every, "_jdf"):  # Spark Connect shows no condition: it is Spark's alone
        names = list(dict.fromkeys([*every.columns, *(columns or ())]))
        filtered = _frame(spark, store, schema_of(names, rows), options, placed, (where, ()))
        return filtered.select(*every.columns) if columns is None else filtered.select(*columns)
    condition = Analysed.of(every, where)
    named, needed = columns_named(condition), None
    if columns is not None:
        needed = list(dict.fromkeys([*columns, *(name for name in condition.columns if name in named)]))
    wanted = {name: values for name, values in admitted(condition).items() if name in COLUMNS}
    ranges = ranged(condition)
    if wanted or ranges:
        options["where"] = where_text(wanted, ranges)
    frame = _frame(spark, store, schema_of(needed, rows), options, placed, (where, sorted(named)))
    return frame if columns is None or needed == list(columns) else frame.select(*columns)


def _frame(
    spark: SparkSession,
    store: str | Path | Sequence[str | Path],
    schema: StructType,
    options: Mapping[str, Any],
    placed: bool,
    where: tuple[str | Column, Sequence[str]] | None = None,
) -> DataFrame:
    """The rows that meet a condition, which is given with the columns that it names."""
    given = {name: option_text(value) for name, value in options.items()}
    frame = None
    if placed:
        from spark_bridge.preferred_hosts import preferring_frame  # gRPC is for those who need it

        frame = preferring_frame(spark, schema, parse_options(given | place_of(store)))
    elif parse_row_options(given).side_files:
        from spark_bridge.parquet_reads.frame import parquet_frame

        frame = parquet_frame(spark, schema, parse_options(given | place_of(store)), where)
        if frame is not None:
            return frame
    frame = _reader(spark, store, schema, options).load() if frame is None else frame
    return frame if where is None else frame.filter(where[0])


def _reader(
    spark: SparkSession, store: str | Path | Sequence[str | Path], schema: StructType, options: Mapping[str, Any]
) -> DataFrameReader:
    return spark.read.format(FORMAT).schema(schema).options(**options).options(**place_of(store))


def explain_read(frame: DataFrame) -> ReadPlan:
    """Return what a frame reads of stores, as it would be planned now; `print` shows it.

    A frame of `load()` or a temporary view goes on with the plan of its first use. Raises InvalidOption for a frame
    that reads none, and what a read would raise.
    """
    from spark_bridge.flight.explaining import explain_options  # who only reads plans nothing here
    from spark_bridge.plan.explanation import ReadPlan

    plans = [explain_options(options) for options in _options_read(frame)]
    if not plans:
        what = "this frame reads no store; give one of read(...), or a table (what reads side files is planned already:"
        raise InvalidOption(f"explain_read: {what} frame.inputFiles() names them)")
    return ReadPlan([store for plan in plans for store in plan.stores])


def _options_read(frame: DataFrame) -> list[dict[str, str]]:
    """Return the options of each relation of this source in the frame; Spark Connect shows those of tables alone."""
    if not hasattr(frame, "_jdf"):
        kept = options_kept(frame.schema)
        return [kept] if kept else []
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    read = []
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == FORMAT:
            schema = StructType.fromJson(json.loads(leaf.schema().json()))
            read.append(kept_options(schema, dict(leaf.options().asCaseSensitiveMap())))
    return read
