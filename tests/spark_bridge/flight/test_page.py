"""The blocks of docs/flight.md, as its reader runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.page_blocks import Session, commands_in_path
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import free_port


def test_a_store_is_served_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SmallStore(tmp_path / "shop" / "store")
    for number in range(50):
        topic = ("orders", "bills")[number % 2]
        store.put(topic, b"%d" % number, queue_id=number % 4, store_timestamp_ms=1_700_000_000_000)
    store.dispatch()
    port = free_port()
    instead = {"8815": port, "slipstream flight STORE": f"slipstream flight {store.root} --port {port}"}
    with commands_in_path(monkeypatch, tmp_path), Session("flight.md", tmp_path, instead) as session:
        assert session.run() == 3
        orders = session.names["orders"].to_pylist()
        assert sorted(int(row["body"]) for row in orders) == list(range(0, 50, 2))
        assert {(row["topic"], row["count"]) for row in session.names["queues"].to_pylist()} == {
            ("orders", 13), ("orders", 12), ("bills", 13), ("bills", 12),
        }  # fmt: skip
        assert session.names["touched"]["queues"] == {"orders/0": 13, "orders/2": 12}
        session.names["client"].close()
