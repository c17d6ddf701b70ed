"""Kernels on mapped segments: what they return is what a DataFrame of the same records says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from store.message.record import QUEUE_ID_AT, QUEUE_OFFSET_AT
from tests.spark_bridge.stores import Row, golden_lines, unpack_golden

pytestmark = pytest.mark.spark

GOLDEN = ("rocketmq-4.9.7", "master")
REFUSED = (AnalysisException, PythonException)
EVERYTHING = {"includeSystemTopics": "true"}  # as the manifest has it


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def messages() -> list[Row]:
    return golden_lines(*GOLDEN, "message")


def lengths_by_queue(records: Any) -> list[Any]:
    queues, at = np.unique(records.int32_at(QUEUE_ID_AT), return_inverse=True)
    return [queues, np.bincount(at, records.body_length).astype(np.int64), np.bincount(at)]


def test_partial_sums_of_a_kernel_add_up(spark: SparkSession, store: str, messages: list[Row]) -> None:
    parts = spark_bridge.map_segments(
        spark, store, lengths_by_queue, "queue int, bytes bigint, n bigint", splitBytes="65536", **EVERYTHING
    )
    assert parts.rdd.getNumPartitions() > 8
    found = parts.groupBy("queue").agg(F.sum("bytes"), F.sum("n")).collect()
    sizes, counts = Counter[int](), Counter[int]()
    for line in messages:
        sizes[line["queueId"]] += line["storedBodyLength"]
        counts[line["queueId"]] += 1
    assert {row[0]: (row[1], row[2]) for row in found} == {queue: (sizes[queue], counts[queue]) for queue in counts}


def test_a_kernel_sees_the_mapped_bytes_of_one_topic_and_returns_a_row_where_it_wants(
    spark: SparkSession, store: str, messages: list[Row]
) -> None:
    limit = 200

    def long_ones(records: Any) -> list[Any] | None:
        assert not records.window.bytes.flags.owndata
        assert not records.window.bytes.flags.writeable
        long = records.body_length > limit
        if not long.any():
            return None
        places = records.starts[long] + QUEUE_OFFSET_AT
        first = records.window.bytes[records.body_at[long]]
        return [records.window.view(">i8")[places], first.tolist()]

    frame = spark_bridge.map_segments(spark, store, long_ones, "offset bigint, first int", topics=["alphaFour"])
    wanted = [line for line in messages if line["topic"] == "alphaFour" and line["storedBodyLength"] > limit]
    body = spark_bridge.read(spark, store, columns=["queueOffset", "body", "bodyLength"], topics=["alphaFour"])
    expected = Counter((row.queueOffset, row.body[0]) for row in body.filter(f"bodyLength > {limit}").collect())
    assert Counter((row.offset, row.first) for row in frame.collect()) == expected
    assert 0 < expected.total() == len(wanted)


def test_two_kernels_at_once_keep_apart(spark: SparkSession, store: str, messages: list[Row]) -> None:
    frames = [
        spark_bridge.map_segments(spark, store, lambda r, n=n: [[n * len(r.starts)]], "n bigint", **EVERYTHING)
        for n in (1, 2)
    ]
    assert [sum(row.n for row in frame.collect()) for frame in frames] == [len(messages), 2 * len(messages)]


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (lambda records: [records.starts], "returned 1 columns, its schema has 2"),
        (lambda records: [[1], [1, 2]], "columns of different lengths: {'a': 1, 'b': 2}"),
        (lambda records: [["x"], [1]], "column a, int64"),
        (lambda records: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_a_kernel_returns_is_checked(spark: SparkSession, store: str, kernel: Any, told: str) -> None:
    with pytest.raises(REFUSED) as caught:
        spark_bridge.map_segments(spark, store, kernel, "a bigint, b bigint").collect()
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tpic": "x"}, "did you mean 'topic'"),
        ({"mode": "permissive"}, "a kernel does not get"),
        ({"table": "queues"}, "a kernel is called with records"),
    ],
)
def test_options_are_those_of_a_read(spark: SparkSession, store: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(REFUSED) as caught:
        spark_bridge.map_segments(spark, store, lengths_by_queue, "a int, b bigint, c bigint", **options).collect()
    assert told in str(caught.value)
