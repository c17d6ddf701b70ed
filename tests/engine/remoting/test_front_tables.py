"""Tables of very many entries on their way to fronts: a part a turn, and never half of one in another's place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.front.connections.tables import Tables
from engine.remoting.links import exchange
from engine.remoting.links.exchange import BYTES_A_TURN, Bells, Kind, Pipe
from engine.remoting.links.front_links import ENTRIES_A_STEP, FrontLinks
from engine.remoting.loop import slices
from tests.harness.played_clients import PlayedClients, PlayedTables

MANY = 10 * ENTRIES_A_STEP
TURNS_MAX = 1000


class Stage:
    """A clients role that says tables, and what its fronts make of it, turn by turn."""

    def __init__(self, directory: Path, tables: dict[str, dict[str, Any]], fronts: int) -> None:
        exchange.create(directory, fronts)
        self.directory, self.bells, self.clients = directory, Bells.make(fronts), PlayedClients(tables)
        self.links = FrontLinks(self.clients._loop, directory, fronts, self.bells, self.clients)
        self.fronts = [Tables() for _ in range(fronts)]
        self.pipes = [Pipe(directory, front, is_front=True, bells=self.bells) for front in range(fronts)]
        self.begin = self.links.begin

    def turn_loop(self) -> None:
        """Once."""
        self.clients._loop.call_soon(self.clients._loop.stop)
        self.clients._loop.run_forever()

    def turn(self, front: int | None = None) -> int:
        """Of the loop, and of every front or of one; how many messages came."""
        self.turn_loop()
        count = 0
        for number in range(len(self.fronts)) if front is None else [front]:
            for message in self.pipes[number].receive():
                count += 1
                if message.kind is Kind.TABLE:
                    self.fronts[number].take(message.fields)
        return count

    def settle(self) -> None:
        for _ in range(TURNS_MAX):
            if not self.turn() and not self.links._tellings and not any(pipe.has_more for pipe in self.pipes):
                return
        raise AssertionError("it goes on and on")

    def topics(self) -> list[dict[str, Any]]:
        return [front.topics for front in self.fronts]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        self.links.close()
        self.turn_loop()
        self.clients._loop.close()
        self.bells.close()


def table_of(many: int, text: str = "x") -> dict[str, Any]:
    return {f"t{number}": {"text": text, "number": number} for number in range(many)}


@pytest.fixture
def stage(region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A turn of the loop ends with each step, however fast this machine is."""
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    made = Stage(region_dir, {"topics": table_of(MANY), "groups": table_of(3), "subscriptions": {}}, 2)
    yield made
    made.close()


def test_a_table_is_said_a_part_a_turn_and_once_for_all_fronts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    entries_of = PlayedTables.entries_of

    def noted(tables: PlayedTables, table: str, names: list[str]) -> dict[str, Any]:
        said.append(len(names))
        return entries_of(tables, table, names)

    monkeypatch.setattr(PlayedTables, "entries_of", noted)
    stage.begin()
    assert sum(said) == ENTRIES_A_STEP
    while stage.links._tellings:
        before = len(said)
        stage.turn()
        assert len(said) - before <= 1
    assert sum(said) == MANY + 3 and max(said) <= ENTRIES_A_STEP, "once"
    assert len(said) == 10 + 2
    stage.settle()
    assert stage.topics() == [table_of(MANY)] * 2 and all(front.is_complete for front in stage.fronts)
    said.clear()
    stage.links.note("topics", [f"t{number}" for number in range(MANY)])
    assert sum(said) == ENTRIES_A_STEP, "what is changed with many others is said beside other work, too"
    stage.settle()
    assert sum(said) == MANY


def test_a_front_takes_some_bytes_of_tables_a_turn(stage: Stage) -> None:
    stage.clients.tables["topics"] = table_of(MANY, "x" * 2000)
    stage.begin()
    while stage.links._tellings:
        stage.turn_loop()
    turns, largest = 0, 0
    while stage.pipes[0].has_more or not turns:
        before = stage.pipes[0].taken
        messages = [len(message.body) for message in stage.pipes[0].receive()]
        assert sum(messages[:-1]) <= BYTES_A_TURN and stage.pipes[0].taken >= before
        turns, largest = turns + 1, max(largest, *messages)
    assert turns >= MANY * 2000 // (BYTES_A_TURN + largest)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_changes_meanwhile_fronts_know_it_in_the_end(stage: Stage, seed: int) -> None:
    made, tables = random.Random(seed), stage.clients.tables["topics"]
    stage.begin()
    for number in range(60):
        match made.randrange(6):
            case 0:
                stage.links._begin(stage.links._all({made.randrange(2)}))
            case 1:
                stage.links.note_all("topics")
            case 2 | 3:
                name = f"t{made.randrange(MANY + 20)}"
                if name in tables and made.random() < 0.5:
                    del tables[name]
                else:
                    tables[name] = {"number": number}
                stage.links.note("topics", [name])
            case 4:
                some = made.sample(sorted(tables), 3 * ENTRIES_A_STEP)
                tables.update((name, {"many": number}) for name in some)
                stage.links.note("topics", some)
            case _:
                stage.turn(made.choice((None, 0, 1)))
    stage.settle()
    assert stage.topics() == [tables, tables]


def test_a_front_keeps_its_table_until_all_of_the_next_has_come(stage: Stage) -> None:
    front, changed = Tables(), list[str | None]()
    front.follow(lambda _table, name: changed.append(name))

    def take(*names: str, **part: bool) -> list[str]:
        entries = {name.lstrip("-"): None if name.startswith("-") else {"is": name} for name in names}
        front.take({"table": "topics", "entries": entries, **part})
        return sorted(front.topics)

    topics = front.topics
    assert take("a", "b", whole=True, begins=True, ends=True) == ["a", "b"]
    assert take("c", whole=True, begins=True, ends=False) == ["a", "b"]
    assert take("d", "-a", "-c") == ["b", "d"], "a change counts at once, and in what is coming"
    assert take("e", whole=True, begins=False, ends=False) == ["b", "d"]
    assert take("f", whole=True, begins=False, ends=True) == ["d", "e", "f"]
    assert take("g", whole=True, begins=False, ends=True) == ["d", "e", "f"], "its beginning went to another process"
    assert take("h", whole=True, begins=True, ends=False) == ["d", "e", "f"]
    assert take("i", whole=True, begins=True, ends=False) == ["d", "e", "f"], "who said that died before its end"
    assert take("j", whole=True, begins=False, ends=True) == ["i", "j"]
    assert changed == [None, "d", "a", "c", None, None] and front.topics is topics
