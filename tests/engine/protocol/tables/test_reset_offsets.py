"""Offsets that were set, until a pull has heard of them: over the death of who keeps them, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.tables.consumer_offsets import ConsumerOffsets, NoRoom
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import ClientJournal

KEY = ("t", "g")


def opened(directory: Path) -> tuple[ClientJournal, ConsumerOffsets]:
    """As a clients role that comes back finds it."""
    journal, offsets = ClientJournal.attach(directory), ConsumerOffsets({})
    offsets.restore(journal.offsets())
    offsets.journal = journal
    return journal, offsets


def test_what_was_set_is_known_to_the_next_process(tmp_path: Path) -> None:
    client_table.create(tmp_path)
    journal, offsets = opened(tmp_path)
    offsets.commit("g", "t", 0, 40)
    offsets.commit("h", "t", 0, 41)
    offsets.reset("g", "t", {0: 5, 1: 6})
    assert offsets.resets.take_altered() == [KEY] and not offsets.resets.take_altered()
    journal.close()
    journal, offsets = opened(tmp_path)
    assert offsets.resets.table == {KEY: {0: 5, 1: 6}}
    assert offsets.table == {KEY: {0: 5, 1: 6}, ("t", "h"): {0: 41}}
    offsets.resets.erase(KEY, 0, 4)
    assert offsets.resets.has(KEY, 0), "another offset was heard of"
    offsets.resets.erase(KEY, 0, 5)
    assert not offsets.resets.has(KEY, 0) and offsets.resets.has(KEY, 1)
    journal.close()
    journal, offsets = opened(tmp_path)
    assert offsets.resets.table == {KEY: {1: 6}} and offsets.query("g", "t", 0) == 5
    assert offsets.remove(offsets.of_group("g")) and not offsets.resets.table
    journal.close()
    journal, offsets = opened(tmp_path)
    assert not offsets.resets.table and offsets.table == {("t", "h"): {0: 41}}
    journal.close()


def test_no_group_can_pass_for_a_reset() -> None:
    offsets = ConsumerOffsets({})
    with pytest.raises(NoRoom):
        offsets.commit("\0g", "t", 0, 1)
    assert not offsets.table
