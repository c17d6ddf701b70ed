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
from store.files import file_io
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
    load, found = json_files.load, set[int]()

    def watched(path: Path, **how: Any) -> json_files.Loaded:
        if path.name == TOPICS:
            found.add(threading.get_ident())
        return load(path, **how)

    monkeypatch.setattr(json_files, "load", watched)
    return found


def test_the_writers_thread_does_not_read_what_an_administrator_wrote(config: BrokerConfig, readers: set[int]) -> None:
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
    while not keeper.finish(NOW_MS, LONG_SECONDS):
        pass
    assert set(tables.topics(json_files.read(file_of(config)))) == {"second", "third"}
    assert file_of(config).with_name(f"{TOPICS}.aside").read_bytes() == b"["


@pytest.mark.parametrize("is_damaged", [False, True], ids=["while written", "while read"])
def test_a_failure_is_logged_once_and_tried_again(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_damaged: bool
) -> None:
    """A full disk, say: no topic is forgotten over it."""
    monkeypatch.setattr(topic_keeper, "AGAIN_SECONDS", 0.0)
    if is_damaged:
        file_of(config).parent.mkdir(parents=True)
        file_of(config).write_bytes(b"damaged")
    keeper = TopicKeeper(config)
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "replace_file", lambda *_args: (_ for _ in ()).throw(OSError(28, "no space")))
        for number in range(3):
            keeper.note([(f"t{number}", 0)], in_use=True)
            keeper.save(NOW_MS)
    assert sum("cannot be written" in line for line in caplog.messages) == 1
    while not keeper.finish(NOW_MS, LONG_SECONDS) or not file_of(config).exists():
        pass
    assert set(tables.topics(json_files.read(file_of(config)))) == {"t0", "t1", "t2"}
