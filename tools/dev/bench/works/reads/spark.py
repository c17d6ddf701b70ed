"""Spark on the log in place, against native Parquet of the same messages, and Kafka where a broker is given.

Writes a store, converts it to Parquet, asks the same questions of each side in turn, warm and several times, and
compares the medians. Answers are compared, too. The first answer on a store that was just written takes Parquet its
conversion. Kafka's connector is for one Spark version; the folder `jars` holds spark-sql-kafka,
spark-token-provider-kafka, kafka-clients and commons-pool2.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use
from rich.console import Console

import spark_bridge
from spark_bridge import java_home
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.kafka_broker import KafkaBroker
from tools.dev.bench.bed.log_store import TOPICS, LogWriter, topic_name

OURS, PARQUET, KAFKA = "slipstream", "parquet", "kafka"
COLUMNS = ["topic", "queueId", "queueOffset", "storeTimestamp", "body"]
TOPIC = topic_name(3)
BODY_BYTES = (100, 300)
SEGMENT_BYTES = 256 << 20
MIB = 1 << 20
CONF = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
COUNT, SUM, TOPIC_LENGTHS = "count", "sum-of-offsets", "topic-sum-of-body-lengths"
TOPIC_BODIES, FIVE, FIRST = "topic-sum-of-length(body)", "five-columns-with-body", "first-answer"
GOALS = {
    (KAFKA, COUNT): 20.0,
    (KAFKA, SUM): 10.0,
    (KAFKA, FIVE): 8.0,
    (KAFKA, TOPIC_BODIES): 5.0,
    (PARQUET, TOPIC_BODIES): 1.3,
    (PARQUET, FIVE): 0.6,
    (PARQUET, FIRST): 10.0,
}

Question = Callable[[], Any]


@dataclass
class Side:
    """One side's ways of answering the questions."""

    name: str
    questions: dict[str, Question]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def ask(self, work: str) -> float:
        """Answer once; the seconds it took."""
        began = time.perf_counter()
        self.answers[work] = self.questions[work]()
        return time.perf_counter() - began

    def median(self, work: str) -> float:
        """Return the median of the seconds that a question took."""
        return statistics.median(self.seconds[work])

    def report(self, group: str, records: int, to: Results) -> None:
        """Add a figure for each question: millions of messages of the log a second."""
        for work, seconds in self.seconds.items():
            middle = self.median(work)
            note = f"{min(seconds):.2f} / {middle:.2f} / {max(seconds):.2f} s"
            to.figure(f"{group} {work}", self.name, records / middle / 1e6, "M msg/s", note=note)


def lengths_by_queue(frame: DataFrame, queue: str, length: Any) -> list[tuple[int, int]]:
    """Return each queue with the sum of a length over its messages, in the order of the queues."""
    rows = frame.groupBy(queue).agg(F.sum(length).alias("bytes")).collect()
    return sorted((row[0], row[1]) for row in rows)


def total(frame: DataFrame, column: str) -> int:
    """Return the sum of a column."""
    return int(frame.agg(F.sum(column)).collect()[0][0])


def discard(frame: DataFrame) -> None:
    """Compute every row of a frame, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def our_side(spark: SparkSession, store: str) -> Side:
    """The store, read in place."""

    def read(*columns: str) -> DataFrame:
        return spark_bridge.read(spark, store, columns=columns)

    def topic(column: str) -> DataFrame:
        return spark_bridge.read(spark, store, columns=["queueId", column], topics=[TOPIC])

    return Side(
        OURS,
        {
            COUNT: lambda: read("queueId").count(),
            SUM: lambda: total(read("queueOffset"), "queueOffset"),
            TOPIC_LENGTHS: lambda: lengths_by_queue(topic("bodyLength"), "queueId", F.col("bodyLength")),
            TOPIC_BODIES: lambda: lengths_by_queue(topic("body"), "queueId", F.length("body")),
            FIVE: lambda: discard(read(*COLUMNS)),
            FIRST: lambda: lengths_by_queue(topic("body"), "queueId", F.length("body")),
        },
    )


def parquet_side(spark: SparkSession, store: str, path: str) -> Side:
    """The same messages as native Parquet."""

    def convert() -> None:
        spark_bridge.read(spark, store, columns=COLUMNS).write.mode("overwrite").parquet(path)

    def read() -> DataFrame:
        return spark.read.parquet(path)

    def by_queue() -> list[tuple[int, int]]:
        return lengths_by_queue(read().filter(F.col("topic") == TOPIC), "queueId", F.length("body"))

    def first() -> list[tuple[int, int]]:
        convert()
        return by_queue()

    convert()
    return Side(
        PARQUET,
        {
            COUNT: lambda: read().count(),
            SUM: lambda: total(read(), "queueOffset"),
            TOPIC_LENGTHS: by_queue,
            TOPIC_BODIES: by_queue,
            FIVE: lambda: discard(read()),
            FIRST: first,
        },
    )


def kafka_side(spark: SparkSession, address: str) -> Side:
    """The same messages in Kafka, through Spark's own source."""

    def read(option: str, value: str) -> DataFrame:
        return spark.read.format("kafka").option("kafka.bootstrap.servers", address).option(option, value).load()

    def everything() -> DataFrame:
        return read("subscribePattern", "orders-.*")

    def by_queue() -> list[tuple[int, int]]:
        return lengths_by_queue(read("subscribe", TOPIC), "partition", F.length("value"))

    return Side(
        KAFKA,
        {
            COUNT: lambda: everything().count(),
            SUM: lambda: total(everything(), "offset"),
            TOPIC_LENGTHS: by_queue,
            TOPIC_BODIES: by_queue,
            FIVE: lambda: discard(everything().select("topic", "partition", "offset", "timestamp", "value")),
        },
    )


