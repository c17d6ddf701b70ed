"""What a view with a line for each says is wrong: reason code, few words, next step, the worst first."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.monitoring.finding import SILENT_SECONDS, SPARE_SILENT_SECONDS, Verdict, stalled
from engine.monitoring.findings import findings_of
from engine.monitoring.ha_status import ClientStatus, ConnectionStatus, EndedStatus, HaStatus
from engine.monitoring.problems import problems
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import CloseReason
from engine.protocol.store.retention import DiskState
from engine.shared_memory.cursors import BrokerCounters, BrokerState, HaSlotState
from engine.shared_memory.failures import Failures
from ipc import waiting
from ipc.clock import monotonic_ms
from store.files import pointer
from store.files.set_aside import set_aside
from store.tables import mending


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    counters = BrokerCounters.create(tmp_path / "counters")
    Failures.create(tmp_path)
    waiting.publish(counters.broker_state, BrokerState.RUNNING)
    return counters


def status_of(store: Path, role: str = "SYNC_MASTER", needed: int = 1) -> HaStatus:
    return HaStatus(str(store), "c", "a", role, "5", "RUNNING", 10_000, 0, 4_000, 0, needed, 0)


def codes(counters: BrokerCounters, status: HaStatus) -> list[str]:
    findings = findings_of(counters, status)
    assert all(one.what and one.next_step and "\n" not in one.what for one in findings)
    return [str(one.reason) for one in findings]


def test_a_healthy_broker_has_no_findings(counters: BrokerCounters, tmp_path: Path) -> None:
    assert codes(counters, status_of(tmp_path)) == []


def test_the_disk_comes_first(counters: BrokerCounters, tmp_path: Path) -> None:
    waiting.publish(counters.flush_errno, errno.EIO)
    waiting.publish(counters.disk_state, DiskState.FULL)
    waiting.publish(counters.allocation_errno, errno.ENOSPC)
    waiting.publish(counters.dispatch_errno, errno.ENOSPC)
    waiting.publish(counters.given_up["dispatcher"], 1)
    assert codes(counters, status_of(tmp_path, needed=2)) == [*["DISK"] * 4, "UNREADABLE", "NO_SLAVE"]
    waiting.add(counters.vanished_files, 3)
    findings = findings_of(counters, status_of(tmp_path))
    assert (findings.pop(3).reason, len(findings)) == ("FILES_REMOVED", 5)
    assert "Input/output error" in findings[0].what and "FULL" in findings[1].what
    assert f"df -h {tmp_path}" in findings[2].next_step and "log verify" in findings[4].next_step
    assert "queues and index wait for disk space (No space left on device)" in findings[3].what


def test_a_role_that_stands_still_is_named_once(counters: BrokerCounters, tmp_path: Path) -> None:
    for role in ("writer", "sender.0", "front.0", "flusher"):
        waiting.publish(counters.pids[role], 77)
        waiting.publish(counters.heartbeats[role], monotonic_ms() - (0 if role == "flusher" else SILENT_SECONDS * 2000))
    assert stalled(counters).keys() == {"writer", "sender.0", "front.0"}
    findings = [one for one in findings_of(counters, status_of(tmp_path)) if one.reason == "STUCK"]
    assert sorted(one.what.split()[1] for one in findings) == ["front.0", "sender.0", "writer"]
    assert {one.what.split()[1]: one.verdict.name for one in findings} == {
        "front.0": "NOT_READY",
        "sender.0": "DEGRADED",
        "writer": "NOT_READY",
    }
    waiting.publish(counters.pids["writer"], 0)
    assert "writer" not in stalled(counters), "it does not run at all"
    waiting.publish(counters.pids["sidecar"], 1)
    for seconds, silent in ((SILENT_SECONDS * 2, False), (SPARE_SILENT_SECONDS * 2, True)):
        waiting.publish(counters.heartbeats["sidecar"], monotonic_ms() - seconds * 1000)
        assert ("sidecar" in stalled(counters)) is silent, "who yields to all others may take long"


def test_replicas_that_are_behind_silent_or_gone(counters: BrokerCounters, tmp_path: Path) -> None:
    slave = ConnectionStatus(
        0,
        "10.0.0.2:5000",
        HaSlotState.TRANSFER.name,
        0,
        9_000,
        4_000,
        6_000,
        2.5,
        9_000,
        0,
        60.0,
        0.1,
        "BEHIND",
        False,
        replica="a:1",
    )
    new = replace(slave, slot=1, peer="10.0.0.3:6000", reason="NO_REPORT", silent_seconds=9.0)
    gone = EndedStatus("10.0.0.4:6000", "TIMEOUT", "HOUSEKEEPING", "look at it", 77, 3.0)
    back = replace(gone, peer="10.0.0.2:4000")
    given_up = replace(gone, ended_seconds=1e6)
    status = replace(status_of(tmp_path), replicas=[slave, new], gone=[gone, back, given_up])
    assert codes(counters, status) == ["BEHIND", "NO_REPORT", "TIMEOUT"]
    findings = findings_of(counters, status)
    assert "a:1 lacks 6,000 bytes, 2.5 s," in findings[0].what and "10.0.0.4:6000" in findings[2].what


def test_a_slave_that_does_not_follow(counters: BrokerCounters, tmp_path: Path) -> None:
    client = ClientStatus("READY", "10.0.0.1:10912", 0, None, 30, "NO_LISTENER", "is it up?")
    status = replace(status_of(tmp_path, "SLAVE"), client=client)
    waiting.publish(counters.ha_client.reason, CloseReason.NO_LISTENER)
    (finding,) = findings_of(counters, status)
    assert finding.reason == "NO_LISTENER" and "does not answer" in finding.what
    waiting.publish(counters.ha_client.reason, CloseReason.SEGMENT_SIZE)
    (finding,) = findings_of(counters, status)
    assert "does not follow its master" in finding.what
    waiting.publish(counters.ha_client.state, HaClientState.TRANSFER)
    assert codes(counters, status) == []


def test_a_certificate_of_its_own_making_is_worth_a_look(
    counters: BrokerCounters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"settings": {"tlsTestFile": "/etc/tls.properties"}}
    monkeypatch.setattr(pointer, "read", lambda _root: SimpleNamespace(fields=fields))
    (finding,) = findings_of(counters, status_of(tmp_path))
    assert (finding.reason, finding.verdict) == ("TLS_TEST_MODE", Verdict.WELL)
    assert "/etc/tls.properties" in finding.what


@pytest.mark.parametrize("name", ["slipstream.cut", "slipstream.rewind", "slipstream.repair"])
def test_an_interrupted_change_that_was_not_finished_is_named_until_it_is_removed(
    counters: BrokerCounters, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    aside = set_aside(tmp_path / name)
    assert codes(counters, status_of(tmp_path)) == ["NOT_FINISHED"]
    assert aside.name in findings_of(counters, status_of(tmp_path))[0].next_step
    aside.unlink()
    assert codes(counters, status_of(tmp_path)) == []


def test_a_damaged_table_is_a_problem_until_its_file_is_removed(counters: BrokerCounters, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_bytes(bytes(100))
    mending.read(config / "consumerOffset.json")
    (finding,) = findings_of(counters, status_of(tmp_path))
    aside = config / "consumerOffset.json.aside"
    assert finding.reason == "TABLE" and finding.what.startswith("consumerOffset.json was damaged")
    assert str(aside) in finding.next_step and problems(counters, str(tmp_path), "SLAVE")[0].startswith(finding.what)
    assert finding.verdict is Verdict.DEGRADED, "exit codes say so, too"
    aside.unlink()
    assert codes(counters, status_of(tmp_path)) == []


def test_tables_that_cannot_be_written_are_a_problem(counters: BrokerCounters, tmp_path: Path) -> None:
    waiting.publish(counters.tables_errno, errno.EACCES)
    (finding,) = findings_of(counters, status_of(tmp_path))
    assert finding.reason == "TABLE" and "cannot be written (Permission denied)" in finding.what


def test_a_broker_that_stops_is_a_finding(counters: BrokerCounters, tmp_path: Path) -> None:
    waiting.publish(counters.broker_state, BrokerState.STOPPING)
    (finding,) = findings_of(counters, status_of(tmp_path))
    assert finding.reason == "STOPPED" and "STOPPING" in finding.what


def test_what_stops_a_broker_is_one_list_at_two_lengths(counters: BrokerCounters, tmp_path: Path) -> None:
    waiting.publish(counters.flush_errno, errno.EIO)
    waiting.publish(counters.stuck["dispatcher"], 10)
    waiting.publish(counters.given_up["dispatcher"], 1)
    waiting.publish(counters.given_up["flusher"], 1)
    waiting.publish(counters.ha_client.reason, CloseReason.NO_LISTENER)
    status = status_of(tmp_path, "SLAVE")
    disk, flusher, dispatcher, master = findings_of(counters, status)
    lines = problems(counters, str(tmp_path), "SLAVE")
    assert lines == [line for one in (disk, flusher, dispatcher, master) for line in one.at_length]
    assert [len(one.at_length) for one in (disk, flusher, dispatcher, master)] == [1, 1, 2, 1]
    assert "does not acknowledge" in dispatcher.at_length[1]
    assert (master.what, master.at_length[0][:27]) == ("its master does not answer", "its master does not answer.")


def test_a_full_disk_hides_no_master_that_is_gone(counters: BrokerCounters, tmp_path: Path) -> None:
    waiting.publish(counters.allocation_errno, errno.ENOSPC)
    waiting.publish(counters.ha_client.reason, CloseReason.UNREACHABLE)
    assert codes(counters, status_of(tmp_path, "SLAVE")) == ["DISK", "UNREACHABLE"]
