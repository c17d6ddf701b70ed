"""Table functions for SQL: where queues were at a time, messages by key, and what a read would touch.

They run in one task on one executor, which plans there: that host has the store, as the driver of a read has it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ipc.clock import ms_of, wall_ms
from spark_bridge.options.queues import parse_moment
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption, json_value
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.user_errors import in_one_line

STRING, BIGINT = StringType(), LongType()
OFFSETS = StructType(
    [
        StructField("brokerName", STRING),
        StructField("topic", STRING),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", BIGINT),
        StructField("minOffset", BIGINT),
        StructField("maxOffset", BIGINT),
    ]
)
PLAN = StructType(
    [
        StructField("brokerName", STRING),
        StructField("path", STRING),
        StructField("splits", IntegerType()),
        StructField("bytes", BIGINT),
        StructField("endOffset", BIGINT),
        StructField("plan", STRING),
    ]
)
MAPS = ("properties",)


Rows = Iterator[tuple[Any, ...]]


def _of_texts(function: str, *, but: str = "") -> Callable[[Callable[..., Rows]], Callable[..., Rows]]:
    """An `eval` that refuses what its function does not take: Spark would give a stack, also for one argument less.

    All arguments are texts, none is NULL, and `but` may be of any type. Spark looks at the signature, which says
    nothing for that reason.
    """

    def checking(method: Callable[..., Rows]) -> Callable[..., Rows]:
        signature = inspect.signature(method)
        usage = f"{function}({', '.join(list(signature.parameters)[1:])})"

        def eval_(self: object, *given: object, **named: object) -> Rows:
            try:
                arguments = signature.bind(self, *given, **named).arguments
            except TypeError as error:
                raise InvalidOption(f"{usage}: {error}") from None
            arguments.pop("self")
            missing = [name for name, value in arguments.items() if value is None]
            if missing:
                raise InvalidOption(f"{usage}: {' and '.join(missing)} is NULL; give a value")
            for name, value in arguments.items():
                if name != but and not isinstance(value, str):
                    raise InvalidOption(f"{usage}: {name} is a text, not {value!r}; CAST it AS STRING")
            yield from method(self, **arguments)

        return in_one_line(eval_)

    return checking


class OffsetsAt:
    """`rocketmq_offsets_at(path, topic, time)`: each queue's first message that was stored at or after a time."""

    @_of_texts("rocketmq_offsets_at", but="time")
    def eval(self, path: str, topic: str, time: Any) -> Rows:
        """`time`: a timestamp, milliseconds since 1970, ISO 8601 (UTC), or before now as `-10m`."""
        from spark_bridge.tables.offsets import offsets_at  # planning is not what workers are started for

        if isinstance(time, datetime):
            moment_ms = ms_of(time)
        else:
            moment_ms = parse_moment("time", time).at(wall_ms())
        options = parse_options({"path": path, "topic": topic})
        if options.flights is not None:
            raise InvalidOption(f"rocketmq_offsets_at({path!r}, ...): give a directory of a host with the store")
        yield from offsets_at(options, moment_ms)


class ByKey:
    """`rocketmq_by_key(path, topic, key)`: the messages with a key, or with that unique key, through the index."""

    @_of_texts("rocketmq_by_key")
    def eval(self, path: str, topic: str, key: str) -> Rows:
        """Yield the messages with a key, as rows of all columns."""
        from spark_bridge.scanning import scan

        for batch in scan(path, topics=[topic], keys=json.dumps([key])):
            for row in batch.to_pylist():
                yield tuple(dict(row[name]) if name in MAPS else row[name] for name in batch.schema.names)


class Explain:
    """`rocketmq_explain(path, options)`: what a read would touch if it were planned now, a row a store."""

    @_of_texts("rocketmq_explain")
    def eval(self, path: str, options: str) -> Rows:
        """`options`: as JSON, `{"topic":"orders"}`; `{}` is a read of everything."""
        from spark_bridge.flight.explaining import explain_options

        given = json_value("options", options, 'give JSON as {"topic":"orders"}')
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise InvalidOption(f'options={options!r}: give JSON as {{"topic":"orders"}}, all values texts')
        for store in explain_options({"path": path, **given}).stores:
            yield store.broker_name, store.path, store.splits, store.bytes, store.end_offset, str(store)


FUNCTIONS: dict[str, tuple[type, StructType]] = {
    "rocketmq_offsets_at": (OffsetsAt, OFFSETS),
    "rocketmq_by_key": (ByKey, schema_of()),
    "rocketmq_explain": (Explain, PLAN),
}


def register_functions(spark: SparkSession) -> None:
    """The table functions, for this session. They need no pandas: rows go one by one."""
    for name, (handler, columns) in FUNCTIONS.items():
        function: Any = udtf(handler, returnType=columns, useArrow=False)
        spark.udtf.register(name, function)
