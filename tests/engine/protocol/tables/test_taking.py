"""What a slave does in one step with very many topics and groups of its master's."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from engine.protocol.tables.defaults import Identity, group_config
from engine.protocol.tables.metadata import Metadata
from store.compat import LINES, Line
from store.names import GROUPS, TOPICS
from store.tables import tables as broker_tables
from store.tables.steps import FREED_A_STEP, at_once, freed
from store.tables.tables import ENTRIES_A_STEP, GROUP_TABLE, TOPIC_TABLE, VERSION, topic_config

MANY = 10 * ENTRIES_A_STEP


class Counted(dict[str, Any]):
    """An entry of which is known when nobody holds it any more."""

    gone = 0

    def __del__(self) -> None:
        Counted.gone += 1


@pytest.fixture(autouse=True)
def nothing_of_others_goes() -> Iterator[None]:
    """What a test before held in a circle would go whenever the collector comes by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def configs_of(table: str, line: Line) -> dict[str, Counted]:
    if table == TOPIC_TABLE:
        return {f"t{n}": Counted(topic_config(f"t{n}", 4, 4, 6, line=line)) for n in range(MANY)}
    return {f"g{n}": Counted(group_config(f"g{n}", line)) for n in range(MANY)}


@pytest.mark.parametrize("name", [TOPICS, GROUPS])
@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_masters_table_is_looked_through_and_the_one_before_given_up_some_entries_a_step(
    compat: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LINES[compat]
    slave, looked, table = Metadata(Identity(line, "c", "a"), {}, 1), 0, TOPIC_TABLE if name == TOPICS else GROUP_TABLE
    mapping, defaults = broker_tables._mapping, [*slave.topics, *slave.groups]
    (slave.topics if name == TOPICS else slave.groups).update(configs_of(table, line))
    value: dict[str, Any] = {VERSION: {"counter": 7, "timestamp": 9, "stateVersion": 0}, table: configs_of(table, line)}
    changed = [*value[table]][::2]
    for entry in changed:
        value[table][entry]["more"] = 1

    def noted(value: Any, what: str, path: str) -> dict[Any, Any]:
        nonlocal looked
        looked += 1
        return mapping(value, what, path)

    monkeypatch.setattr(broker_tables, "_mapping", noted)
    for is_news in (True, False):
        taking: Generator[int, None, bool] = (slave.take_topics if name == TOPICS else slave.take_groups)(value)
        all_looked = all_gone = 0
        while True:
            looked = Counted.gone = 0
            try:
                next(taking)
            except StopIteration as end:
                assert end.value == is_news
                break
            finally:
                assert looked <= ENTRIES_A_STEP + 2 and Counted.gone <= FREED_A_STEP
                all_looked, all_gone = all_looked + looked, all_gone + Counted.gone
        assert all_looked >= MANY and all_gone == (len(changed) if is_news else 0)
        of_it = dict(slave.take_altered()).get("topics" if name == TOPICS else "groups", [])
        assert {*changed} <= {*of_it} if is_news else not of_it, "fronts are to hear of them"
        assert {*of_it} <= {*changed, *defaults}, "and of no others"
        assert value[table].keys() == (slave.topics if name == TOPICS else slave.groups).keys()


def test_what_is_given_up_is_gone_step_by_step() -> None:
    held = [Counted() for _ in range(5 * FREED_A_STEP + 1)]
    Counted.gone, gone = 0, list[int]()
    for _ in freed(held):
        gone.append(Counted.gone)
    assert gone == [*range(FREED_A_STEP, 5 * FREED_A_STEP + 1, FREED_A_STEP), 5 * FREED_A_STEP + 1] and not held
    assert at_once(freed([])) is None  # type: ignore[func-returns-value]
