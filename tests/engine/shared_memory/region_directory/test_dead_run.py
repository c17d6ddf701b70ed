"""What a killed broker left in shared memory: of this store's own broker in this boot, and whole, or not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.protocol.clients.locks import Lock
from engine.protocol.remoting.places import Place
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import LOCKS, NAMES, OFFSETS, ClientJournal, ClientTable
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.delay_table import DelayTable, DelayWord
from engine.shared_memory.region_directory import dead_run, regions
from ipc import waiting
from ipc.clock import monotonic_ms
from ipc.process import start_time
from ipc.region import HEADER_BYTES, WORD_BYTES
from store.files import pointer
from store.files.directory import StoreDirectory
from store.files.file_state import state_of
from store.files.pointer import COUNTERS_FILE
from store.names import CONFIG, CONSUMER_OFFSETS, DELAY_OFFSETS, POINTER

KEY, LOG_END, LEVELS = ("t", "g"), 4096, 3
DELAYS = {1: 5, 2: 0, 3: 70}
LOCK = ("g", Place("t", "b", 1), Lock("c", 123_456))


class Killed:
    """A store whose broker was killed, and that broker's regions."""

    def __init__(self, home: Path) -> None:
        self.root, memory = home / "store", home / "memory"
        memory.mkdir()
        for below in ("commitlog", CONFIG):
            (self.root / below).mkdir(parents=True)
        self.config: BrokerConfig = from_mapping({"storePathRootDir": self.root, "regionPath": memory})
        self.regions = regions.create(self.config)
        counters = BrokerCounters.create(self.regions / COUNTERS_FILE)
        waiting.publish(counters.max_physical_offset, LOG_END)
        waiting.publish(counters.heartbeats["clients"], monotonic_ms())
        fill(self.regions)
        self.fd = pointer.write(
            self.root, self.root / "commitlog", regions.pointer(self.config, self.regions, 0) | {"pid": 1 << 22}
        )

    def die(self) -> Killed:
        os.close(self.fd)
        return self

    def note(self, *paths: Path) -> None:
        """The broker wrote these last."""
        journal = ClientJournal.attach(self.regions)
        for path in paths:
            journal.note_file(path.name, state_of(path))
        journal.close()

    def read(self) -> dead_run.DeadRun | None:
        return dead_run.read(StoreDirectory(self.root))


def fill(directory: Path) -> None:
    client_table.create(directory)
    journal = ClientJournal.attach(directory)
    journal.fill({KEY: {0: 7, 1: 9}})
    journal.set_lock(*LOCK)
    journal.close()
    DelayTable.create(directory, LEVELS)
    table = DelayTable.attach(directory, writable=True)
    table.begin(DELAYS.values())
    table.close()


def test_a_new_run_begins_with_what_the_one_before_knew(tmp_path: Path) -> None:
    killed = Killed(tmp_path).die()
    run = killed.read()
    assert run is not None and run.clients is not None
    assert run == dead_run.DeadRun(LOG_END, dead_run.Clients({KEY: {0: 7, 1: 9}}, [LOCK]), DELAYS, killed.regions)
    new = tmp_path / "new"
    new.mkdir()
    client_table.create(new)
    DelayTable.create(new, LEVELS)
    dead_run.hand_on(run, LOG_END, new)
    clients, delays = ClientTable.attach(new), DelayTable.attach(new)
    assert clients.is_filled and clients.offsets() == {KEY: {0: 7, 1: 9}} and list(clients.locks()) == [LOCK]
    assert not delays.is_begun and {level: delays.taken(level) for level in DELAYS} == DELAYS
    clients.close()
    delays.close()


def test_nothing_is_handed_on_where_the_log_is_shorter_than_it_was(tmp_path: Path) -> None:
    run = Killed(tmp_path).die().read()
    assert run is not None
    client_table.create(tmp_path)
    dead_run.hand_on(run, LOG_END - 1, tmp_path)
    clients = ClientTable.attach(tmp_path)
    assert not clients.is_filled
    clients.close()


