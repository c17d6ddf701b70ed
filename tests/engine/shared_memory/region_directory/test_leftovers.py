"""Shared memory that killed brokers left is known from that of those which run, start, or run where we cannot look."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import leftovers, regions
from ipc import waiting
from ipc.clock import monotonic_ms
from ipc.process import start_time
from store.files import pointer


class Made:
    """A store, and the regions that a broker of it made; it runs as long as its pointer is held."""

    def __init__(self, home: Path, name: str = "store") -> None:
        self.root, self.memory = home / name, home / "memory"
        self.memory.mkdir(exist_ok=True)
        (self.root / "commitlog").mkdir(parents=True)
        self.config = from_mapping({"storePathRootDir": self.root, "regionPath": self.memory})
        self.regions = regions.create(self.config)
        self.counters = BrokerCounters.create(self.regions / pointer.COUNTERS_FILE)
        self.beat()
        pid = os.getpid()
        fields = regions.pointer(self.config, self.regions, 0) | {"pid": pid, "start_time": start_time(pid)}
        self.fd = pointer.write(self.root, self.root / "commitlog", fields)

    def beat(self) -> None:
        waiting.note(self.counters.heartbeats["clients"], monotonic_ms())

    def die(self) -> None:
        os.close(self.fd)

    @property
    def seen(self) -> list[leftovers.Leftover]:
        return leftovers.leftovers(self.memory)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "monotonic_ms", lambda: monotonic_ms() + leftovers.SILENT_MS + 1)


def test_a_running_broker_has_no_leftovers(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    much_later(monkeypatch)
    assert made.seen == []
    made.die()


def test_the_next_start_takes_the_leftovers_of_a_killed_broker(made: Made) -> None:
    made.die()
    (left,) = made.seen
    assert (left.directory, left.root, left.is_gone) == (made.regions, made.root, False)
    assert left.bytes >= (made.regions / pointer.COUNTERS_FILE).stat().st_blocks * leftovers.BLOCK_BYTES > 0


def test_nobody_takes_the_leftovers_of_a_store_that_is_gone(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.die()
    shutil.rmtree(made.root)
    assert made.seen == [], "its broker may run where the store is seen"
    much_later(monkeypatch)
    (left,) = made.seen
    assert left.is_gone
    made.beat()
    monkeypatch.undo()
    assert made.seen == []


def test_another_store_in_the_place_of_the_one_that_is_gone(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.die()
    made.root.rename(made.root.with_name("moved"))
    (made.root / "commitlog").mkdir(parents=True)
    much_later(monkeypatch)
    assert [left.is_gone for left in made.seen] == [True]


def test_a_start_at_work_is_not_taken_for_dead(made: Made) -> None:
    made.die()
    starting = regions.create(made.config)
    BrokerCounters.create(starting / pointer.COUNTERS_FILE).region.close()
    assert [left.directory for left in made.seen] == [made.regions]
    os.utime(starting, (0, 0))
    assert sorted(left.directory for left in made.seen) == sorted([made.regions, starting])


def test_a_directory_that_only_looks_like_a_region_is_not_listed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    much_later(monkeypatch)
    name = made.regions.name
    (made.memory / f"{name[:-1]}g").mkdir()
    (made.memory / f"{name[:-32]}{'0' * 32}").mkdir()  # no owner says its name
    shutil.copytree(made.regions, made.memory / f"{name[:-32]}{'1' * 32}")  # ... or another one's
    (made.memory / f"{name[:-32]}{'2' * 32}").symlink_to(made.regions)
    (made.memory / f"{name[:-32]}{'3' * 32}").write_bytes(b"")
    (made.memory / "slipstream-warm-x").mkdir()
    assert made.seen == []
    assert leftovers.leftovers(made.memory / "nowhere") == []
    made.die()
