"""Generated conditions through a Spark session, with ANSI on and off: the rows of a plain filter, the tree of nodes.

What depends on ANSI is an error with it and null without it, whether a condition is given to the read or added later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_bridge
from spark_bridge.options.conditions import Analysed
from tests.reads.expressions import generated
from tests.reads.made_stores import Made
from tests.reads.pushed import taken, taken_of
from tests.reads.scanned import Tally

ANSI = "spark.sql.ansi.enabled"
COLUMNS = ["physicalOffset"]
SETTINGS = {
    "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
}  # fmt: skip
# Each fails with ANSI, and keeps these rows without it.
ONLY_WITHOUT_ANSI = {
    "queueOffset > 'x'": lambda row: False,
    "queueId = 'x' OR topic = 'orders'": lambda row: row["topic"] == "orders",
    "queueOffset / 0 IS NULL": lambda row: True,
    "CAST(topic AS INT) IS NULL AND queueId = 1": lambda row: row["queueId"] == 1,
}


def check(spark: SparkSession, made: Made, numbers: Sequence[int]) -> Tally:
    """Read the store by the conditions with these numbers, with ANSI and without."""
    tally = Tally()
    before = spark.conf.get(ANSI)
    try:
        for is_ansi in (True, False):
            spark.conf.set(ANSI, str(is_ansi).lower())
            for number in numbers:
                tally.add(_of_condition(spark, made, number, is_ansi))
            tally.add(_of_ansi(spark, made, is_ansi))
    finally:
        spark.conf.set(ANSI, before)
    return tally


def offsets_of(spark: SparkSession, made: Made, sql: str) -> list[int]:
    """The rows of a read that is given the condition."""
    frame = spark_bridge.read(spark, str(made.root), columns=COLUMNS, where=sql, includeSystemTopics=True)
    return sorted(row.physicalOffset for row in frame.collect())


def _of_condition(spark: SparkSession, made: Made, number: int, is_ansi: bool) -> Tally:
    expression = generated(random.Random(number), made, depth=number % 3)
    sql, wanted = expression.sql(), [at for at, row in made.rows.items() if expression.of(row)]
    tally = Tally(1, len(wanted), 0 < len(wanted) < len(made.rows), visible=len(made.rows))
    place = f"condition {number} in Spark, ANSI {is_ansi}, store {made.kind}, {sql}"
    every = spark.read.format("rocketmq").option("path", "/nowhere").load()
    mine, theirs = taken_of(expression), taken(Analysed.of(every, sql))
    if mine != theirs:
        tally.differences.append(f"{place}: of the nodes {mine}, of Catalyst's {theirs}")
    try:
        found = offsets_of(spark, made, sql)
    except PySparkException as error:
        tally.differences.append(f"{place}: {error}")
        return tally
    if found != wanted:
        tally.differences.append(f"{place}: rows {sorted(set(found) ^ set(wanted)) or 'twice'}")
    return tally


def _of_ansi(spark: SparkSession, made: Made, is_ansi: bool) -> Tally:
    tally = Tally()
    for sql, holds in ONLY_WITHOUT_ANSI.items():
        wanted = [at for at, row in made.rows.items() if holds(row)]
        try:
            found: list[int] | str = offsets_of(spark, made, sql)
        except PySparkException as error:
            found = str(error.getCondition())
        tally.conditions += 1
        if isinstance(found, str) != is_ansi or (not is_ansi and found != wanted):
            tally.differences.append(f"{sql} with ANSI {is_ansi}: {found}, and not {wanted}")
    return tally
