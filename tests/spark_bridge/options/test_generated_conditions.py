"""A few of the generated conditions of `make reads` through a Spark session, with ANSI on and off."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.reads import in_spark
from tests.reads.made_stores import made_store

pytestmark = pytest.mark.spark

NUMBERS = (0, 8, 9, 11)


def test_a_read_keeps_the_rows_that_a_plain_filter_keeps_with_ansi_on_and_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = made_store(tmp_path / "store-1", 1)
    tally = in_spark.check(spark, made, NUMBERS)
    assert not tally.differences
    assert tally.conditions == 2 * (len(NUMBERS) + len(in_spark.ONLY_WITHOUT_ANSI)) and tally.part >= 6
