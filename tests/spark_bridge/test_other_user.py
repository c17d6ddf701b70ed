"""Spark and `scan` of another Unix user: what they may read they read, without leases too; the rest is told."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.producer import Producer
from tests.harness.other_user import OtherUser
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.stores import SmallStore
from tests.spark_bridge.stream.test_group_commits import await_dispatched
from tools.common.local_broker import LocalBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

READERS = 54321
MESSAGES = 60
PROGRAM = """
import json
import logging
import sys

import slipstream


class Kept(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())


told = []
logging.getLogger("slipstream").addHandler(Kept())
paths = json.loads(sys.argv[1])


def said(ask):
    try:
        return ask()
    except Exception as error:
        return [type(error).__name__, str(error)]


def scanned(path, **options):
    return slipstream.scan(path, columns=["body"], **options).read_all()["body"].to_pylist()


def by_spark(path, **options):
    frame = slipstream.read(spark, path, columns=["body"], **options)
    return [bytes(row.body) for row in frame.collect()]


def by_stream(path, **options):
    rows = []
    reader = spark.readStream.format("rocketmq").options(path=path, columns="body", **options)
    writer = reader.load().writeStream.foreachBatch(lambda batch, _number: rows.extend(batch.collect()))
    writer.option("checkpointLocation", f"progress-{len(found)}").trigger(availableNow=True).start().awaitTermination()
    return [bytes(row.body) for row in rows]


found = {}
spark = slipstream.session("nobody's", **{"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"})
for name, (path, options) in paths.items():
    ways = (scanned, scanned, by_spark, by_stream)
    found[name] = {f"{number} {ask.__name__}": said(lambda: ask(path, **options)) for number, ask in enumerate(ways)}
spark.stop()
print(json.dumps({"found": found, "told": told}, default=lambda body: int(body)))
"""


class Readable(NamedTuple):
    """A store that the group of readers may read, of a running broker."""

    broker: LocalBroker
    user: OtherUser


@pytest.fixture(scope="module")
def open_dir() -> Iterator[Path]:
    """A directory that every user may go through; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="slipstream-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def readable(open_dir: Path) -> Iterator[Readable]:
    """Its group may not write leases: as where the store is mounted for reading only."""
    user = OtherUser(open_dir, READERS)
    if why := user.why_not():
        pytest.skip(why)
    with LocalBroker(open_dir / "broker", storeGroup=READERS, mappedFileSizeCommitLog=1 << 16) as broker:
        (open_dir / "broker").chmod(0o755)
        with Producer(str(broker.store), timeout=60.0) as producer:
            for number in range(MESSAGES):
                producer.send("t", b"%04000d" % number)
        await_dispatched(broker)
        (broker.store / "slipstream.leases").chmod(0o750)
        yield Readable(broker, user)


def asked(user: OtherUser, **paths: tuple[object, dict[str, str]]) -> tuple[dict[str, Any], list[str]]:
    """What each way to read said of each path, and what was told beside in the program itself."""
    ran = user.run(PROGRAM, json.dumps({name: (str(path), options) for name, (path, options) in paths.items()}))
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    return said["found"], said["told"]


def closed_to_all(root: Path) -> Path:
    store = SmallStore(root)
    for number in range(MESSAGES):
        store.put("t", b"%d" % number)
    store.dispatch()
    return store.root


def test_another_user_reads_only_what_he_may_read(readable: Readable, open_dir: Path) -> None:
    closed, queues_closed = closed_to_all(open_dir / "closed"), closed_to_all(open_dir / "queues-closed")
    closed.chmod(0o700)
    for path in (queues_closed, *queues_closed.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (queues_closed / "consumequeue").chmod(0o700)
    with served(closed) as server:
        found, told = asked(
            readable.user,
            in_place=(readable.broker.store, {}),
            remote=(server.location, {"flightToken": TOKEN}),
            closed=(closed, {}),
            queues_closed=(queues_closed, {"topic": "t"}),
        )
    for name in ("in_place", "remote"):
        for way, rows in found[name].items():
            assert sorted(rows) == list(range(MESSAGES)), (name, way, rows)
    for name, place in (("closed", closed), ("queues_closed", queues_closed / "consumequeue")):
        for way, (kind, text) in found[name].items():
            assert "ACCESS_DENIED" in text or kind == "AccessDenied", (name, way, kind, text)
            (line,) = (line for line in text.splitlines() if "may not open it" in line)
            assert str(place) in line and "set storeGroup" in line and "Traceback" not in text, (name, way, text)
    folder = readable.broker.store / "slipstream.leases"
    (line,) = (line for line in told if "lease" in line)
    assert line.startswith(f"{folder.parent}: read without a lease (Permission denied: {folder}): retention may"), line
