"""An acknowledged record that ends with a NUL is there after kill -9 of its whole broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.crash
BODIES = [f"body {number}" for number in range(3)]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("regions", ["left", "gone"])
def test_a_property_that_ends_with_a_nul_survives_kill_9(tmp_path: Path, flush: str, regions: str) -> None:
    keys = {
        "flushDiskType": flush, "syncFlushTimeout": 120_000, "mappedFileSizeCommitLog": 1 << 20,
        "regionPath": tmp_path / "regions",
    }  # fmt: skip
    (tmp_path / "regions").mkdir()
    with LocalBroker(tmp_path / "m", compat="4.9", **keys) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            for body in BODIES:
                put = producer.send("topic", body, properties={"n": "ends with\0"})
                assert put.status is PutMessageStatus.PUT_OK
        region_directory = extent.require_running(broker.store).region_directory
        kill_broker(broker)
        end = put.physical_offset
    if regions == "gone":
        shutil.rmtree(region_directory)
    with LocalBroker(tmp_path / "m", compat="4.9", **keys) as broker:
        found = extent.readable_range(broker.store)
        assert found.max_physical_offset > end
        messages = messages_of(broker.store, found.max_physical_offset)
    assert [bytes(message.body).decode() for message in messages] == BODIES
    last = (broker.store / "commitlog" / ("0" * 20)).read_bytes()[: found.max_physical_offset]
    assert last.endswith(b"\0"), "else nothing was tried"