def load_kafka(spark: SparkSession, store: str, address: str) -> None:
    """Load every message of the store into Kafka's topic and partition of the same name, in order of their offsets."""
    for number in range(TOPICS):
        name = topic_name(number)
        frame = spark_bridge.read(spark, store, columns=["topic", "queueId", "queueOffset", "body"], topics=[name])
        in_order = frame.repartition(4, "queueId").sortWithinPartitions("queueId", "queueOffset")
        rows = in_order.select("topic", F.col("queueId").alias("partition"), F.col("body").alias("value"))
        rows.write.format("kafka").option("kafka.bootstrap.servers", address).save()


def ask_in_turn(sides: list[Side], repeat: int, console: Console) -> None:
    """Ask every question of every side in turn, once to warm up and then `repeat` times."""
    for work in sides[0].questions:
        asked = [side for side in sides if work in side.questions]
        for side in asked:
            side.ask(work)
        for _ in range(repeat):
            for side in asked:
                side.seconds.setdefault(work, []).append(side.ask(work))
        for side in asked[1:]:
            if side.answers[work] != sides[0].answers[work]:
                wrong = f"{side.name} answers {side.answers[work]}, {sides[0].name} {sides[0].answers[work]}"
                raise click.ClickException(f"{work}: {wrong}")
        console.print(f"{work}: " + ", ".join(f"{side.name} {side.median(work):.2f} s" for side in asked))


def report(sides: list[Side], records: int, to: Results) -> None:
    """Figures (millions of messages of the log per second) and ratios of the medians."""
    ours, *others = sides
    for side in sides:
        side.report("spark", records, to)
    for side in others:
        for work in side.seconds:
            our_rate, their_rate = 1 / ours.median(work), 1 / side.median(work)
            if goal := GOALS.get((side.name, work)):
                to.at_least(f"spark {work}", our_rate, their_rate, side.name, goal)
            else:
                to.figure(f"spark {work}", f"{OURS} / {side.name}", our_rate / their_rate, "times as fast")


def measure(of: Asked, to: Results) -> None:
    """Measure on a store of `mib` MiB."""
    conf = dict(CONF)
    if of.kafka is not None:
        conf["spark.jars"] = ",".join(str(jar) for jar in sorted((of.kafka / "jars").glob("*.jar")))
    java_home.ensure()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=of.scratch)))
        store, parquet = str(scratch / "store"), str(scratch / "parquet")
        records = LogWriter(Path(store), SEGMENT_BYTES, BODY_BYTES).write(max(1, of.mib * MIB // SEGMENT_BYTES))
        of.console.print(f"{records:,} messages in {of.mib} MiB")
        spark = spark_bridge.session("slipstream bench", **conf)
        stack.callback(spark.stop)
        sides = [our_side(spark, store), parquet_side(spark, store, parquet)]
        if of.kafka is not None:
            broker = stack.enter_context(KafkaBroker(of.kafka / "broker", scratch / "kafka"))
            load_kafka(spark, store, broker.address)
            sides.append(kafka_side(spark, broker.address))
        ask_in_turn(sides, of.repeat, of.console)
        report(sides, records, to)
