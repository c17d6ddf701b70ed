"""A broker whose log was deleted under it acknowledges nothing any more, and says so wherever its state is shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from engine.errors import MessagesRefused
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import FILES_GONE
from store.files.segment import file_name
from store.reading import extent
from tests.harness.conditions import SECONDS
from tests.harness.ha_node import wait_until
from tools import cli
from tools.common.local_broker import LocalBroker


def delete(commitlog: Path) -> None:
    (commitlog / file_name(0)).unlink()


def replace(commitlog: Path) -> None:
    commitlog.rename(commitlog.with_name("before"))
    shutil.copytree(commitlog.with_name("before"), commitlog)


@pytest.mark.parametrize(("flush", "way"), [("SYNC_FLUSH", delete), ("ASYNC_FLUSH", replace)])
def test_nothing_is_acknowledged_once_the_log_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flush: str, way: Callable[[Path], None]
) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", "flushDiskType": flush, "mappedFileSizeCommitLog": 1 << 20}
    with LocalBroker(tmp_path / "b", **settings) as broker, Producer(broker.store, timeout=SECONDS) as producer:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
        assert producer.send("t", b"in the file").status.name == "PUT_OK"
        way(broker.store / "commitlog")
        wait_until(counters.flush_errno, lambda number: number == FILES_GONE)
        with pytest.raises(MessagesRefused):
            producer.send("t", b"in an inode that nobody can reach")
        cli.run_command(["status", "--json", str(broker.store)])
        shown = json.loads(capsys.readouterr().out)
        assert "deleted, moved or replaced" in shown["problems"][0]
        assert shown["findings"][0]["reason"] == "DISK"
        port = counters.metrics_port.read()
        with pytest.raises(HTTPError) as refused, urlopen(f"http://127.0.0.1:{port}/healthz", timeout=SECONDS):
            pass
        assert refused.value.code == 503
        refused.value.close()
        broker.process.terminate()
        assert broker.process.wait(SECONDS) == 4, "it stopped, but not in order"
    assert "deleted, moved or replaced" in broker.log.read_text().splitlines()[-1]
