"""A broker whose shared memory cannot be reached from here: batch reads say so once and go on, streams say so, end."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from ipc.process import start_time
from spark_bridge.options.read import parse_options
from spark_bridge.plan import inventory
from spark_bridge.plan.planner import plan_read
from spark_bridge.stream.tail import StoreTail
from store.errors import BrokerOutOfReach
from store.files.directory import StoreDirectory
from store.upkeep import leases
from tests.spark_bridge.stores import SmallStore, read_rows


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """A store with a broker, this process, whose regions lie where nobody sees them."""
    made = SmallStore(tmp_path / "store", 2048)
    for number in range(20):
        made.put("orders", b"x" * number, queue_id=number % 2)
    made.dispatch()
    directory = StoreDirectory(made.root)
    directory.mark_running()
    directory.write_pointer(
        {
            "pid": os.getpid(),
            "start_time": start_time(os.getpid()),
            "settings": {},
            "region_directory": str(tmp_path / "unseen" / "regions"),
        }
    )
    return made


def test_a_batch_read_warns_once_and_reads_everything_under_a_lease(
    store: SmallStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "slipstream"):
        for _ in range(2):
            splits = plan_read(parse_options({"path": str(store.root)}))
            assert [row["physicalOffset"] for row in read_rows(splits, ["physicalOffset"])] == store.offsets[:20]
    told = [record.getMessage() for record in caplog.records if "cannot be reached from here" in record.getMessage()]
    assert len(told) == 1 and "unseen" in told[0] and "regionPath" in told[0]
    assert leases.held_from(store.root, 0) == store.offsets[0], "its retention deletes what is read"


def test_no_cursor_of_an_unreachable_broker_is_known(store: SmallStore) -> None:
    assert inventory.cursor_of(str(store.root), "reput_from_offset") is None


def test_a_stream_says_what_to_share(store: SmallStore) -> None:
    with pytest.raises(BrokerOutOfReach, match=r"a broker runs on this store.*unseen.*regionPath"):
        StoreTail(str(store.root)).look()


def test_a_reader_that_may_not_take_leases_reads_without_and_is_warned_once(
    store: SmallStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(root: str, *_arguments: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied", f"{root}/slipstream.leases")

    monkeypatch.setattr(leases, "acquire", refuse)
    with caplog.at_level(logging.WARNING, "slipstream"):
        for _ in range(2):
            splits = plan_read(parse_options({"path": str(store.root)}))
            assert len(read_rows(splits, ["physicalOffset"])) == 20
    told = [record.getMessage() for record in caplog.records if "without a lease" in record.getMessage()]
    assert len(told) == 1 and "storeGroup" in told[0] and "Permission denied" in told[0]
