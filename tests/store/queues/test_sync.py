"""Which consume queue files go to disk, and how many entries the checkpoint may promise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from store.files import file_io, file_times
from store.files.file_system_sync import FileSystemSync
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue
from store.queues.sync import QueueSync, Totals, totals

FILE_BYTES = 20_000
HOUR_NS = 3_600_000_000_000


def grow(root: Path, name: str, count: int) -> None:
    queue = ConsumeQueue(root / name, FILE_BYTES)
    end = queue.max_offset
    made = np.zeros(count, CQ_DTYPE)
    made["physical_offset"] = 100 * (end + np.arange(count))
    made["size"] = 100
    queue.append(end, made.tobytes())
    path = queue.directory / f"{queue.bases()[-1]:020d}"
    later = path.stat().st_mtime_ns + 10_000_000  # the clock behind mtime may stand still between two writes
    os.utime(path, ns=(later, later))


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_times, "SETTLED_NS", -(1 << 62))  # at once, but where a test says otherwise


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    original = file_io.sync_data

    def note(fd: int) -> None:
        names.append("/".join(Path(os.readlink(f"/proc/self/fd/{fd}")).parts[-3:-1]))
        original(fd)

    monkeypatch.setattr(file_io, "sync_data", note)
    return names


def test_only_what_changed_is_synced(tmp_path: Path, synced: list[str]) -> None:
    sync = QueueSync(tmp_path, FILE_BYTES)
    grow(tmp_path, "a/0", 5)
    grow(tmp_path, "b/3", 5)
    assert sync.sync(0) == 2 and synced == ["a/0", "b/3"]
    assert sync.sync(0) == 0
    grow(tmp_path, "b/3", 1)
    assert sync.sync(0) == 1 and synced[2:] == ["b/3"]


def test_a_write_in_the_tick_of_the_sync_is_synced_too(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_times, "SETTLED_NS", HOUR_NS)
    sync = QueueSync(tmp_path, FILE_BYTES)
    grow(tmp_path, "a/0", 1)
    (path,) = (tmp_path / "a" / "0").iterdir()
    before = path.stat()
    assert sync.sync(0) == 1
    grow(tmp_path, "a/0", 1)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a file system has it whose tick is not over
    assert sync.sync(0) == 1 and synced == ["a/0", "a/0"]
    long_ago_ns = before.st_mtime_ns - 2 * HOUR_NS
    os.utime(path, ns=(long_ago_ns, long_ago_ns))
    assert (sync.sync(0), sync.sync(0)) == (1, 0), "once its time is settled it is known to be on disk"


def test_least_pages(tmp_path: Path, synced: list[str]) -> None:
    sync = QueueSync(tmp_path, FILE_BYTES)
    grow(tmp_path, "a/0", 409)  # 8180 bytes
    assert sync.sync(2) == 0
    grow(tmp_path, "a/0", 1)
    assert sync.sync(2) == 1
    grow(tmp_path, "a/0", 300)
    assert sync.sync(2) == 0
    assert sync.sync(0) == 1
    assert synced == ["a/0", "a/0"]


def test_a_failing_disk_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, "a/0", 5)
    sync = QueueSync(tmp_path, FILE_BYTES)

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(file_io, "sync_data", fail)
        with pytest.raises(OSError, match="Input/output"):
            sync.sync(0)
    assert sync.sync(0) == 1


def test_totals(tmp_path: Path) -> None:
    assert totals(tmp_path, FILE_BYTES, 1 << 40) == Totals(0, 0, None)
    grow(tmp_path, "a/0", 5)
    grow(tmp_path, "b/3", 2)
    assert totals(tmp_path, FILE_BYTES, 1 << 40) == Totals(2, 7, 400)
    assert totals(tmp_path, FILE_BYTES, 101) == Totals(2, 4, 100)
    assert totals(tmp_path, FILE_BYTES, 0) == Totals(0, 0, None)


def test_very_many_files_are_one_wait(tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.queues.sync.MANY_FILES", 3)
    sync = QueueSync(tmp_path, FILE_BYTES)
    for name in ("a/0", "b/1", "c/2"):
        grow(tmp_path, name, 5)
    assert sync.sync(0) == 3
    assert sync.sync(0) == 0
    grow(tmp_path, "b/1", 1)
    assert sync.sync(0) == 1 and synced[-1] == "b/1"
    sync.close()


def test_a_file_system_that_reports_an_error_has_each_file_asked(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose error it was, it does not say: those files that are sound are so."""

    def failed(self: FileSystemSync) -> None:
        assert not self.is_done

    monkeypatch.setattr("store.queues.sync.MANY_FILES", 1)
    monkeypatch.setattr(FileSystemSync, "_run", failed)
    sync = QueueSync(tmp_path, FILE_BYTES)
    grow(tmp_path, "a/0", 5)
    assert sync.sync(0) == 1 and synced == ["a/0"]
    sync.close()


def test_others_have_their_turn_before_every_queue(tmp_path: Path) -> None:
    turns: list[int] = []
    for number in range(5):
        grow(tmp_path, f"t/{number}", 1)
    sync = QueueSync(tmp_path, FILE_BYTES)
    sync.sync(0)
    sync.sync(0, lambda: turns.append(1))
    assert len(turns) == 5, "also where nothing is to be synced: looking at very many takes its time, too"
    totals(tmp_path, FILE_BYTES, 1 << 40, lambda: turns.append(1))
    assert len(turns) == 10
    sync.close()
