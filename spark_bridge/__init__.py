"""A store as a table in Spark: `spark.read.format("rocketmq").option("path", STORE).load()`.

    from slipstream import read, session

    spark = session("report")
    read(spark, STORE, columns=["queueId", "bodyLength"], topics=["orders"]).groupBy("queueId").sum()

The log's end is found once, when a read is planned: everything below it is read, nothing above it. The store's segments
are mapped where they lie, so the files (a master's, a slave's, or a stopped broker's) must be on the executors' host.

Columns, options and limits are in USAGE.md, for who uses it; the rooms' own first lines say where things are.
"""

from spark_bridge.map_segments import map_segments
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import COLUMNS
from spark_bridge.session import read, register, session
from spark_bridge.source import RocketMQSource
from spark_bridge.stream.progress import Lag, lag

__all__ = ["COLUMNS", "InvalidOption", "Lag", "RocketMQSource", "lag", "map_segments", "read", "register", "session"]
