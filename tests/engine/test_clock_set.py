"""A clock that is set while a broker, its slave and its producers run: nothing waits for the hour to come again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.monitoring.status import snapshot
from engine.protocol.ha.client import HaClientState
from engine.protocol.store.retention import FIRST_ROUND_MS, HOUR_MS
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.engine.producer.test_producer import DEADLINE_SECONDS, Stopped, wait_until
from tests.harness.audit import messages_of
from tests.harness.housekeeping import FOUR, Bench
from tests.harness.shifted_clock import ShiftedClock
from tools.common.local_broker import LocalBroker

HOUR_S = 3600
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
ROOT = Path(__file__).resolve().parents[2]
SENDING = """
import sys, time
from engine.errors import EngineError
from engine.producer import Producer
with Producer(sys.argv[1]) as producer:
    producer.send("t", b"first", queue_id=0, timeout=60)
    for line in sys.stdin:
        print("sending", flush=True)
        try:
            told = producer.send("t", line.encode(), queue_id=0, timeout=float(line)).status.name
        except EngineError as error:
            told = error.code
        print(told, flush=True)
"""


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


class Sender:
    """A producer in a process with a clock of its own: sends with the timeouts that it is told."""

    def __init__(self, store: Path, clock: ShiftedClock) -> None:
        environment = {**os.environ, **clock.environment}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SENDING, str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, timeout_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{timeout_s}\n")
        self._process.stdin.flush()
        assert self._line() == "sending"

    def send(self, timeout_s: float) -> str:
        self.begin(timeout_s)
        return self._line()

    def told(self) -> str:
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.mark.parametrize("shift_s", [-HOUR_S, HOUR_S])
def test_a_clock_that_is_set_stops_no_flush_no_slave_and_no_timeout(tmp_path: Path, shift_s: int) -> None:
    clock = ShiftedClock(tmp_path)
    settings = {**SMALL, "haReconnectInterval": 100, "flushCommitLogThoroughInterval": 500}  # a page or two
    with (
        LocalBroker(tmp_path / "m", inside=clock.command, brokerRole="ASYNC_MASTER", **settings) as master,
        LocalBroker(
            tmp_path / "s",
            inside=clock.command,
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            **settings,
        ) as slave,
        Sender(master.store, clock) as sender,
    ):
        both = [counters_of(master), counters_of(slave)]
        assert sender.send(60) == "PUT_OK"
        wait_until("ha_client.state", both[1], HaClientState.TRANSFER)
        clock.set(shift_s)
        for _ in range(3):
            assert sender.send(60) == "PUT_OK"
            end = both[0].max_physical_offset.read()
            for counters in both:
                for stage in ("flushed_offset", "reput_from_offset"):
                    wait_until(stage, counters, end)
        clock.set(-shift_s)
        with Stopped(both[0], "writer"):
            sender.begin(1.0)
            clock.set(shift_s)
            assert sender.told() == "SEND_TIMEOUT"
        for broker in (master, slave):
            ages = [process.heartbeat_age_seconds for process in snapshot(broker.store).processes]
            assert max(age for age in ages if age is not None) < HOUR_S / 2
        stamps = [message.store_timestamp_ms for message in messages_of(master.store, end)]
        assert stamps == sorted(stamps)
        if shift_s > 0:
            assert stamps[-1] - time.time() * 1000 > (HOUR_S - 2 * DEADLINE_SECONDS) * 1000, "written as the clock says"


def test_a_clock_that_is_set_stops_no_round_and_ages_are_those_of_the_wall(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 100)
    count = len(bench.segments())
    bench.hour = FOUR
    bench.age(71, 0, 1)
    bench.wall_ahead_ms = -HOUR_MS
    bench.run(FIRST_ROUND_MS + 20_000)
    assert bench.segments() == list(range(count)), "70 hours old by the wall clock"
    bench.wall_ahead_ms = 2 * HOUR_MS
    bench.run(20_000)
    assert bench.segments() == list(range(2, count)), "73 hours old by the wall clock, in the very next round"
    bench.age(73, 2)
    bench.wall_ahead_ms = 0
    bench.run(20_000)
    assert bench.segments() == list(range(3, count)), "set back by two hours, and no round waits for that"


SOURCES = [path for package in ("ipc", "store", "engine", "spark_bridge") for path in (ROOT / package).rglob("*.py")]
WALL = re.compile(r"time\.time\(|time\.time_ns\(|datetime\.now\(")
MAY_ASK = {"ipc/clock.py", "store/files/file_times.py"}  # the second compares with the times of files


def test_engine_and_store_ask_for_wall_time_in_one_place_only() -> None:
    asking = {str(path.relative_to(ROOT)) for path in SOURCES if WALL.search(path.read_text())}
    assert {path for path in asking if not path.startswith("spark_bridge/")} == MAY_ASK
