"""The notebook for Kafka's users runs from its first cell to its last, and finds what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.notebooks import code_of, run, text_of
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.spark

NOTEBOOK = "kafka.ipynb"
ORDERS, LATER = 1000, 5


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with LocalBroker(tmp_path / "master", brokerRole="ASYNC_MASTER", mappedFileSizeCommitLog=1 << 23) as broker:
        monkeypatch.setenv("STORE", str(broker.store))
        yield Path(broker.store)


def await_dispatched(store: Path) -> None:
    """Streams see what is in the queues: until all of the log is."""
    counters = BrokerCounters.attach(extent.require_running(store).region_directory)
    end = counters.max_physical_offset.read()
    await_that(lambda: counters.reput_from_offset.read() >= end, "all messages are in their queues")
    counters.region.close()


def test_the_notebook_is_valid_and_only_one_of_its_cells_knows_the_format() -> None:
    code = code_of(NOTEBOOK)
    (changes,) = [cell for cell in code if "changes" in cell["metadata"].get("tags", ())]
    assert changes is code[0]
    for cell in code[1:]:
        assert not [word for word in ("rocketmq", "spark_bridge", '"path"') if word in text_of(cell)]


def test_every_cell_runs_and_a_batch_that_is_run_again_writes_nothing(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that writes and then reads what has come waits for the dispatcher, which may be late, in between."""
    process = StreamingQuery.processAllAvailable
    monkeypatch.setattr(
        StreamingQuery, "processAllAvailable", lambda query: (await_dispatched(store), process(query))[1]
    )
    names: dict[str, Any] = {"__name__": "notebook"}
    code = code_of(NOTEBOOK)
    for cell in code:
        await_dispatched(store)
        run(cell, names)
    assert names["spark"] is spark
    assert {row.key: row["count"] for row in names["by_key"].collect()}["customer-0"] == 143
    assert names["total"] == sum(number / 2 for number in range(ORDERS))
    assert names["offsets"] == list(range(10, 20))
    assert sum(row.orders for row in names["customers"]) == ORDERS and len(names["customers"]) == 7
    assert {(row.partitions, row.out_of_order) for row in names["customers"]} == {(1, 0)}
    assert (names["archive"].count(), names["traces"]) == (ORDERS, ORDERS)
    assert names["arrived"] == [str(number) for number in range(LATER)], "those before it began are not among them"
    assert names["loud"] == ORDERS + LATER
    assert sum(rows for _number, rows, _behind in names["batches"]) == ORDERS + LATER
    assert [behind for *_others, behind in names["batches"]][-1] == 0
    assert names["reasons"].keys() == names["refused"].keys()
    assert "no topic 'ordres'; did you mean 'orders'" in names["told"]
    commits = store.parent / "loud-checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    assert last >= 2
    for path in [commits / str(last), commits / f".{last}.crc"]:  # the driver died before it noted the batch as done
        path.unlink(missing_ok=True)
    (again,) = [cell for cell in code if "foreachBatch" in cell["metadata"].get("tags", ())]
    run(again, names)
    assert (commits / str(last)).exists(), "it was run again"
    assert names["loud"] == ORDERS + LATER
