"""The SQL section of USAGE.md: its blocks run, one after the other, and say what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.page_blocks import BLOCK, ROOT
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

USAGE = ROOT / "spark_bridge" / "USAGE.md"
WRITTEN_PLACE = "/data/store"
COMMENT = re.compile(r"--[^\n]*")


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "store", 4096)
    for number in range(480):
        key = b"KEYS\x01order-%d\x02" % (number // 2)
        made.put(("orders", "returns")[number % 2], b"%d" % number, number % 4 // 2, properties=key)
    made.dispatch()
    return made


@pytest.fixture
def names(spark: SparkSession, store: SmallStore) -> Iterator[dict[str, object]]:
    yield {"spark": spark}
    spark.sql("DROP DATABASE IF EXISTS rocketmq CASCADE")
    spark.sql("DROP TABLE IF EXISTS few_columns")
    for view in ("at_first_use", "newest"):
        spark.sql(f"DROP VIEW IF EXISTS {view}")


def test_every_block_of_the_sql_section_runs(spark: SparkSession, store: SmallStore, names: dict[str, object]) -> None:
    section = USAGE.read_text().split("\n## SQL\n")[1].split("\n## ")[0].replace(WRITTEN_PLACE, str(store.root))
    answers = {}
    for _why_not, kind, text in BLOCK.findall(section):
        if kind == "python":
            exec(compile(text, f"{USAGE.name}, SQL", "exec"), names)
            continue
        assert kind == "sql"
        for statement in filter(str.strip, COMMENT.sub("", text).split(";")):
            answers[" ".join(statement.split())] = spark.sql(statement).collect()
    assert len(answers) == 11

    def of(words: str) -> list[object]:
        (rows,) = [rows for statement, rows in answers.items() if words in statement]
        return [tuple(row) for row in rows]

    assert {row[0] for row in of("GROUP BY queueId")} == {0, 1}
    assert of("FROM rocketmq.topics") == [("orders", 240), ("returns", 240)]
    assert set(of("rocketmq.heads")) == {("orders", 665), ("returns", 665)}
    assert of("WITH (where") == [(0,)]  # their times are of 1970
    assert of("by_key") == [(b"14",)]
    assert of("rocketmq_offsets_at")[0][1:4] == ("orders", 0, 120)
    assert "orders/0 (120)" in of("rocketmq_explain")[0][0]
    assert spark.table("few_columns").columns == ["tags", "storeTimestamp"]
    assert (spark.table("few_columns").count(), spark.table("newest").count()) == (240, 40)
