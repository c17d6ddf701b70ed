"""A store as a table in Spark: `spark.read.format("rocketmq").option("path", STORE).load()`.

    spark = spark_bridge.session("report")
    spark_bridge.read(spark, STORE, columns=["queueId", "bodyLength"], topics=["orders"]).groupBy("queueId").sum()

The log's end is found once, when a read is planned: everything below it is read, nothing above it. The store's segments
are mapped where they lie, so the files (a master's, a slave's, or a stopped broker's) must be on the executors' host.

    module          responsibility
    source.py       Spark's entry: the data source
    session.py      helpers for a driver program
    options.py      options, checked
    inventory.py    the log's ends and the consume queues, found once on the driver
    splits.py       pure: limits and selection -> splits
    stream*.py      readStream: offsets, limits, plans, progress
    reading.py      what an executor does with a split
    scan.py         where records begin in a mapped segment
    columns.py      positions -> Arrow columns, in place
    hosts.py        hosts and message ids as text
    properties.py   property strings -> values and maps
    kernels.py      numpy kernels on the mapped segments
    sink*.py        writes: options, rows to messages, and which of them the log has already
    USAGE.md        columns, options, limits: for who uses it
"""

from spark_bridge.map_segments import map_segments
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.columns import COLUMNS
from spark_bridge.session import read, register, session
from spark_bridge.source import RocketMQSource
from spark_bridge.stream.progress import Lag, lag

__all__ = ["COLUMNS", "InvalidOption", "Lag", "RocketMQSource", "lag", "map_segments", "read", "register", "session"]
