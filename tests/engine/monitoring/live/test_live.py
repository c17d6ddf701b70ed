"""What live views add up from shared memory: groups and topics with rates between looks, of bounded cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.monitoring.live import broker
from engine.monitoring.live import groups as live_groups
from engine.monitoring.live.broker import LagCurves, Paced
from engine.monitoring.live.groups import GroupFigures, LiveGroups, QueueLag
from engine.monitoring.live.queues import LiveQueues
from engine.protocol.ha.rates import HaSample, SlotSample
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import ClientJournal
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable


@pytest.fixture
def ends(tmp_path: Path) -> QueueEnds:
    client_table.create(tmp_path)
    TopicTable.create(tmp_path)
    return QueueEnds.create(tmp_path, {("a", 0): 10, ("a", 1): 20, ("b", 0): 5})


def test_groups_are_shown_with_their_lag_and_rate(ends: QueueEnds, tmp_path: Path) -> None:
    journal = ClientJournal.attach(tmp_path)
    journal.set_offset(("a", "g"), 0, 4)
    journal.set_offset(("a", "g"), 1, 25)  # above the end: no lag, and none below nothing
    journal.set_offset(("b", "g"), 0, 5)
    journal.set_offset(("b", "h"), 0, 1)
    journal.set_offset(("unknown", "h"), 7, 1)
    groups = LiveGroups(tmp_path, LiveQueues(tmp_path))
    assert groups.take(1000) == [GroupFigures("g", 2, 3, 6, 0.0), GroupFigures("h", 2, 2, 4, 0.0)]
    assert groups.is_whole
    assert groups.queues_of("g") == [QueueLag("a", 0, 4, 10, 6), QueueLag("a", 1, 25, 20, 0), QueueLag("b", 0, 5, 5, 0)]
    assert groups.queues_of("nobody") == []
    journal.set_offset(("a", "g"), 0, 9)
    ends.next_offsets[ends.slot_for(b"unknown", 7)] = 3
    g, h = groups.take(3000)
    assert (g.lag, g.taken_per_second) == (1, 2.5), "five messages in two seconds"
    assert h.lag == 6, "the queue has entries now"


def test_a_group_that_goes_and_one_that_takes_its_place(ends: QueueEnds, tmp_path: Path) -> None:
    journal = ClientJournal.attach(tmp_path)
    journal.set_offset(("a", "old"), 0, 1)
    groups = LiveGroups(tmp_path, LiveQueues(tmp_path))
    assert [one.group for one in groups.take(0)] == ["old"]
    journal.clear_offset(("a", "old"), 0)
    assert groups.take(1) == []
    journal.set_offset(("b", "new"), 0, 2)  # in the row, and under the numbers, of the other one
    assert groups.take(2) == [GroupFigures("new", 1, 1, 3, 0.0)]


def test_no_look_costs_more_than_so_many_rows(ends: QueueEnds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_groups, "LOOKUPS_MAX", 2)
    journal = ClientJournal.attach(tmp_path)
    for number in range(5):
        journal.set_offset(("a", f"g{number}"), 0, 3)
    groups = LiveGroups(tmp_path, LiveQueues(tmp_path))
    seen = []
    for now_ms in range(3):
        seen.append(sum(one.lag for one in groups.take(now_ms)))
        assert groups.is_whole is (now_ms == 2)
    assert seen == [14, 28, 35]


def test_queues_of_a_topic(ends: QueueEnds, tmp_path: Path) -> None:
    queues = LiveQueues(tmp_path)
    assert (queues.look(), queues.count_of("a"), queues.ends_of("a")) == (3, 2, [(0, 10), (1, 20)])
    ends.next_offsets[ends.slot_for(b"a", 2)] = 30
    assert (queues.look(), queues.ends_of("a")[-1], queues.ends_of("none")) == (4, (2, 30), [])


class Clock:
    """A reading takes a millisecond of a core; else no time passes."""

    now_ns = spent_ns = 10**9

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        return self.spent_ns


def test_what_costs_much_is_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads, cost_ns = Clock(), list[int](), 1_000_000
    monkeypatch.setattr(broker, "time", clock)

    def take() -> int:
        reads.append(len(reads))
        clock.spent_ns += cost_ns
        return len(reads)

    paced = Paced(0)
    assert [paced.of(take, at_once=False) for _ in range(4)] == [1, 2, 2, 2], "the first reading is not counted"
    clock.now_ns += int(cost_ns / broker.SHARE) - 1
    assert paced.of(take, at_once=False) == 2
    clock.now_ns += 1
    assert paced.of(take, at_once=False) == 3, "once it is paid for"
    assert paced.of(take, at_once=True) == 4


def test_lag_curves_remember_what_shared_memory_forgets() -> None:
    def sample(time_ms: int, end: int, ack: int, connected: int = 1, received: int = 0) -> HaSample:
        return HaSample(time_ms, end, received, (SlotSample(connected, ack, 0),))

    curves = LagCurves()
    curves.take([sample(1, 10, 5, 7), sample(2, 20, -1), sample(3, 30, 10, received=100)])
    curves.take([sample(3, 30, 10, received=100), sample(1003, 40, 50, received=300)])
    assert curves.of_slot(0, 1) == [20, 0], "of this connection, since its first report"
    assert curves.received()[-1] == 200.0
