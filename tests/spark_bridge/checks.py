"""What must hold of any store that Spark reads: running master, running slave, or nobody's."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge


class Sent(NamedTuple):
    """One message as its sender knows it."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes


def assert_spark_reads(spark: SparkSession, store: str, sent: list[Sent]) -> None:
    """Each message is a row exactly once, by whichever way it is asked for."""
    columns = ["topic", "queueId", "queueOffset", "body"]
    rows = spark_bridge.read(spark, store, columns=columns).collect()
    assert Counter(Sent(row[0], row[1], row[2], bytes(row[3])) for row in rows) == Counter(sent)
    sums = spark_bridge.read(spark, store, columns=["queueOffset"]).agg(F.count("*"), F.sum("queueOffset")).first()
    assert sums is not None
    assert tuple(sums) == (len(sent), sum(message.queue_offset for message in sent) if sent else None)
    for topic in {message.topic for message in sent}:
        filtered = spark_bridge.read(spark, store, columns=["topic", "bodyLength"]).filter(F.col("topic") == topic)
        assert sorted(row.bodyLength for row in filtered.collect()) == sorted(
            len(message.body) for message in sent if message.topic == topic
        )
