"""Two producers and a slow slave: everybody waits for what was asked for, nobody for more; both logs are the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tools.common.local_broker import LocalBroker

MESSAGES = 150
SLOW_BYTES_PER_SECOND = 60_000
DEADLINE_SECONDS = 120.0
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 65536, "ringSizeInBytes": 1 << 20}


def test_two_producers_and_a_slave_that_gets_a_trickle(tmp_path: Path) -> None:
    slow = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": SLOW_BYTES_PER_SECOND, "slaveTimeout": 60_000}
    with (
        LocalBroker(tmp_path / "m", brokerRole="SYNC_MASTER", **SMALL, **slow) as master,
        LocalBroker(
            tmp_path / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **SMALL
        ) as slave,
    ):
        both = [
            BrokerCounters.attach(extent.require_running(it.store).region_directory, writable=True)
            for it in (master, slave)
        ]
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not waiting.await_change(both[0].in_sync_slaves, 0, 100):
            assert time.monotonic() < deadline, "the slave did not come into step"
        outs = [tmp_path / f"{name}.jsonl" for name in ("a", "b")]
        appenders = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.harness.appender", str(master.store), out.stem, str(MESSAGES), str(out)]
            )
            for out in outs
        ]
        assert [appender.wait(DEADLINE_SECONDS) for appender in appenders] == [0, 0]
        end = both[0].max_physical_offset.read()
        assert both[1].max_physical_offset.read() >= both[0].confirm_offset.read() == end
    told = [json.loads(line) for out in outs for line in out.read_text().splitlines()]
    assert [answer.get("status") for answer in told] == ["PUT_OK"] * (2 * MESSAGES)
    messages = messages_of(master.store, end)
    assert_queue_offsets_dense(messages)
    assert len(messages) == 2 * MESSAGES
    same = [it.store.joinpath("commitlog", f"{0:020d}").read_bytes()[:end] for it in (master, slave)]
    assert same[0] == same[1]
