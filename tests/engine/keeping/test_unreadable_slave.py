"""A slave that cannot read what it received says so, and acknowledges nothing: neither side may call it in sync."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from engine.monitoring.ha_status import HaStatus, ha_status
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.engine.producer.test_producer import Stopped
from tests.harness.conditions import await_that
from tests.harness.ha_node import wait_for, wait_until
from tools import cli
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker

DEADLINE_SECONDS = 120
SEGMENT_BYTES = 1 << 20


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def test_a_slave_that_cannot_read_its_log_does_not_acknowledge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        LocalBroker(
            tmp_path / "m", brokerRole="SYNC_MASTER", mappedFileSizeCommitLog=SEGMENT_BYTES, slaveTimeout=120_000
        ) as master,
        LocalBroker(
            tmp_path / "s",
            brokerRole="SLAVE",
            brokerId=1,
            mappedFileSizeCommitLog=SEGMENT_BYTES,
            haMasterAddress=master.ha_address,
        ) as slave,
        Producer(master.store, timeout=DEADLINE_SECONDS) as producer,
    ):
        on_master, on_slave = counters_of(master), counters_of(slave)
        wait_until(on_master.in_sync_slaves, lambda count: count == 1)
        first = producer.send("t", b"readable")
        assert first.status.name == "PUT_OK"
        end = on_slave.max_physical_offset.read()
        assert end > first.physical_offset
        wait_for(on_slave.reput_from_offset, end)
        with Stopped(on_slave, "dispatcher"):
            assert producer.send("t", b"received, but not dispatched").status.name == "PUT_OK"
            with (slave.store / "commitlog" / ("0" * 20)).open("r+b") as log:  # what a disk or a stranger does
                log.seek(end + 4)
                log.write(b"\xff\xff\xff\xff")
        wait_until(on_master.in_sync_slaves, lambda count: count == 0)
        assert producer.send("t", b"nobody but the master has it").status.name != "PUT_OK"
        wait_until(on_slave.given_up["dispatcher"], lambda given_up: given_up == 1)

        def is_unreadable() -> bool:
            client = ha_status(slave.store).client
            return client is not None and (client.state, client.reason_code) == ("READY", "UNREADABLE")

        await_that(is_unreadable, "it is told")
        check_told(slave, capsys)
        of_master: HaStatus = ha_status(master.store)
        assert not [one for one in of_master.replicas if one.in_sync]
        assert slave.process.poll() is None
        slave.process.terminate()
        assert slave.process.wait(DEADLINE_SECONDS) == 4, "it stopped, but not in order"
    assert "slipstream: STOP_INCOMPLETE: " in slave.log.read_text()


def check_told(slave: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """In `status`, in `ha status`, on /metrics."""
    assert cli.run_command(["status", str(slave.store)]) == ExitCode.FOUND
    assert re.search(r"UNREADABLE +the dispatcher was given up", capsys.readouterr().out)
    assert cli.run_command(["ha", "status", str(slave.store)]) == ExitCode.FOUND
    out = capsys.readouterr().out
    assert "PROBLEM: the dispatcher died repeatedly at the same place" in out and "CORRUPT_RECORD" in out
    assert "does not acknowledge" in out
    assert cli.run_command(["status", "--json", str(slave.store)]) == ExitCode.FOUND
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    port = counters_of(slave).metrics_port.read()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        metrics = answer.read().decode()
    (line,) = [one for one in metrics.splitlines() if one.startswith("rocketmq_broker_failing_role_deaths{")]
    assert 'role="dispatcher"' in line and 'state="GIVEN_UP"' in line and "CORRUPT_RECORD" in line
    (line,) = [one for one in metrics.splitlines() if one.startswith("rocketmq_broker_problems{")]
    assert line.endswith(" 2.0")
