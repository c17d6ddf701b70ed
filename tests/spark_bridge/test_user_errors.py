"""What is told of errors: one line of ours where Spark shows a worker's error, for a batch, a stream and a write."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import SparkSession

import spark_bridge
from spark_bridge.options.values import InvalidOption, local_path
from spark_bridge.user_errors import HIDE_STACK, RefusedStream, Unreadable, in_one_line
from store.errors import NotAStore
from tests.spark_bridge.stores import SmallStore

OF_A_STACK = ("Traceback", 'File "', "in partitions", "in reader", "During handling", "UnboundLocalError")
ERRORS = (AnalysisException, PythonException, StreamingQueryException)


def line_of(error: BaseException) -> str:
    """The line of Spark's message that is ours: what it says beside that is its own."""
    text = str(error)
    assert not [word for word in OF_A_STACK if word in text], text
    (line,) = [line for line in text.splitlines() if "spark_bridge." in line or "store.errors." in line]
    return line


@pytest.fixture
def store(tmp_path: Path) -> str:
    made = SmallStore(tmp_path / "store", 4096)
    for number in range(300):  # several segments: recovery looks at the last ones
        made.put("a", b"%d" % number)
    made.dispatch()
    return str(made.root)


def run(spark: SparkSession, checkpoint: Path, schema: str | None = None, **options: str) -> None:
    reader = spark.readStream.format("rocketmq").options(**options)
    stream = (reader if schema is None else reader.schema(schema)).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert query.start().awaitTermination(400)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": "a"}, "INVALID_OPTION: unknown option 'topics'"),
        ({"columns": "topic,queueid,bodi"}, "INVALID_OPTION: no column 'bodi'; did you mean 'body'"),
        ({"path": "/nowhere/at/all"}, "NOT_A_STORE: /nowhere/at/all"),
        ({"path": "hdfs://host/store"}, "hdfs cannot be mapped into memory"),
        ({"startingOffsets": "{"}, "startingOffsets='{'"),
    ],
)
def test_an_error_of_a_read_is_shown_in_one_line(
    spark: SparkSession, store: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(ERRORS) as caught:
        spark.read.format("rocketmq").options(**{"path": store, **options}).load().count()
    assert told in line_of(caught.value)


@pytest.mark.spark
def test_damage_that_an_executor_finds_is_shown_in_one_line(spark: SparkSession, store: str) -> None:
    segment = Path(store) / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[4] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(ERRORS) as caught:
        spark.read.format("rocketmq").option("path", store).option("topic", "a").load().count()
    assert "CORRUPT_RECORD" in line_of(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (None, {"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger='x': a whole number"),
        ("queueId int", {"topics": "a"}, "did you mean 'topic'"),
        ("queueId int", {"where": "{}"}, "where is one of batch reads"),
        ("queueId int", {"path": "/nowhere/at/all"}, "NOT_A_STORE"),
        ("queueId bigint", {}, "column queueId is int"),
    ],
)
def test_an_error_of_a_stream_is_shown_in_one_line(
    spark: SparkSession, store: str, tmp_path: Path, schema: str | None, options: dict[str, str], told: str
) -> None:
    with pytest.raises(ERRORS) as caught:
        run(spark, tmp_path / "checkpoint", schema, **{"path": store, **options})
    assert told in line_of(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize(("path", "told"), [("/nowhere", "NO_ENGINE: /nowhere"), ("s3a://b/c", "s3a cannot be mapped")])
def test_an_error_of_a_write_is_shown_in_one_line(spark: SparkSession, path: str, told: str) -> None:
    rows = spark.range(1).selectExpr("'body' AS body").write.format("rocketmq").mode("append")
    with pytest.raises(ERRORS) as caught:
        rows.option("topic", "x").save(path)
    assert told in line_of(caught.value)


@pytest.mark.spark
def test_a_users_own_error_keeps_its_stack(spark: SparkSession, store: str) -> None:
    def failing(records: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "none of yours", "/nowhere")

    with pytest.raises(ERRORS, match="in failing"):
        spark_bridge.map_segments(spark, store, failing, "n bigint").count()


def test_errors_with_a_code_have_no_stack_of_their_own_and_no_cause() -> None:
    @in_one_line
    def refusing() -> None:
        try:
            int("x")
        except ValueError as error:
            raise InvalidOption("wrong") from error

    with pytest.raises(InvalidOption, match=r"^wrong$") as caught:
        refusing()
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None
    assert not [entry for entry in caught.traceback if entry.name == "int"]
    assert HIDE_STACK not in os.environ  # a user's program keeps its stacks


def test_generators_and_what_the_system_says_of_files() -> None:
    @in_one_line
    def reading() -> Iterator[int]:
        yield 1
        raise PermissionError(errno.EACCES, "Permission denied", "/var/store/commitlog")

    found = reading()
    assert next(found) == 1
    with pytest.raises(Unreadable, match=r"commitlog: Permission denied for user .* give that user permission"):
        next(found)


def test_an_error_without_a_code_keeps_its_traceback() -> None:
    @in_one_line
    def failing() -> None:
        raise KeyError("a fault of ours")

    with pytest.raises(KeyError) as caught:
        failing()
    assert "failing" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.read(None),
    ],
)
def test_a_refused_stream_says_why_whatever_it_is_asked(ask: Callable[[RefusedStream], Any]) -> None:
    with pytest.raises(NotAStore, match="/x"):
        ask(RefusedStream(NotAStore("/x", "why")))


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", "/a/b"), ("file:/a/b", "/a/b"), ("file:///a", "/a"), ("a b", "a b"), ("/a:/b", "/a:/b"), ("c:d", "c:d")],
)
def test_paths_and_file_urls_of_this_host_are_accepted(path: str, expected: str) -> None:
    assert local_path("path", path) == expected


@pytest.mark.parametrize("path", ["hdfs://h/x", "s3a://b", "/a,abfss://c/d", " HDFS:/x", "https://h/x"])
def test_paths_of_other_file_systems_are_refused(path: str) -> None:
    with pytest.raises(InvalidOption, match="give a directory of each executor's own host"):
        local_path("path", path)


@pytest.mark.parametrize("path", ["file://host/a", "/a,file://host/b", "FILE://localhost/a", "file://host"])
def test_a_file_url_with_a_host_is_refused(path: str) -> None:
    with pytest.raises(InvalidOption, match=r"a file: URL with a host .'(host|localhost)'. is not read") as caught:
        local_path("path", path)
    assert "\n" not in str(caught.value)


def test_a_worker_of_spark_shows_one_line() -> None:
    """As PySpark's worker does it: its own function formats what our method raises."""
    script = (
        "import io, sys, importlib.machinery\n"
        "from pyspark.util import handle_worker_exception\n"
        "from spark_bridge.options.read import parse_options\n"
        "from spark_bridge.user_errors import in_one_line\n"
        "sys.modules['__main__'].__spec__ = importlib.machinery.ModuleSpec('pyspark.daemon', None)\n"
        "out = io.BytesIO()\n"
        "try:\n    in_one_line(parse_options)({'path': '/s', 'topics': 'a'})\n"
        "except Exception as error:\n    handle_worker_exception(error, out)\n"
        "print(out.getvalue()[8:].decode())\n"
    )
    worker = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120)
    told = worker.stdout
    assert told.startswith("spark_bridge.options.values.InvalidOption: INVALID_OPTION: unknown option 'topics'")
    assert len(told.strip().splitlines()) == 1
