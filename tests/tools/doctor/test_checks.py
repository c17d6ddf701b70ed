"""The doctor's single checks, on what nodes and name servers might say: each trouble has its row, code and command."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.clients.admin import Member
from tools.doctor import certificate, group, names, node, ports
from tools.doctor.disk import history_of
from tools.doctor.node import Node
from tools.doctor.rows import Level, Row, is_well, left_open, ok, unknown, wrong

NODE = Node(
    "/store", "10.0.0.1:10911",
    settings={
        "brokerClusterName": "c", "brokerName": "a", "brokerId": "1", "mappedFileSizeCommitLog": "1000",
        "remotingAllowList": "", "haListenPort": "10912",
    },
    runtime={"commitLogMinOffset": "3000", "earliestMessageTimeStamp": "1700000000000", "brokerVersionDesc": "V"},
    ahead_ms=0.0,
)  # fmt: skip
MASTER, SLAVE = Member("c", "a", 0, "10.0.0.9:10911"), Member("c", "a", 1, "10.0.0.1:10911")
N1, N2 = "10.0.0.7:9876", "10.0.0.8:9876"
EVERYWHERE = {port: ["0.0.0.0"] for port in (10909, 10911, 10912)}


def said(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.check, row.reason) for row in rows]


def only(rows: list[Row], level: Level = Level.WRONG) -> Row:
    (row,) = [row for row in rows if row.level is level]
    assert row.next, row
    return row


def test_name_servers_that_agree() -> None:
    rows = names.rows(NODE, {N1: [MASTER, SLAVE], N2: [SLAVE, MASTER]})
    assert said(rows) == [("name servers", "OK"), ("identity", "OK")]
    assert names.rows(NODE, {})[0].level is Level.OK


def test_name_servers_that_know_different_brokers() -> None:
    row = only(names.rows(NODE, {N1: [MASTER, SLAVE], N2: [SLAVE]}))
    assert row.reason == "IDENTITY" and N1 in row.what and N2 in row.what and N2 in row.next


def test_a_broker_that_no_name_server_knows() -> None:
    row = only(names.rows(NODE, {N1: [MASTER]}))
    assert (row.check, row.reason) == ("identity", "IDENTITY") and "a:1" in row.what and "registerAllowList" in row.what


def test_the_same_name_and_id_in_another_cluster() -> None:
    row = only(names.rows(NODE, {N1: [MASTER._replace(cluster="d"), SLAVE._replace(cluster="d")]}))
    assert row.reason == "IDENTITY" and "cluster d" in row.what


def test_the_other_brokers_of_a_group_are_found() -> None:
    assert names.others(NODE, {N1: "not reached", N2: [MASTER, SLAVE, Member("c", "b", 0, "x:1")]}) == [MASTER]


def test_ports_that_lists_keep_are_well_and_others_are_left_open() -> None:
    open_rows = ports.rows(replace(NODE, listening=EVERYWHERE), 0.1)
    assert {row.level for row in open_rows} == {Level.OPEN} and len(open_rows) == 3
    for row, key in zip(open_rows, ("remotingAllowList", "remotingAllowList", "haAllowList"), strict=True):
        assert f"no {key}" in row.what and f"{key}=" in row.next and "every IPv4 address" in row.what
    kept = {
        **NODE.settings,
        "remotingAllowList": "10.0.0.0/8",
        "haAllowList": "10.0.0.9/32",
        "tls.server.mode": "enforcing",
        "haTlsMode": "enforcing",
    }
    rows = ports.rows(replace(NODE, listening=EVERYWHERE, settings=kept), 0.1)
    assert {row.level for row in rows} == {Level.OK} and "10.0.0.9/32" in rows[2].what
    plain = {**kept, "haTlsMode": "disabled"}
    row = only(ports.rows(replace(NODE, listening=EVERYWHERE, settings=plain), 0.1), Level.OPEN)
    assert "haTlsMode" in row.what and "haTlsMode" in row.next and "docs/security.md" in row.next


def test_a_port_that_nobody_listens_on() -> None:
    here = replace(NODE, address="127.0.0.1:9", listening={})
    row = ports.rows(here, 0.5)[0]
    assert (row.level, row.reason) == (Level.WRONG, "NO_LISTENER") and "127.0.0.1:9" in row.what


def test_permissions_are_unknown_without_settings() -> None:
    silent = replace(NODE, settings={}, silence={"settings": "code 16"}, listening=EVERYWHERE)
    assert {row.level for row in ports.rows(silent, 0.1)} == {Level.UNKNOWN}
    assert ports.administrators(silent) == []


@pytest.mark.parametrize(("listed", "level"), [("", Level.OK), ("10.0.0.0/8", Level.OK), ("::/0", Level.OPEN)])
def test_administrators(listed: str, level: Level) -> None:
    (row,) = ports.administrators(replace(NODE, settings={**NODE.settings, "adminAllowList": listed}))
    assert row.level is level


@pytest.mark.parametrize("ahead_ms", [5000.0, -5000.0])
def test_clocks_that_differ(ahead_ms: float) -> None:
    row = group.clock_row(replace(NODE, ahead_ms=ahead_ms))
    assert (row.level, row.reason) == (Level.WRONG, "CLOCK") and "5.0 s" in row.what and "chronyc" in row.next
    assert group.clock_row(NODE).level is Level.OK
    silent = replace(NODE, ahead_ms=None)
    assert group.clock_row(silent).level is Level.UNKNOWN
    tomorrow = {"putMessageTimestamp": str(int(time.time() * 1000) + 86_400_000)}
    assert group.clock_row(replace(silent, runtime=tomorrow)).reason == "CLOCK"


@pytest.mark.parametrize(
    ("said_ms", "ahead_ms"), [(1_000_000, 0), (1_004_000, 0), (1_002_000, 0), (1_005_000, 1000), (998_000, -2000)]
)
def test_an_answer_that_takes_long_says_of_a_clock_what_is_certain(
    monkeypatch: pytest.MonkeyPatch, said_ms: int, ahead_ms: float
) -> None:
    """Of a busy machine whose answer takes four seconds the clock is not wrong by two."""
    moments = iter((7.0, 11.0))
    monkeypatch.setattr(node, "time", SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: next(moments)))
    monkeypatch.setattr(node, "asked_extent", lambda _client: SimpleNamespace(now_ms=said_ms))
    asking = SimpleNamespace(client=lambda _address: nullcontext())
    assert node._clocked(NODE, asking)[1] == ahead_ms  # type: ignore[arg-type]


@pytest.mark.parametrize(("days", "level"), [(90, Level.OK), (2, Level.WRONG), (-1, Level.WRONG)])
def test_certificates_are_renewed_before_they_end(days: int, level: Level) -> None:
    ends = time.strftime("%b %d %H:%M:%S %Y GMT", time.gmtime(time.time() + days * 86_400))
    row = certificate.judged(ends)
    assert row.level is level and (level is Level.OK or (row.reason == "CERTIFICATE" and "a restart" in row.next))
    assert certificate.judged("").level is Level.UNKNOWN


def against(other: Node, member: Member = MASTER) -> list[Row]:
    return group._against(NODE, member, other)


def test_the_masters_segments_history_and_clock() -> None:
    master = replace(NODE, address=MASTER.address)
    assert {row.level for row in against(master)} == {Level.OK}
    other_size = replace(master, settings={**NODE.settings, "mappedFileSizeCommitLog": "2000"})
    row = only(against(other_size))
    assert row.reason == "SEGMENT_SIZE" and "2000" in row.next
    longer = replace(master, runtime={**NODE.runtime, "commitLogMinOffset": "1000"})
    row = only(against(longer))
    assert row.reason == "GAP" and "2,000 bytes" in row.what
    assert only(against(replace(master, ahead_ms=9000.0))).reason == "CLOCK"
    assert only(against(replace(master, ahead_ms=None)), Level.UNKNOWN).check == "clock"
    assert only(against(replace(master, silence={"figures": "refused"}))).reason == "UNREACHABLE"


def test_what_figures_say_of_history() -> None:
    assert history_of({}) is None and history_of({"commitLogMinOffset": "x"}) is None
    history = history_of({"commitLogMinOffset": "7", "earliestMessageTimeStamp": "-1"})
    assert history is not None and (history.from_offset, history.from_ms) == (7, None)


def test_unknown_and_open_rows_are_well_unless_the_check_is_strict() -> None:
    rows = [ok("a", "b"), unknown("a", "b"), left_open("a", "b", "c")]
    assert is_well(rows, strict=False) and not is_well(rows, strict=True)
    assert not is_well([*rows, wrong("a", "b", "c", "d")], strict=False)
