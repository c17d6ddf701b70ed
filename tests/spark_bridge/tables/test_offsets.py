"""Where queues were at a time: as RocketMQ 5 finds it, whatever of the log is dispatched."""

from __future__ import annotations

import pytest

from spark_bridge.options.read import parse_options
from spark_bridge.tables.offsets import offsets_at
from tests.spark_bridge.stores import SmallStore

MESSAGES = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    made = SmallStore(tmp_path_factory.mktemp("offsets") / "store", 1024)
    for number in range(MESSAGES):
        made.put(("orders", "payments")[number % 2], b"x" * 30, number % 3, store_timestamp_ms=1000 + number // 4)
    made.dispatch()
    return made


@pytest.mark.parametrize("dispatched", [0, 18, 50, MESSAGES])
def test_the_first_message_from_a_time_on_in_queues_and_log(store, dispatched, monkeypatch):
    reput = [*store.offsets, store.end][dispatched]
    monkeypatch.setattr("spark_bridge.plan.inventory.find_extent", lambda *_a, **_k: store.extent(reput))
    options = parse_options({"path": str(store.root), "topic": "orders"})
    queues = {
        queue_id: [1000 + n // 4 for n, record in enumerate(store.records) if record[2:4] == ("orders", queue_id)]
        for queue_id in range(3)
    }
    for ms in (0, 1000, 1004, 1007, 1014, 1015, 2000):
        wanted = {(queue_id, sum(time < ms for time in times), 0, len(times)) for queue_id, times in queues.items()}
        found = {(at.queue_id, at.queue_offset, at.min_offset, at.max_offset) for at in offsets_at(options, ms)}
        assert found == wanted, ms
