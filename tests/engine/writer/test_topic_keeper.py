"""Topics that come while topics.json is large: nobody who takes messages reads or writes it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from engine.settings.config import BrokerConfig, from_mapping
from engine.writer import topic_keeper
from engine.writer.topic_keeper import TopicKeeper
from store.compat import line_of
from store.files.directory import StoreDirectory
from store.names import TOPICS
from store.tables import json_files, tables
from store.tables.tables import DataVersion

LONG_SECONDS = 60
NOW_MS = 1_700_000_000_000


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return from_mapping({"brokerIP1": "127.0.0.1", "storePathRootDir": tmp_path})


def file_of(config: BrokerConfig) -> Path:
    return StoreDirectory(config.store_path_root_dir).config / TOPICS


def administrator_adds(config: BrokerConfig, topic: str, counter: int) -> None:
    path = file_of(config)
    with json_files.exclusive(path.parent):
        table = tables.topics(json_files.read(path))
        table[topic] = tables.topic_config(topic, 4, 4, 6, line=line_of("4.9"))
        json_files.write(path, tables.topics_value(table, DataVersion(counter, NOW_MS)))


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that read the file, which is said to take long."""
    monkeypatch.setattr(topic_keeper, "QUICK_SECONDS", 0.0)
    read, found = json_files.read, set[int]()

    def watched(path: Path) -> dict[Any, Any]:
        if path.name == TOPICS:
            found.add(threading.get_ident())
        return read(path)

    monkeypatch.setattr(json_files, "read", watched)
    return found


def test_who_takes_messages_does_not_read_what_an_administrator_wrote(config: BrokerConfig, readers: set[int]) -> None:
    keeper = TopicKeeper(config)
    keeper.note([("first", 0)])
    assert keeper.finish(NOW_MS, LONG_SECONDS)
    administrator_adds(config, "by-hand", 10)
    readers.clear()
    keeper.note([("second", 0)], in_use=True)
    keeper.note([("by-hand", 7)], in_use=True)
    keeper.save_if_due()
    keeper.note([("third", 0)], in_use=True)
    while not keeper.finish(NOW_MS, LONG_SECONDS):
        pass
    assert readers and threading.get_ident() not in readers
    table = tables.topics(json_files.read(file_of(config)))
    assert set(table) == {"first", "second", "third", "by-hand"}
    assert table["by-hand"]["readQueueNums"] == 8


def test_a_file_that_is_damaged_meanwhile_stops_nobody(config: BrokerConfig, readers: set[int]) -> None:
    keeper = TopicKeeper(config)
    keeper.note([("first", 0)])
    assert keeper.finish(NOW_MS, LONG_SECONDS)
    readers.clear()
    for path in (file_of(config), file_of(config).with_name(TOPICS + json_files.BACKUP_SUFFIX)):
        path.write_bytes(b"[")
    keeper.note([("second", 0)], in_use=True)
    while not keeper.finish(NOW_MS, LONG_SECONDS):
        pass
    keeper.note([("third", 0)], in_use=True)
    assert keeper.finish(NOW_MS, LONG_SECONDS) and file_of(config).read_bytes() == b"["
