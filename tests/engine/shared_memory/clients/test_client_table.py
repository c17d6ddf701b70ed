"""Offsets and locks in shared memory: whoever attaches next has what was said last, whatever was done before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.protocol.clients.locks import Lock
from engine.protocol.remoting.places import Place
from engine.protocol.tables.offset_journal import Key
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import STEP, ClientJournal, ClientTable
from engine.shared_memory.clients.name_rows import NAME_BYTES_MAX
from store.names import CONSUMER_OFFSETS

Offsets = dict[Key, dict[int, int]]
Locks = dict[tuple[str, Place], Lock]


def seen(directory: Path) -> tuple[Offsets, Locks]:
    """As any process reads it."""
    table = ClientTable.attach(directory)
    offsets, locks = table.offsets(), {(group, queue): lock for group, queue, lock in table.locks()}
    table.close()
    return offsets, locks


def test_a_filled_table_keeps_its_offsets_for_the_next_process(tmp_path: Path) -> None:
    client_table.create(tmp_path)
    journal = ClientJournal.attach(tmp_path)
    assert not journal.is_filled
    journal.fill({("t", "g"): {0: 5, 7: -1}})
    journal.close()
    again = ClientJournal.attach(tmp_path)
    assert again.is_filled and not again.is_overfull and again.offsets() == {("t", "g"): {0: 5, 7: -1}}
    again.close()


def test_offsets_are_filled_in_the_same_way_into_an_empty_and_a_used_table(tmp_path: Path) -> None:
    offsets: Offsets = {
        (f"t{n}", "t1" if n == 1 else f"g{n % 9}"): {q - 1: (n - 5) * q for q in range(n % 5)} for n in range(3 * STEP)
    }
    offsets["least", "g"], offsets["t" * (NAME_BYTES_MAX + 1), "g"] = {0: -(1 << 63), 1: (1 << 63) - 1}, {0: 1}
    journals = []
    for name in ("together", "apart"):
        (tmp_path / name).mkdir()
        client_table.create(tmp_path / name)
        journals.append(ClientJournal.attach(tmp_path / name))
    together, apart = journals
    together.fill(offsets)
    apart.fill({key: of_key for key, of_key in offsets.items() if key == ("t1", "t1")})
    apart.fill(offsets)  # where something is there already
    kept = {key: of_key for key, of_key in offsets.items() if of_key and len(key[0]) <= NAME_BYTES_MAX}
    kept["least", "g"] = {0: 1 - (1 << 63), 1: (1 << 63) - 1}
    for journal, name in zip(journals, ("together", "apart"), strict=True):
        assert journal.is_whole() and journal.is_overfull and journal.offsets() == seen(tmp_path / name)[0] == kept
    assert sorted(together._uses.values()) == sorted(apart._uses.values())
    for key, of_key in kept.items():  # all names are given up with their last row
        for queue_id in of_key:
            for journal in journals:
                journal.clear_offset(key, queue_id)
    assert not together._uses and not apart._uses and not seen(tmp_path / "together")[0]


def test_what_has_no_room_is_filled_in_as_far_as_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_table, "OFFSETS", client_table.OFFSETS._replace(capacity=STEP))
    client_table.create(tmp_path)
    journal = ClientJournal.attach(tmp_path)
    journal.fill({("t", f"g{number}"): {0: number} for number in range(STEP + 1)})
    assert journal.is_filled and journal.is_overfull and len(seen(tmp_path)[0]) == STEP


def test_the_table_stands_for_the_last_file_read_or_written_if_that_is_sound(tmp_path: Path) -> None:
    client_table.create(tmp_path)
    journal, state, other = ClientJournal.attach(tmp_path), (5, 6, 7), (5, 6, 8)
    journal.note_file(CONSUMER_OFFSETS, state)
    assert not journal.stands_for(state), "not yet"
    journal.fill({("t", "g"): {0: 5}})
    assert journal.stands_for(state) and not journal.stands_for(other) and not journal.stands_for(None)
    journal.note_file(CONSUMER_OFFSETS, other)
    assert journal.stands_for(other) and not journal.stands_for(state)
    assert not journal.set_offset(("t" * (NAME_BYTES_MAX + 1), "g"), 0, 1)
    assert journal.is_overfull and not journal.stands_for(other), "the file knows more"
    journal.note_file(CONSUMER_OFFSETS, None)
    assert not journal.stands_for(None)
    journal.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_successor_has_all_that_was_said(tmp_path: Path, seed: int) -> None:
    """A model beside it; now and then another process goes on where the one before was killed."""
    chance = random.Random(seed)
    client_table.create(tmp_path)
    journal = ClientJournal.attach(tmp_path)
    offsets: Offsets = {}
    locks: Locks = {}
    for step in range(3000):
        key = f"topic-{chance.randrange(5)}", f"group-é-{chance.randrange(5)}"
        queue_id = chance.randrange(4)
        lock_key = key[1], Place(key[0], f"broker-{chance.randrange(2)}", queue_id)
        match chance.randrange(8):
            case 0 | 1 | 2:
                offset = chance.randrange(1 << 62)
                assert journal.set_offset(key, queue_id, offset)
                offsets.setdefault(key, {})[queue_id] = offset
            case 3:
                journal.clear_offset(key, queue_id)
                offsets.get(key, {}).pop(queue_id, None)
            case 4 | 5:
                lock = Lock(f"client-{chance.randrange(50)}", step + 1)
                assert journal.set_lock(*lock_key, lock)
                locks[lock_key] = lock
            case 6:
                journal.clear_lock(*lock_key)
                locks.pop(lock_key, None)
            case _:
                if chance.random() < 0.05:
                    journal = ClientJournal.attach(tmp_path)  # the other was killed: nothing was closed
    left = {key: of_key for key, of_key in offsets.items() if of_key}
    assert seen(tmp_path) == (left, locks)
    assert journal.offsets() == ClientJournal.attach(tmp_path).offsets() == left


def test_rows_and_names_are_used_again(tmp_path: Path) -> None:
    client_table.create(tmp_path)
    journal = ClientJournal.attach(tmp_path)
    for number in range(3 * STEP):
        assert journal.set_offset((f"t{number}", "g"), 0, number)
        journal.clear_offset((f"t{number}", "g"), 0)
        assert journal.set_lock("g", Place(f"t{number}", "b", 0), Lock(f"c{number}", 1))
        journal.clear_lock("g", Place(f"t{number}", "b", 0))
    words = journal._words
    for used in (client_table.OFFSETS.used, client_table.LOCKS.used, client_table.NAMES.used):
        assert words[used] == STEP
    journal.close()


def test_the_table_grows_by_steps_and_says_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client_table.create(tmp_path)
    journal = ClientJournal.attach(tmp_path)
    for number in range(STEP + 1):
        assert journal.set_offset(("t", f"g{number}"), 0, number)
    assert not journal.set_offset(("t" * (NAME_BYTES_MAX + 1), "g"), 0, 1), "a name that has no room"
    assert journal.is_overfull
    monkeypatch.setattr(client_table, "OFFSETS", client_table.OFFSETS._replace(capacity=2 * STEP))
    journal = ClientJournal.attach(tmp_path)
    for number in range(STEP + 1, 2 * STEP):
        assert journal.set_offset(("t", f"g{number}"), 0, number)
    before = dict(journal._uses)
    assert not journal.set_offset(("t", "more"), 0, 1)
    assert journal._uses == before, "nothing has changed"
    assert journal.set_offset(("t", "g5"), 0, 17)
    offsets, _locks = seen(tmp_path)
    assert offsets["t", "g5"] == {0: 17} and len(offsets) == 2 * STEP
