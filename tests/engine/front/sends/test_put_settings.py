"""Which topics are special, as a front is told of topics: all, some, or that some are gone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.front.connections.tables import GROUPS, TOPICS, Tables
from engine.front.sends.put_settings import MULTI_TAG, PutSettings
from engine.settings.config import from_mapping
from store.tables import tables as broker_tables

NAMES = [f"t{n}" for n in range(12)]
KINDS: list[Any] = [
    None, {}, {"attributes": {"queue.type": "BatchCQ"}}, {"topicFilterType": MULTI_TAG},
    {"attributes": {"queue.type": "BatchCQ"}, "topicFilterType": MULTI_TAG},
]  # fmt: skip


def special(tables: Tables) -> tuple[set[str], set[str]]:
    topics = tables.topics.items()
    return (
        {name for name, topic in topics if topic.get("attributes")},
        {name for name, topic in topics if topic.get("topicFilterType") == MULTI_TAG},
    )


@pytest.mark.parametrize("seed", range(4))
def test_facts_of_changed_topics_equal_those_of_the_whole_table(tmp_path: Path, seed: int) -> None:
    dice, tables = random.Random(seed), Tables()
    facts = PutSettings(from_mapping({"storePathRootDir": tmp_path, "brokerName": "a"}), tables)
    for _ in range(300):
        entries = {name: dice.choice(KINDS) for name in dice.sample(NAMES, dice.randrange(4))}
        if dice.random() < 0.1:
            there = {name: kind for name, kind in entries.items() if kind is not None}
            tables.take({"table": TOPICS, "whole": True, "begins": True, "ends": True, "entries": there})
        else:
            tables.take({"table": dice.choice([TOPICS, TOPICS, GROUPS]), "entries": entries})
        if dice.random() < 0.6:
            now = facts.now()
            assert (now.batch_topics, now.multi_tag_topics) == special(tables)


def test_only_topics_that_changed_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, looked, batch_of = Tables(), list[int](), broker_tables.batch_topics
    facts = PutSettings(from_mapping({"storePathRootDir": tmp_path, "brokerName": "a"}), tables)
    entries: dict[str, Any] = {f"t{n}": {} for n in range(1000)}
    tables.take({"table": TOPICS, "whole": True, "begins": True, "ends": True, "entries": entries})

    def noted(value: dict[str, Any], path: str = "") -> frozenset[str]:
        looked.append(len(value[broker_tables.TOPIC_TABLE]))
        return batch_of(value, path)

    monkeypatch.setattr(broker_tables, "batch_topics", noted)
    facts.now()
    tables.take({"table": TOPICS, "entries": {"t7": KINDS[2], "t8": None}})
    assert facts.now() is facts.now() and facts.now().batch_topics == {"t7"}
    assert looked == [1000, 1]
