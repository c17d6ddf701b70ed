"""Every directory that is written has one owner, by whatever root, link or setting others come to it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from store.errors import ForeignFile, StoreLocked
from store.files import directory_locks
from store.files.directory import StoreDirectory
from store.files.directory_locks import DirectoryLocks
from store.repair.rebuild import locked
from tests.harness.children import exit_code_of

ROOT = Path(__file__).parent.parent.parent.parent
HOLD = """
import sys
from store.files.directory import StoreDirectory
directory = StoreDirectory(*sys.argv[1:])
directory.create()
directory.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def holder(*paths: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


def refused(directory: StoreDirectory, shared: Path, pid: int) -> None:
    directory.create()
    for own in (directory.lock, locked(directory).__enter__):
        with pytest.raises(StoreLocked) as error:
            own()
        assert error.value.owner_pid == pid and str(shared) in str(error.value)


def test_a_commit_log_that_lies_apart_has_one_owner(tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    (tmp_path / "link").symlink_to(apart)
    with holder(tmp_path / "one", apart) as process:
        refused(StoreDirectory(tmp_path / "two", apart), apart, process.pid)
        refused(StoreDirectory(tmp_path / "two", tmp_path / "link"), tmp_path / "link", process.pid)
        refused(StoreDirectory(tmp_path / "two", tmp_path / "one" / ".." / "apart"), apart.parent, process.pid)
        process.kill()
    directory = StoreDirectory(tmp_path / "two", apart)
    directory.lock()
    directory.unlock()
    directory.lock()
    directory.unlock()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "consumequeue_ext"])
def test_a_directory_that_is_a_link_has_one_owner(tmp_path: Path, name: str) -> None:
    for root in ("one", "two"):
        (tmp_path / root).mkdir()
        (tmp_path / root / name).symlink_to(tmp_path / "shared")
    (tmp_path / "shared").mkdir()
    with holder(tmp_path / "one") as process:
        refused(StoreDirectory(tmp_path / "two"), tmp_path / "two" / name, process.pid)
        process.kill()


def test_one_directory_by_two_names_in_one_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "index").symlink_to(tmp_path / "store")
    directory = StoreDirectory(tmp_path / "store", tmp_path / "store")
    directory.create()
    directory.lock()
    directory.unlock()


def test_a_lock_that_is_a_link_is_another_stores(tmp_path: Path) -> None:
    for root in ("one", "two"):
        StoreDirectory(tmp_path / root).create()
    (tmp_path / "two" / "lock").symlink_to(tmp_path / "one" / "lock")
    with pytest.raises(ForeignFile, match="lock"):
        StoreDirectory(tmp_path / "two").lock()
    assert not (tmp_path / "one" / "lock").exists()


def test_the_children_of_a_dead_owner_own_it_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed broker's processes may write a moment longer; who comes next waits for their end."""
    read_end, write_end = os.pipe()
    told, telling = os.pipe()
    parent = os.fork()
    if parent == 0:
        DirectoryLocks().take([tmp_path])
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        os.write(telling, b"%d\n" % child)
        os._exit(0)
    exit_code_of(parent)
    child = int(os.read(told, 20))
    monkeypatch.setattr(directory_locks, "WAIT_SECONDS", 0.0)
    with pytest.raises(StoreLocked):
        DirectoryLocks().take([tmp_path])
    monkeypatch.setattr(directory_locks, "WAIT_SECONDS", 60.0)
    waited: list[int] = []

    def end_it(_seconds: float) -> None:
        waited.append(1)
        with suppress(ProcessLookupError):  # it is asked for once more while it ends
            os.kill(child, signal.SIGKILL)

    monkeypatch.setattr(time, "sleep", end_it)
    locks = DirectoryLocks()
    locks.take([tmp_path])
    assert waited
    locks.release()
    for fd in (read_end, write_end, told, telling):
        os.close(fd)


def test_a_file_system_without_locks_on_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_fd: int, _kind: int) -> None:
        raise OSError(directory_locks.UNSUPPORTED[0], "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    locks = DirectoryLocks()
    locks.take([tmp_path])
    locks.release()
