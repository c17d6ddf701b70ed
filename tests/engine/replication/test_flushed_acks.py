"""haAckFlushed: a put that waits for a slave's disk has its answer once that has it, however the slave flushes."""

from __future__ import annotations

from pathlib import Path

from engine.monitoring.ha_status import ha_status
from engine.producer.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

HOUR_MS, TIMEOUT = 3_600_000, 60.0


def test_an_async_flush_slave_flushes_at_once_what_a_put_waits_for(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "m", brokerRole="SYNC_MASTER", haAckFlushed="true", slaveTimeout=30_000) as master,
        LocalBroker(
            tmp_path / "s",
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            flushDiskType="ASYNC_FLUSH",
            flushCommitLogThoroughInterval=HOUR_MS,
        ),
    ):
        await_that(lambda: ha_status(master.store).in_sync_slaves, "the slave is in sync")
        with Producer(master.store, timeout=TIMEOUT) as producer:
            said = [producer.send("t", b"%d" % number).status for number in range(8)]
        assert said == [PutMessageStatus.PUT_OK] * 8
