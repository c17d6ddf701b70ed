"""A session of Spark Connect: it registers the source and tables, reads in place and through Flight, and streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.harness import spark_java
from tests.spark_bridge.flights import TOKEN, FlightProcess
from tests.spark_bridge.stores import SmallStore

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
ROWS = 60
CLIENT = """
    import json, sys
    from pyspark.sql import SparkSession

    import slipstream
    from spark_bridge.options.values import InvalidOption

    store, flight, token, folder = sys.argv[1:]
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    found = {"session": type(spark).__module__}
    slipstream.register(spark)
    frame = spark.read.format("rocketmq").option("columns", "queueId, bodyLength").option("topic", "a").load(store)
    found["batch"] = frame.count()
    remote = {"flightToken": token, "columns": ["body", "_replica"], "topics": ["a"]}
    rows = slipstream.read(spark, flight, **remote).groupBy("_replica").count().collect()
    found["flight"] = {row["_replica"]: row["count"] for row in rows}
    found["tables"] = sorted(slipstream.register(spark, store).tables)
    found["sql"] = spark.sql("SELECT count(*) AS n FROM rocketmq.a").collect()[0].n
    where = "queueOffset >= 2 AND bodyLength = 1"
    filtered = slipstream.read(spark, store, columns=["queueId"], topics=["a"], where=where)
    found["where"] = [filtered.columns, filtered.count()]
    stream = spark.readStream.format("rocketmq").option("columns", "queueId").option("topic", "a").load(store)
    query = stream.writeStream.format("parquet").option("path", folder + "/rows") \\
        .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    found["stream"] = spark.read.parquet(folder + "/rows").count()
    try:
        slipstream.read(spark, flight, placed=True, **remote)
    except InvalidOption as error:
        found["placed"] = str(error)
    spark.stop()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one client of a server on this machine had."""
    directory = tmp_path_factory.mktemp("connect")
    (directory / "token").write_text(TOKEN)
    (directory / "client.py").write_text(textwrap.dedent(CLIENT))
    store = SmallStore(directory / "store")
    for number in range(ROWS):
        store.put("a", b"%d" % number)
    store.dispatch()
    with FlightProcess(store.root, "--token-file", directory / "token") as flight:
        arguments = [str(store.root), flight.location, TOKEN, str(directory)]
        ran = subprocess.run(
            [sys.executable, directory / "client.py", *arguments],
            cwd=directory,
            env=environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return {**said, "location": flight.location}


def environment() -> dict[str, str]:
    """Of a client that starts a server of its own, at any free port."""
    java = spark_java.options()  # SPARK_TESTING is Spark's own way to any free port
    own = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
           "SPARK_LAUNCHER_OPTS": spark_java.QUICK, "SPARK_SUBMIT_OPTS": java,
           "SPARK_TESTING": "1"}  # fmt: skip
    return {**os.environ, **own}


def test_a_client_registers_the_source_and_reads_in_place(found: dict[str, Any]) -> None:
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["batch"] == ROWS


def test_a_client_reads_through_flight(found: dict[str, Any]) -> None:
    assert found["flight"] == {found["location"]: ROWS}


def test_a_client_has_tables(found: dict[str, Any]) -> None:
    assert "a" in found["tables"] and found["sql"] == ROWS


def test_a_client_reads_what_meets_a_condition(found: dict[str, Any]) -> None:
    assert found["where"] == [["queueId"], sum(len(str(number)) == 1 for number in range(2, ROWS))]


def test_a_client_streams(found: dict[str, Any]) -> None:
    assert found["stream"] == ROWS


def test_a_client_cannot_place_tasks(found: dict[str, Any]) -> None:
    assert "Spark Connect does not know the hosts of tasks" in found["placed"]
