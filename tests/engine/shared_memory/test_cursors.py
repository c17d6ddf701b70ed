"""What is declared of counters, what a region has of it, and what the page in the documentation says."""

from __future__ import annotations

from pathlib import Path

from engine.shared_memory import counter_map
from engine.shared_memory.cursors import ROLES, SENDERS, BrokerCounters, HaConnectionCursors
from ipc.counters import LABEL_DTYPE

PAGE = Path(__file__).parents[3] / "docs" / "counters.md"
WRITERS = {*ROLES, *SENDERS, "supervisor", "senders", "producers", "many"}


def test_the_page_of_counters_is_what_is_declared() -> None:
    assert PAGE.read_text() == counter_map.text(), "python -m engine.shared_memory.counter_map > docs/counters.md"


def test_a_region_has_what_is_declared_and_each_attribute_is_the_word_of_its_label(tmp_path: Path) -> None:
    counters = BrokerCounters.create(tmp_path / "counters")
    found = list(counters.region)
    assert [(of.label, of.kind, of.owner) for of in found] == [of[:3] for of in BrokerCounters.every()]
    for view in found:
        counters.region.words[counters.region.cursor(view.label).index] = view.slot
    slots = {view.label: view.slot for view in found}
    assert counters.max_physical_offset.read() == slots["max_physical_offset"] == counters.confirm_offsets[1].read()
    assert counters.ha_server_address.low.read() == slots["ha_server_address.low"]
    assert counters.ha[3].slave_ack_offset.read() == slots["ha.3.slave_ack_offset"]
    assert counters.ha[7].peer.read() == slots["ha.7.peer"]
    assert counters.ha_client.master_address.high.read() == slots["ha_client.master.high"]
    assert counters.given_up["writer"].read() == slots["given_up.writer"]
    assert {counters.heartbeats[name].read() for name in (*ROLES, *SENDERS)} == {
        slot for label, slot in slots.items() if label.startswith("heartbeat.")
    }
    counters.region.close()


def test_every_word_has_an_owner_that_is_a_process_and_fits_its_label() -> None:
    declared = BrokerCounters.every()
    assert len({of.label for of in declared}) == len(declared)
    for of in declared:
        assert set(of.owner.split("|")) <= WRITERS, of
        assert of.meaning and of.followed_by, of
        for name in ("label", "kind", "owner"):
            assert len(getattr(of, name)) <= LABEL_DTYPE[name].itemsize, of


def test_a_slots_words_are_its_senders() -> None:
    owners = {of.owner for of in HaConnectionCursors.declared(2)}
    assert owners == {"sender.2", "sender.2|ha_listener"}
