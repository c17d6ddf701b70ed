"""Tables of topics and groups as text: written in steps, by whoever comes, and the bytes of the whole at any moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from store.tables import config_texts, fastjson
from store.tables.config_texts import ConfigTexts
from store.tables.entry_texts import STEP, EntryTexts, compact_of
from store.tables.steps import at_once
from store.tables.tables import TOPIC_CAPACITY, TOPIC_TABLE, java_order

HEAD = {"dataVersion": {"counter": 7}}
Table = dict[str, dict[str, Any]]


def whole(table: Table) -> bytes:
    """As fastjson writes it."""
    entries = {name: dict(sorted(table[name].items())) for name in java_order(table, TOPIC_CAPACITY)}
    return fastjson.dumps_pretty({**HEAD, TOPIC_TABLE: entries}).encode()


def config(number: int) -> dict[str, Any]:
    return {"topicName": f"t{number}", "perm": number % 8, "attributes": {}}


def test_a_whole_table_is_written_in_steps_of_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = {f"t{number}": config(number) for number in range(10 * STEP)}
    written: list[str] = []
    entry = ConfigTexts._entry

    def counted(texts: ConfigTexts, name: str) -> object:
        written.append(name)
        return entry(texts, name)

    monkeypatch.setattr(ConfigTexts, "_entry", counted)
    texts = ConfigTexts(TOPIC_TABLE, lambda: table, TOPIC_CAPACITY)
    assert texts.is_much
    seen = 0
    for _ in texts.steps():
        assert len(written) - seen <= STEP and texts.is_much
        seen = len(written)
    assert not texts.is_much and sorted(written) == sorted(table)
    assert texts.pretty(HEAD) == whole(table)
    assert len(written) == len(table), "nothing is written twice"


@pytest.mark.parametrize("seed", range(30))
def test_drivers_that_come_give_up_and_change_the_table_spoil_nothing(seed: int) -> None:
    made, table = random.Random(seed), {f"t{number}": config(number) for number in range(3 * STEP)}
    texts = ConfigTexts(TOPIC_TABLE, lambda: table, TOPIC_CAPACITY)
    drivers: list[Iterator[int]] = []
    for _ in range(400):
        match made.randrange(6):
            case 0:
                drivers.append(texts.steps())
            case 1 if drivers:
                gone = drivers.pop(made.randrange(len(drivers)))
                gone.close()  # type: ignore[attr-defined]
            case 2:
                name = f"t{made.randrange(4 * STEP)}"
                table[name] = config(made.randrange(99))
                texts.alter(name)
            case 3 if table:
                name = made.choice(list(table))
                del table[name]
                texts.alter(name)
            case 4 if made.random() < 0.1:
                assert texts.pretty(HEAD) == whole(table)
            case _:
                for driver in drivers:
                    next(driver, None)
    assert texts.pretty(HEAD) == whole(table)


def test_an_entry_that_leaves_between_its_writing_and_the_sorting_is_gone() -> None:
    table = {f"t{number}": 1 for number in range(2 * STEP)}
    texts = EntryTexts(lambda: table, str, lambda key: (key,) if key in table else None, TOPIC_CAPACITY)
    steps = texts.steps()
    while len(texts._texts) < len(table):
        next(steps)
    del table["t5"]
    texts.alter("t5")
    for _ in steps:
        pass
    assert sorted(texts.brought_up()) == sorted(table)


def test_what_was_put_together_later_says_what_the_table_said_then() -> None:
    table: Table = {f"t{number}": config(number) for number in range(STEP)}
    texts = ConfigTexts(TOPIC_TABLE, lambda: table, TOPIC_CAPACITY)
    then, put_together = whole(table), texts.written(HEAD)
    table["t3"] = config(99)
    texts.alter("t3")
    assert texts.pretty(HEAD) == whole(table) != then == put_together()


@pytest.mark.parametrize("entries", [0, 1, STEP, 5 * STEP + 1])
def test_a_table_is_joined_in_steps_without_lines(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = {f"gr\u00f6\u00dfe\t{number}": config(number) for number in range(entries)}
    texts = ConfigTexts(TOPIC_TABLE, lambda: table, TOPIC_CAPACITY)
    whole_of_it, largest = compact_of(texts.pretty(HEAD, ["none"])), 0
    monkeypatch.setattr(config_texts, "compact_of", lambda text: noted(compact_of(text)))

    def noted(text: bytes) -> bytes:
        nonlocal largest
        largest = max(largest, text.count(b"topicName"))
        return text

    steps = texts.compact_in_steps(HEAD, ["none"])
    for _ in range(-(-entries // STEP)):
        next(steps)
        table["new"] = config(7)
        texts.alter("new")
    assert at_once(steps) == whole_of_it and largest == min(entries, STEP)
    assert at_once(texts.compact_in_steps(HEAD)) == compact_of(texts.pretty(HEAD))
