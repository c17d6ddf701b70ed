"""What a reader may read: of a running broker its cursors, of a store without one the log's end; nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipc import waiting
from ipc.counters import Counters
from ipc.process import start_time
from store.errors import BitRot, NotAStore
from store.reading import extent
from tests.harness.logs import SmallLog, contents


def pretend_broker(log: SmallLog, regions: Path, pid: int, started: int) -> Counters:
    regions.mkdir()
    counters = Counters.create(regions / "counters", 2)
    for label, offset in (("min_physical_offset", 0), ("max_physical_offset", 4321)):
        waiting.publish(counters.allocate(label, kind="cursor", owner="writer"), offset)
    log.directory.write_pointer(
        {"pid": pid, "start_time": started, "region_directory": str(regions), "settings": {"brokerName": "b"}}
    )
    return counters


def test_a_running_brokers_cursors(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    log.fill(3)
    counters = pretend_broker(log, tmp_path / "regions", os.getpid(), start_time(os.getpid()) or 0)
    broker = extent.running(log.root)
    assert broker is not None
    assert (broker.pid, broker.settings, broker.region_directory) == (
        os.getpid(),
        {"brokerName": "b"},
        tmp_path / "regions",
    )
    assert extent.readable_range(log.root) == extent.Range(0, 4321, "broker")
    waiting.publish(counters.cursor("max_physical_offset"), 5000)
    assert extent.readable_range(str(log.root)).max_physical_offset == 5000


@pytest.mark.parametrize("pid, started_later", [(os.getpid(), 1), (2**22 + 1, 0)], ids=["pid used again", "gone"])
def test_a_pointer_to_a_process_that_has_gone_does_not_count(pid: int, started_later: int, tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    log.fill(3)
    pretend_broker(log, tmp_path / "regions", pid, (start_time(os.getpid()) or 0) + started_later)
    assert extent.running(log.root) is None
    assert extent.readable_range(log.root) == extent.Range(0, log.end, "recovery")


def test_a_broker_that_stops_just_now(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    log.fill(3)
    pretend_broker(log, tmp_path / "regions", os.getpid(), start_time(os.getpid()) or 0)
    (tmp_path / "regions" / "counters").unlink()
    assert extent.readable_range(log.root) == extent.Range(0, log.end, "recovery")


def test_a_store_without_a_broker_is_left_as_it_is(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    torn = log.append_raw(b"\x00\x00\x01\x00torn")
    log.directory.mark_running()
    before = contents(tmp_path)
    found = extent.readable_range(tmp_path)
    assert (found.max_physical_offset, found.source) == (torn, "recovery")
    assert "torn tail" in found.findings[0]
    assert contents(tmp_path) == before


def test_rot_is_raised_unless_it_is_asked_for(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    log.flip(log.records[1].offset + 89)
    with pytest.raises(BitRot):
        extent.readable_range(tmp_path)
    found = extent.readable_range(tmp_path, accept_rot=True)
    assert found.max_physical_offset == log.records[1].offset
    assert "sound record follows" in found.findings[0]
    assert extent.readable_range(tmp_path, check_crc=False).max_physical_offset == log.end


def test_behind_rot_the_log_goes_on_to_its_end(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(9)
    for number in (1, 2, 5):
        log.flip(log.records[number].offset + 4)
    found = extent.readable_range(tmp_path, beyond_rot=True)
    assert found.max_physical_offset == log.end
    assert "sound record follows" in found.findings[0]
    log.append_raw(b"\x00\x00\x01\x00torn")
    assert extent.readable_range(tmp_path, beyond_rot=True).max_physical_offset == log.records[-1].end


def test_what_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        extent.readable_range(tmp_path)
    (tmp_path / "slipstream.run").write_text('{"pid": "x"}')
    with pytest.raises(NotAStore, match=r"slipstream\.run"):
        extent.running(tmp_path)


def test_reading_from_a_running_broker_needs_no_numba(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    pretend_broker(log, tmp_path / "regions", os.getpid(), start_time(os.getpid()) or 0)
    code = (
        "import sys\nfrom store.reading.extent import readable_range\n"
        f"assert readable_range({str(log.root)!r}).source == 'broker'\nassert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(extent.__file__).parents[2])
