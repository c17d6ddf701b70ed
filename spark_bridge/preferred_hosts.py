"""A read whose tasks say on which hosts they would like to run: those of the servers that stand beside replicas.

Spark asks no Python source for such hosts. An RDD of tickets that was made with them has them, and so has a DataFrame
over it: a task then runs beside a replica if a core is free there within `spark.locality.wait`, and reads it in place
where `replicaPath` is that replica.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ipc.host_port import host_port
from spark_bridge.flight.remote.anywhere import RemoteSplit, plan_anywhere, read_anywhere
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.spark_schema import json_schema, settled

SPLIT = "split binary"


def preferring_frame(spark: SparkSession, schema: StructType, options: ReadOptions) -> DataFrame:
    """The rows of a read through Flight, planned now; each task prefers the hosts of its ticket's servers.

    Raises InvalidOption for a read of paths, for Spark Connect, and where pandas, which Spark wants for it, is missing.
    """
    if options.flights is None:
        raise InvalidOption("placed: a path is read on the host of each task; give the addresses of Flight servers")
    if getattr(spark, "_jvm", None) is None:
        raise InvalidOption("placed: Spark Connect does not know the hosts of tasks; leave it out")
    if find_spec("pandas") is None:
        raise InvalidOption("placed: Spark needs the package pandas for it; `pip install 'pandas<3'`")
    rows = settled(schema, options.rows)
    splits = plan_anywhere(options.flights, schema.fieldNames(), rows, json_schema(schema, options.rows))
    arrow_schema = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column(0):
                yield from read_anywhere(pickle.loads(value.as_py()), arrow_schema)

    tickets = [(pickle.dumps(split), hosts_of(split)) for split in splits]
    return tickets_frame(spark, tickets).mapInArrow(read, schema)


def hosts_of(split: RemoteSplit) -> list[str]:
    """The hosts of a split's servers, as their addresses have them."""
    places = [host_port(location.split("://", 1)[1]) for location in split.locations]
    return list(dict.fromkeys(place[0] for place in places if place is not None))


def tickets_frame(spark: SparkSession, tickets: Sequence[tuple[bytes, Sequence[str]]]) -> DataFrame:
    """A row and a partition for each ticket, with the hosts that it would like."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    scala = jvm.scala.jdk.javaapi.CollectionConverters
    pairs = jvm.java.util.ArrayList()
    for ticket, likes in tickets:
        values = gateway.new_array(jvm.java.lang.Object, 1)
        values[0] = ticket
        hosts = jvm.java.util.ArrayList()
        for host in likes:
            hosts.add(host)
        row = jvm.org.apache.spark.sql.RowFactory.create(values)
        pairs.add(jvm.scala.Tuple2(row, scala.asScala(hosts).toSeq()))
    if not tickets:
        return spark.createDataFrame([], SPLIT)
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(SPLIT)
    tags = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$")
    row_tag = tags.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.Row"))
    rdd = spark.sparkContext._jsc.sc().makeRDD(scala.asScala(pairs).toSeq(), row_tag)
    return DataFrame(spark._jsparkSession.createDataFrame(rdd.toJavaRDD(), schema), spark)
