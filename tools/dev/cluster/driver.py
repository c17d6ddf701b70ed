"""The demonstration's driver program: reads tasks from standard input, a line of JSON each, and does them with Spark.

It has the wheel and nothing else of Slipstream, like its executors. A function behind the read, which sees the column
`_replica`, reports which executor had which rows, and from where.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import slipstream

CONF = {
    "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2", "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # No task begins before all executors are there: a quick one would leave nothing to one that is slow to start.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}  # fmt: skip
TOLD = "part bigint, host string, replica string, rows bigint, bytes bigint, digest bigint, code string"
IN_PLACE = "in place"
HOLD_SECONDS, POLL_SECONDS = 300.0, 0.05


def digest_of(body: bytes) -> int:
    """The first 60 bits of a body's SHA-256; of many bodies their sum, by `add`, says nothing of their order."""
    return int.from_bytes(hashlib.sha256(body).digest()[:8], "big") >> 4


def add(one: int, other: int) -> int:
    """Add two digests into one."""
    return (one + other) % (1 << 60)


def telling(here: str, hold: str, hold_at: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function over batches with `body` and `_replica`: how many rows and bytes came from where.

    With a name in `hold` each host stops at its first rows that were read in place or come from `hold_at`, says so by a
    file `holding-NAME`, and goes on when there is a file `go-NAME`.
    """

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: dict[str, list[int]] = {}
        for batch in batches:
            for replica, body in zip(batch["_replica"].to_pylist(), batch["body"].to_pylist(), strict=True):
                own = sums.setdefault(replica, [0, 0, 0])
                own[0], own[1], own[2] = own[0] + 1, own[1] + len(body), add(own[2], digest_of(body))
            if hold and not {IN_PLACE, hold_at}.isdisjoint(sums):
                held(Path(here), hold)
        part, host = TaskContext.get().partitionId(), socket.gethostname()  # type: ignore[union-attr]
        for replica, (rows, size, digest) in sums.items():
            row = [part, host, replica, rows, size, digest, slipstream.__file__]
            yield pa.RecordBatch.from_arrays([pa.array([value]) for value in row], names=NAMES)

    return tell


NAMES = [column.split()[0] for column in TOLD.split(", ")]


def held(here: Path, name: str) -> None:
    """Wait until the test lets this go on. Raises TimeoutError."""
    (here / f"holding-{name}").touch()
    deadline = time.monotonic() + HOLD_SECONDS
    while not (here / f"go-{name}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody let {name} go on for {HOLD_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def counted(frame: DataFrame, here: str, hold: str = "", hold_at: str = "") -> dict[str, Any]:
    """Return what each task had of a frame with `body` and `_replica`, and how long all took."""
    began = time.monotonic()
    rows = frame.mapInArrow(telling(here, hold, hold_at), TOLD).collect()
    return {"seconds": time.monotonic() - began, "parts": [row.asDict() for row in rows]}


def batch(spark: SparkSession, setting: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Read and count every message once."""
    placed = bool(more.pop("placed", False))
    frame = slipstream.read(
        spark,
        setting["flights"],
        columns=["body", "_replica"],
        topics=[setting["topic"]],
        placed=placed,
        **setting["options"],
    )
    return counted(frame, setting["here"], **more)


def stream(spark: SparkSession, setting: dict[str, Any]) -> dict[str, Any]:
    """Read every message by a streaming query, to its end; planned through Flight, as there is no replica here."""
    rows: list[dict[str, Any]] = []

    def take(batch: DataFrame, _number: int) -> None:
        rows.extend(counted(batch, setting["here"])["parts"])

    reached = {name: setting["options"][name] for name in ("flightTokenFile", "replicaPath")}
    began = time.monotonic()
    reader = spark.readStream.format("rocketmq").schema("body binary, _replica string").options(**reached)
    frame = reader.option("path", setting["flights"]).option("topic", setting["topic"]).load()
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", f"{setting['here']}/progress")
    writer.trigger(availableNow=True).start().awaitTermination()
    return {"seconds": time.monotonic() - began, "parts": rows}


def signed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Bodies that say which host wrote them, and a number."""
    for batch in batches:
        bodies = [f"{socket.gethostname()} {number}".encode() for number in batch["id"].to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])


def sink(spark: SparkSession, setting: dict[str, Any], rows: int, topic: str) -> dict[str, Any]:
    """Rows written by all executors, and how many different ones of which host are in the log then."""
    began = time.monotonic()
    frame = spark.range(0, rows, 1, 2 * setting["cores"]).mapInArrow(signed, "body binary")
    writer = frame.write.format("rocketmq").mode("append").option("path", setting["flights"]).option("topic", topic)
    writer.option("flightTokenFile", setting["options"]["flightTokenFile"]).save()
    seconds = time.monotonic() - began
    back = slipstream.read(spark, setting["flights"], columns=["body"], topics=[topic], **setting["options"])
    texts = [bytes(row.body).decode() for row in back.collect()]
    hosts = [text.split()[0] for text in texts]
    return {
        "seconds": seconds,
        "rows": len(texts),
        "different": len(set(texts)),
        "written": {host: hosts.count(host) for host in sorted(set(hosts))},
    }


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"batch": batch, "sink": sink, "stream": stream}


def main() -> None:
    """Do what is asked on standard input, until it ends."""
    setting = json.loads(Path(sys.argv[1]).read_text())
    own = {
        "spark.driver.host": socket.gethostname(),
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.cores.max": str(setting["cores"]),
    }
    spark = slipstream.session("cluster-demo", master=setting["master"], **CONF, **own)
    spark.sparkContext.addPyFile(setting["py_files"])
    slipstream.register(spark)  # after that: what is registered knows what was sent until then
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = TASKS[asked.pop("task")](spark, setting, **asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
