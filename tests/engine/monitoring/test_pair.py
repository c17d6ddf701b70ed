"""What a broker says of its pair: other masters, tables that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.monitoring.finding import Finding
from engine.monitoring.pair import NO_TABLES, TABLES_FIRST_MS, TABLES_OLD_MS, TWO_MASTERS, of_the_pair
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.reign import Verdict
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import rival_note
from engine.shared_memory.region_directory.rival_note import RIVALS_MAX, Rival
from ipc import waiting
from ipc.clock import monotonic_ms

RIVAL = Rival("OLDER", "pair:0", 3, "10.0.0.1:10911", "10.0.0.1:10912")


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


def of_kind(counters: BrokerCounters, store: Path, reason: str, role: str = "SYNC_MASTER") -> list[Finding]:
    return [one for one in of_the_pair(counters, str(store), role) if one.reason == reason]


@pytest.mark.parametrize(
    ("verdict", "says", "next_step"),
    [
        (Verdict.OLDER, "of the older epoch 3", "there `slipstream demote STORE --master HOST:PORT`"),
        (Verdict.YIELD, "is the newer master", "here `slipstream demote {store} --master 10.0.0.1:10912`"),
        (Verdict.UNPROVEN, "without proof", "if so, here `slipstream demote {store} --master 10.0.0.1:10912`"),
        (Verdict.EQUAL, "this master, of epoch 3", "stop one"),
    ],
)
def test_another_master_is_reported_with_the_command_and_where_to_type_it(
    tmp_path: Path, counters: BrokerCounters, verdict: Verdict, says: str, next_step: str
) -> None:
    rival_note.write(tmp_path, [RIVAL._replace(verdict=verdict.value)])
    (one,) = of_kind(counters, tmp_path, TWO_MASTERS)
    assert "pair:0 at 10.0.0.1:10911" in one.what and says in one.what
    assert next_step.format(store=tmp_path) in one.next_step
    assert one.at_length and next_step.format(store=tmp_path) in one.at_length[0], "it is a problem"
    rival_note.write(tmp_path, [])
    assert of_kind(counters, tmp_path, TWO_MASTERS) == []


def test_a_note_of_rivals_is_bounded_and_believed_to_the_byte(tmp_path: Path, counters: BrokerCounters) -> None:
    rival_note.write(tmp_path, [RIVAL] * 20)
    assert rival_note.read(tmp_path) == [RIVAL] * RIVALS_MAX
    path = tmp_path / rival_note.NAME
    path.write_bytes(path.read_bytes().replace(b"pair:0", b"pair:9"))
    assert rival_note.read(tmp_path) == []
    rival_note.write(tmp_path, [RIVAL._replace(verdict="nonsense")])
    assert len(of_kind(counters, tmp_path, TWO_MASTERS)) == 1


@pytest.mark.parametrize(
    ("ago_ms", "is_taken", "is_missed"),
    [
        (TABLES_FIRST_MS // 2, False, False), (TABLES_FIRST_MS + 1000, False, True), (TABLES_OLD_MS // 2, True, False),
        (TABLES_OLD_MS + 1000, True, True),
    ],
)  # fmt: skip
def test_a_slave_says_for_how_long_it_has_not_had_its_masters_tables(
    tmp_path: Path, counters: BrokerCounters, ago_ms: int, is_taken: bool, is_missed: bool
) -> None:
    then_ms = monotonic_ms() + 1_000_000 - ago_ms  # below, the clock is read that much later
    waiting.publish(counters.tables_taken_ms, then_ms if is_taken else -then_ms)
    waiting.publish(counters.ha_client.state, HaClientState.TRANSFER)
    with pytest.MonkeyPatch.context() as later:
        later.setattr("engine.monitoring.pair.monotonic_ms", lambda: monotonic_ms() + 1_000_000)
        told = of_kind(counters, tmp_path, NO_TABLES, "SLAVE")
        assert bool(told) == is_missed
        assert not is_missed or f"for {ago_ms // 1000} s" in told[0].at_length[0]
        assert not of_kind(counters, tmp_path, NO_TABLES), "a master has its own"
        waiting.publish(counters.ha_client.state, HaClientState.READY)
        assert not of_kind(counters, tmp_path, NO_TABLES, "SLAVE"), "then its master is what is missing"
