"""Spark on the log in place, against native Parquet of the same messages, and Kafka where a broker is given.

    python -m tools.dev.bench.works.reads.spark [--mib 512] [--repeat 5] [--kafka-broker JARS --kafka-connector JARS]

Writes a store, converts it to Parquet, asks the same questions of each side in turn, warm and several times, and
compares the medians. Answers are compared, too. The first answer on a store that was just written takes Parquet its
conversion. Kafka's connector is for one Spark version; its JARS folder holds spark-sql-kafka,
spark-token-provider-kafka, kafka-clients and commons-pool2.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use
from rich.console import Console

import spark_bridge
from spark_bridge import java_home
from tools.dev.bench.bed.figures import Figure, Ratio, json_lines, show
from tools.dev.bench.bed.kafka_broker import KafkaBroker
from tools.dev.bench.bed.log_store import TOPICS, LogWriter, topic_name

OURS, PARQUET, KAFKA = "slipstream", "parquet", "kafka"
COLUMNS = ["topic", "queueId", "queueOffset", "storeTimestamp", "body"]
TOPIC = topic_name(3)
BODY_BYTES = (100, 300)
SEGMENT_BYTES = 256 << 20
MIB = 1 << 20
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


def _by_queue(frame: DataFrame, queue: str, length: Any) -> list[tuple[int, int]]:
    rows = frame.groupBy(queue).agg(F.sum(length).alias("bytes")).collect()
    return sorted((row[0], row[1]) for row in rows)


def _sum(frame: DataFrame, column: str) -> int:
    return int(frame.agg(F.sum(column)).collect()[0][0])


def _discard(frame: DataFrame) -> None:
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
            SUM: lambda: _sum(read("queueOffset"), "queueOffset"),
            TOPIC_LENGTHS: lambda: _by_queue(topic("bodyLength"), "queueId", F.col("bodyLength")),
            TOPIC_BODIES: lambda: _by_queue(topic("body"), "queueId", F.length("body")),
            FIVE: lambda: _discard(read(*COLUMNS)),
            FIRST: lambda: _by_queue(topic("body"), "queueId", F.length("body")),
        },
    )


def parquet_side(spark: SparkSession, store: str, path: str) -> Side:
    """The same messages as native Parquet."""

    def convert() -> None:
        spark_bridge.read(spark, store, columns=COLUMNS).write.mode("overwrite").parquet(path)

    def read() -> DataFrame:
        return spark.read.parquet(path)

    def by_queue() -> list[tuple[int, int]]:
        return _by_queue(read().filter(F.col("topic") == TOPIC), "queueId", F.length("body"))

    def first() -> list[tuple[int, int]]:
        convert()
        return by_queue()

    convert()
    return Side(
        PARQUET,
        {
            COUNT: lambda: read().count(),
            SUM: lambda: _sum(read(), "queueOffset"),
            TOPIC_LENGTHS: by_queue,
            TOPIC_BODIES: by_queue,
            FIVE: lambda: _discard(read()),
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
        return _by_queue(read("subscribe", TOPIC), "partition", F.length("value"))

    return Side(
        KAFKA,
        {
            COUNT: lambda: everything().count(),
            SUM: lambda: _sum(everything(), "offset"),
            TOPIC_LENGTHS: by_queue,
            TOPIC_BODIES: by_queue,
            FIVE: lambda: _discard(everything().select("topic", "partition", "offset", "timestamp", "value")),
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


def measure(sides: list[Side], repeat: int, console: Console) -> None:
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
        console.print(f"{work}: " + ", ".join(f"{s.name} {statistics.median(s.seconds[work]):.2f} s" for s in asked))


def results(sides: list[Side], records: int) -> tuple[list[Figure], list[Ratio]]:
    """Figures (millions of messages of the log per second) and ratios of the medians."""
    ours, *others = sides
    figures, ratios = [], []
    for side in sides:
        for work, seconds in side.seconds.items():
            middle = statistics.median(seconds)
            note = f"{min(seconds):.2f} / {middle:.2f} / {max(seconds):.2f} s"
            figures.append(Figure(f"spark {work}", side.name, records / middle / 1e6, "M msg/s", None, note))
    for side in others:
        for work, seconds in side.seconds.items():
            our_rate = 1 / statistics.median(ours.seconds[work])
            their_rate = 1 / statistics.median(seconds)
            if goal := GOALS.get((side.name, work)):
                ratios.append(Ratio(f"spark {work}", our_rate, their_rate, side.name, goal))
            else:
                figures.append(Figure(f"spark {work}", f"{OURS} / {side.name}", our_rate / their_rate, "times as fast"))
    return figures, ratios


@contextmanager
def _scratch(directory: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(
    mib: int,
    repeat: int,
    console: Console,
    directory: Path | None = None,
    kafka_broker: Path | None = None,
    kafka_connector: Path | None = None,
) -> tuple[list[Figure], list[Ratio]]:
    """The whole measurement in a directory of its own, removed afterwards."""
    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    if kafka_broker is not None and kafka_connector is not None:
        conf["spark.jars"] = ",".join(str(jar) for jar in sorted(kafka_connector.glob("*.jar")))
    java_home.ensure()
    with ExitStack() as stack:
        scratch = stack.enter_context(_scratch(directory))
        store, parquet = str(scratch / "store"), str(scratch / "parquet")
        records = LogWriter(Path(store), SEGMENT_BYTES, BODY_BYTES).write(max(1, mib * MIB // SEGMENT_BYTES))
        console.print(f"{records:,} messages in {mib} MiB")
        spark = spark_bridge.session("slipstream bench", **conf)
        stack.callback(spark.stop)
        sides = [our_side(spark, store), parquet_side(spark, store, parquet)]
        if "spark.jars" in conf:
            assert kafka_broker is not None
            broker = stack.enter_context(KafkaBroker(kafka_broker, scratch / "kafka"))
            load_kafka(spark, store, broker.address)
            sides.append(kafka_side(spark, broker.address))
        measure(sides, repeat, console)
        return results(sides, records)


@click.command()
@click.option("--mib", default=512, show_default=True, help="Size of the log, in steps of 256.")
@click.option("--repeat", default=5, show_default=True, help="How often each side answers each question.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="Where to put the data (/dev/shm).")
@click.option("--kafka-broker", type=click.Path(path_type=Path, exists=True), help="Folder of a Kafka's jars (libs/).")
@click.option("--kafka-connector", type=click.Path(path_type=Path, exists=True), help="Folder of the connector's jars.")
def main(
    mib: int, repeat: int, directory: Path | None, kafka_broker: Path | None, kafka_connector: Path | None
) -> None:
    """Compare Spark on a store in place with Parquet, and with Kafka where it is given."""
    console = Console()
    figures, ratios = run(mib, repeat, console, directory, kafka_broker, kafka_connector)
    show(figures, ratios, console)
    for line in json_lines(figures, ratios):
        print(line)


if __name__ == "__main__":
    main()
