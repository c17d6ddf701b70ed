"""One owner for a store, the abort marker, the pointer to a running broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import NotAStore, StoreLocked
from store.files.directory import StoreDirectory
from tests.harness.children import exit_code_of

HOLD = """
import sys
from store.files.directory import StoreDirectory
directory = StoreDirectory(sys.argv[1])
directory.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def holder(root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent.parent,
    )
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


def test_a_second_owner_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(StoreLocked) as error:
            StoreDirectory(tmp_path).lock()
        assert error.value.owner_pid == process.pid
        assert str(process.pid) in str(error.value) and str(tmp_path / "lock") in str(error.value)
        process.kill()
        process.wait()
        directory = StoreDirectory(tmp_path)
        directory.lock()  # a killed owner owns nothing
        assert (tmp_path / "lock").read_bytes() == b"lock"
        directory.unlock()
    with holder(tmp_path) as process:
        process.kill()


def test_a_forked_child_does_not_own_its_parents_lock(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path)
    directory.lock()
    pid = os.fork()
    if pid == 0:
        try:
            StoreDirectory(tmp_path).lock()
        except StoreLocked as error:
            os._exit(0 if error.owner_pid == os.getppid() else 1)
        os._exit(2)
    assert exit_code_of(pid) == 0
    directory.unlock()


def test_the_abort_marker(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path)
    assert not directory.was_aborted()
    directory.mark_running()
    assert (tmp_path / "abort").read_bytes() == b"" and StoreDirectory(tmp_path).was_aborted()
    directory.mark_stopped()
    assert not directory.was_aborted()
    directory.mark_stopped()


def test_the_pointer(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path)
    assert directory.read_pointer() is None
    fields = {"pid": 1, "start_time": 2, "region_directory": "/x", "settings": {"brokerName": "größe"}}
    directory.write_pointer(fields)
    found = directory.read_pointer()
    assert found is not None and {name: found[name] for name in fields} == fields
    for content in (b"not json", b"[1]"):
        directory.pointer.write_bytes(content)
        with pytest.raises(NotAStore, match=r"slipstream\.run"):
            directory.read_pointer()
    directory.remove_pointer()
    directory.remove_pointer()
    assert directory.read_pointer() is None


def test_paths(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path / "store", tmp_path / "elsewhere")
    with pytest.raises(NotAStore, match="elsewhere"):
        directory.require()
    directory.create()
    directory.require()
    assert directory.commitlog == tmp_path / "elsewhere"
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["config", "consumequeue"]
    assert StoreDirectory(tmp_path).commitlog == tmp_path / "commitlog"
