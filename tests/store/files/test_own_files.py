"""A copy made of links shares the original's files: what is written in place becomes the copy's own first."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from store.files.directory import StoreDirectory
from store.files.own_files import make_own, make_rest_own, make_tail_own
from store.files.segment_files import SegmentFiles
from store.reading.log_reader import open_log
from store.recovery.recovery import recover
from store.repair.repair import Repair
from tests.harness.dispatched import small_store
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog, contents

LINKS = pytest.mark.parametrize("how", ["-al", "-as"])


def copied(root: Path, how: str) -> Path:
    copy = root.with_name("copy")
    subprocess.run(["cp", how, str(root), str(copy)], check=True)
    return copy


@LINKS
def test_recovery_of_the_copy_cuts_nothing_of_the_original(tmp_path: Path, how: str) -> None:
    log = SmallLog(tmp_path / "store")
    log.fill(9)
    end = log.end
    log.append_raw(b"\x00\x00\x01\x00torn")
    log.directory.mark_running()
    copy = StoreDirectory(copied(log.root, how))
    before = contents(log.root)
    make_rest_own(copy)
    assert recover(copy, SEGMENT_BYTES, QUEUE_FILE_BYTES).max_physical_offset == end
    make_tail_own(copy, end)
    assert contents(log.root) == before
    assert b"torn" in b"".join(before.values()) and b"torn" not in b"".join(contents(copy.root).values())


@LINKS
def test_repair_of_the_copy_writes_nothing_into_the_original(tmp_path: Path, how: str) -> None:
    log = small_store(tmp_path / "store")
    replica = tmp_path / "replica"
    shutil.copytree(log.root, replica)
    log.flip(log.records[3].offset + 90)
    copy = StoreDirectory(copied(log.root, how))
    before = contents(log.root)
    repairing = Repair(copy, SegmentFiles(copy.commitlog, SEGMENT_BYTES), open_log(replica))
    assert [outcome.refused for outcome in repairing.run(dry_run=False, on_progress=lambda *_: None)] == [""]
    assert contents(log.root) == before
    first = "commitlog/" + "0" * 20
    assert (copy.root / first).read_bytes() == (replica / first).read_bytes() != before[first]


@LINKS
def test_what_will_be_written_is_the_copys_own_and_the_rest_stays_shared(tmp_path: Path, how: str) -> None:
    log = small_store(tmp_path / "store")
    (log.root / "slipstream.audit.jsonl").write_text("{}\n")
    copy = StoreDirectory(copied(log.root, how))
    make_rest_own(copy)
    make_tail_own(copy, log.end)
    files = [path for path in copy.root.rglob("*") if path.is_file()]
    shared = {path for path in files if path.is_symlink() or path.stat().st_nlink > 1}
    sealed = {path for path in copy.commitlog.iterdir() if int(path.name) + SEGMENT_BYTES <= log.end}
    assert sealed and shared == sealed
    assert {str(path.relative_to(copy.root)): path.read_bytes() for path in files} == contents(log.root)


def test_a_copy_is_like_the_file(tmp_path: Path) -> None:
    path, other = tmp_path / "0", tmp_path / "1"
    with path.open("wb") as file:
        file.write(b"beginning")
        file.seek(1 << 20)
        file.write(b"end")
    path.chmod(0o640)
    os.utime(path, ns=(10**18, 10**18 + 5))
    os.link(path, other)
    assert make_own(other)
    before, after = path.stat(), other.stat()
    assert before.st_ino != after.st_ino and path.read_bytes() == other.read_bytes()
    assert (before.st_mode, before.st_mtime_ns, before.st_nlink) == (after.st_mode, after.st_mtime_ns, 1)
    assert after.st_blocks * 512 < 1 << 20, "holes stay holes"
    assert not make_own(other) and not make_own(path)
    assert sorted(child.name for child in tmp_path.iterdir()) == ["0", "1"]


def test_a_copy_that_cannot_be_made_leaves_the_name_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "0", tmp_path / "1"
    path.write_bytes(b"content")
    os.link(path, other)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("store.files.file_io.write_at", full)
    with pytest.raises(OSError, match="No space"):
        make_own(other)
    assert other.stat().st_ino == path.stat().st_ino
    assert sorted(child.name for child in tmp_path.iterdir()) == ["0", "1"]
