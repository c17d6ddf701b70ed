"""`columnarSidecar=true`: a broker whose sealed segments get side files, and that needs nobody for its messages."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import psutil
import pytest

from engine.producer import Producer
from engine.protocol.store.retention import DiskState
from engine.shared_memory.cursors import BrokerCounters
from ipc import extras, waiting
from spark_bridge.columnar import rounds
from spark_bridge.columnar.keeper import Keeper
from spark_bridge.columnar.side_file import State
from store.names import ABORT
from store.reading import extent
from store.upkeep import side_files
from tests.harness import command_line
from tests.harness.conditions import await_that
from tests.harness.logs import SmallLog
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker
from tools.run.sidecar_role import BUSY_BYTES_A_SECOND, NICENESS, Sidecar

SEGMENT_BYTES = 1 << 20


def seal(broker: LocalBroker, segments: int) -> None:
    """Until the log goes on behind so many."""
    with Producer(broker.store, timeout=60.0) as producer:
        while producer.send("T", b"x" * 30_000, keys="k", tags="t").physical_offset < segments * SEGMENT_BYTES:
            continue


@pytest.mark.broker
def test_a_broker_builds_side_files_and_restarts_their_builder(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=SEGMENT_BYTES, columnarSidecar="true") as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        words, pid = counters.sidecar, counters.pids["sidecar"]
        seal(broker, 2)
        await_that(lambda: words.done_offset.read() >= 2 * SEGMENT_BYTES, "two segments have side files")
        assert psutil.Process(pid.read()).nice() == NICENESS
        before = pid.read()
        os.kill(before, signal.SIGKILL)
        await_that(lambda: pid.read() not in (0, before), "it is started again")
        seal(broker, 4)
        await_that(lambda: words.done_offset.read() >= 4 * SEGMENT_BYTES, "the others, too")
        status = command_line.run("status", "--json", broker.store)
        assert '"sidecar": {"built": 2, "refused": 0, "done up to": 4194304, "waits for": 0}' in status.stdout
        store = rounds.sealed_segments(broker.store)
        assert {store.check(base).state for base in store.bases[:4]} == {State.VALID}
        checked = command_line.run("log", "sidecar", "--check", broker.store)
        assert checked.exit_code == ExitCode.WELL, checked.output
        broker.stop()
        assert not (broker.store / ABORT).exists()  # it was left in order


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


def test_a_disk_that_is_nearly_full_gets_nothing_more(counters: BrokerCounters, tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    while log.end <= 2 * log.segment_bytes:
        log.append(body=b"x" * 100)
    for cursor in (counters.max_physical_offset, counters.flushed_offset):
        waiting.publish(cursor, log.end)
    role = Sidecar(counters, Keeper(log.root, log.files))
    assert role.do_work(0) and role.do_work(0)
    waiting.publish(counters.disk_state, DiskState.WARNING)
    assert not role.do_work(0) and counters.sidecar.waits_for.read() == errno.ENOSPC
    assert not [path for path in side_files.folder_of(log.root).iterdir() if path.suffix == ".creating"]
    waiting.publish(counters.disk_state, DiskState.NORMAL)
    while role.do_work(0):
        continue
    assert (counters.sidecar.done_offset.read(), counters.sidecar.waits_for.read()) == (2 * log.segment_bytes, 0)
    role.close()


def test_a_segment_that_is_not_on_disk_gets_no_side_file(counters: BrokerCounters, tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    while log.end <= 2 * log.segment_bytes:
        log.append(body=b"x" * 100)
    waiting.publish(counters.max_physical_offset, log.end)
    waiting.publish(counters.flushed_offset, log.segment_bytes)
    role = Sidecar(counters, Keeper(log.root, log.files))
    while role.do_work(0):
        continue
    assert counters.sidecar.done_offset.read() == log.segment_bytes and list(side_files.listed(log.root)) == [0]


def test_the_sidecar_rests_while_the_log_grows_fast(counters: BrokerCounters, tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    while log.end <= 3 * log.segment_bytes:
        log.append(body=b"x" * 100)
    cpu_ns = iter(range(0, 10**12, 5_000_000))  # 5 ms a step
    role = Sidecar(counters, Keeper(log.root, log.files), lambda: next(cpu_ns))
    waiting.publish(counters.flushed_offset, log.end)
    waiting.publish(counters.max_physical_offset, log.end)
    assert role.do_work(1000) and role.do_work(1001), "nothing is known of its growth yet"
    waiting.publish(counters.max_physical_offset, log.end + 2 * BUSY_BYTES_A_SECOND)
    assert role.do_work(2000), "the step at whose beginning it is seen"
    assert not role.do_work(2001) and not role.do_work(2044), "nine times as long as the step took"
    assert role.do_work(2045) and not role.do_work(2046)
    assert role.do_work(3001), "the log has stood still since"
    while role.do_work(3002):
        continue
    assert counters.sidecar.done_offset.read() == 3 * log.segment_bytes


def test_a_broker_with_side_files_does_not_start_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.properties"
    file.write_text(f"columnarSidecar=true\nstorePathRootDir={tmp_path / 'store'}\n")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "pyarrow" else object())
    ran = command_line.run("broker", "-c", file)
    assert ran.exit_code == ExitCode.USAGE and not (tmp_path / "store").exists()
    assert "EXTRA_MISSING: columnarSidecar=true needs" in ran.stderr and "[arrow]" in ran.stderr
    assert ran.stderr.count("\n") == 1
