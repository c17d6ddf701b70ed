"""A store as a table in Spark: `spark.read.format("rocketmq").option("path", STORE).load()`.

    from slipstream import read, session

    spark = session("report")
    read(spark, STORE, columns=["queueId", "bodyLength"], topics=["orders"]).groupBy("queueId").sum()

The log's end is found once, when a read is planned: everything below it is read, nothing above it. The store's segments
are mapped where they lie, so the files (a master's, a slave's, or a stopped broker's) must be on the executors' host.

Columns, options and limits are in USAGE.md, for users; the rooms' own first lines say where things are.

A name is imported when it is first used: `scan`, and every other reader without Spark, needs no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipc.lazy_names import name_of

if TYPE_CHECKING:
    from spark_bridge.driver import explain_read, read, session
    from spark_bridge.kernels import map_segments
    from spark_bridge.options.values import InvalidOption
    from spark_bridge.records.reading import Source, counted, figures
    from spark_bridge.scanning import scan
    from spark_bridge.source import RocketMQSource
    from spark_bridge.sql.registration import Registration, register
    from spark_bridge.stream.progress import Lag, lag
    from store.columns.columns import COLUMNS

__all__ = [
    "COLUMNS", "InvalidOption", "Lag", "Registration", "RocketMQSource", "Source", "counted", "explain_read", "figures",
    "lag", "map_segments", "read", "register", "scan", "session",
]  # fmt: skip
_LIES_IN = {
    "COLUMNS": "records.columns",
    "InvalidOption": "options.values",
    "Lag": "stream.progress",
    "Registration": "sql.registration",
    "RocketMQSource": "source",
    "Source": "records.reading",
    "counted": "records.reading",
    "explain_read": "driver",
    "figures": "records.reading",
    "lag": "stream.progress",
    "map_segments": "kernels",
    "read": "driver",
    "register": "sql.registration",
    "scan": "scanning",
    "session": "driver",
}


def __getattr__(name: str) -> Any:
    """Return what `__all__` names, when it is first asked for. Raises ImportError with the cause."""
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = name_of(f"{__name__}.{_LIES_IN[name]}", name, f"slipstream.{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