def test_a_living_broker_s_is_left_alone(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    fields = json.loads((killed.root / POINTER).read_text()) | {"pid": os.getpid(), "start_time": _began()}
    os.pwrite(killed.fd, json.dumps(fields, indent=1).encode().ljust(4096), 0)
    assert killed.read() is None
    killed.die()


def _began() -> int:
    began = start_time(os.getpid())
    assert began is not None
    return began


def test_a_copied_store_has_no_dead_run(tmp_path: Path) -> None:
    killed = Killed(tmp_path).die()
    copy = tmp_path / "copy"
    shutil.copytree(killed.root, copy)
    assert dead_run.read(StoreDirectory(copy)) is None
    assert killed.read() is not None


def says(killed: Killed, **changed: object) -> None:
    path = killed.root / POINTER
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_a_dead_run_of_another_boot_or_broker_is_not_believed(tmp_path: Path) -> None:
    killed = Killed(tmp_path).die()
    before = (killed.root / POINTER).read_text()
    says(killed, boot_id="another")
    assert killed.read() is None
    (tmp_path / "other").mkdir()
    other = Killed(tmp_path / "other").die()
    (killed.root / POINTER).write_text(before)
    says(killed, region_directory=str(other.regions))
    assert killed.read() is None
    says(killed, region_directory=str(other.regions), token=other.regions.name.rpartition("-")[2])
    assert killed.read() is None, "its owner names another store"
    (killed.root / POINTER).write_text(before)
    assert killed.read() is not None


def test_files_that_somebody_wrote_since_count(tmp_path: Path) -> None:
    killed = Killed(tmp_path).die()
    paths = [killed.root / CONFIG / name for name in (CONSUMER_OFFSETS, DELAY_OFFSETS)]
    for path in paths:
        path.write_text("{}")
    killed.note(*paths)
    whole = killed.read()
    assert whole is not None and whole.clients is not None and whole.delays == DELAYS, "as it died"
    for path in paths:
        other = path.with_suffix(".other")
        other.write_text("{}")
        os.utime(other, ns=(0, path.stat().st_mtime_ns))
        other.replace(path)
        run = killed.read()
        assert run is not None and run.clients is None
        assert run.delays == (DELAYS if path == paths[0] else {}), "the same bytes and time, and yet another file"
    for path in paths:
        path.unlink()
    run = killed.read()
    assert run is not None and run.clients is None and run.delays == {}, "somebody took them away"


def _word(name: str, at: int, value: int) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        with open(directory / name, "r+b") as file:
            file.seek(HEADER_BYTES + at * WORD_BYTES)
            file.write(np.int64(value).tobytes())

    return write


def _cut(name: str) -> Callable[[Path], None]:
    return lambda directory: os.truncate(directory / name, os.path.getsize(directory / name) // 2 + 3)


@pytest.mark.parametrize(
    "tear",
    [
        _word("clients", OFFSETS.used, -1), _word("clients", OFFSETS.used, 1 << 40),
        _word("clients", NAMES.used, 0), _word("clients", LOCKS.used, LOCKS.capacity + 1),
        _word("clients", NAMES.at, 1 << 50), _word("clients", OFFSETS.at + 1 * OFFSETS.words + 1, 1 << 45),
        _word("clients", LOCKS.at + 2, -5),
    ],
)  # fmt: skip
def test_torn_tables_of_clients_are_not_taken(tmp_path: Path, tear: Callable[[Path], None]) -> None:
    killed = Killed(tmp_path).die()
    whole = killed.read()
    assert whole is not None and whole.clients is not None
    tear(killed.regions)
    run = killed.read()
    assert run is not None and run.clients is None and run.delays == DELAYS


@pytest.mark.parametrize(
    "tear",
    [
        _cut("delay"),
        _word("delay", DelayWord.LEVELS, 1 << 40),
        _word("delay", DelayWord.LEVELS, -1),
        _word("delay", DelayWord.ROWS, 1),
        _word("delay", DelayWord.OFFSETS + 1, -8),
        _word("delay", DelayWord.IS_BEGUN, 0),
        lambda directory: (directory / "delay").unlink(),
    ],
)
def test_torn_tables_of_delays_are_not_taken(tmp_path: Path, tear: Callable[[Path], None]) -> None:
    killed = Killed(tmp_path).die()
    tear(killed.regions)
    run = killed.read()
    assert run is not None and run.clients is not None and run.delays == {}


@pytest.mark.parametrize("name", [COUNTERS_FILE, "clients"])
def test_a_board_or_a_table_that_is_cut_off_or_gone_says_nothing(tmp_path: Path, name: str) -> None:
    killed = Killed(tmp_path).die()
    _cut(name)(killed.regions)
    assert killed.read() is None
    (killed.regions / name).unlink()
    assert killed.read() is None
