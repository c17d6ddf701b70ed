"""The audit: one JSON line an event, two files at most, never in the way of the broker; and what the watch notices."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from store.files import file_io, file_times
from store.files.directory import StoreDirectory
from store.upkeep.audit import INDEX, QUEUE, SEGMENT, Audit, Change, FileWatch

NOW = 1_700_000_000_123


def test_a_line_says_what_where_when_and_why(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.write(NOW, "delete", SEGMENT, tmp_path / "commitlog" / "0", "old", forced=True)
    audit.write(NOW, "create", SEGMENT, Path("/elsewhere/0"), "é\udcff")
    first, second = (json.loads(line) for line in (tmp_path / "slipstream.audit.jsonl").read_text().splitlines())
    assert first["at"].endswith(("+00:00", first["at"][-6:])) and ".123" in first["at"]
    del first["at"]
    assert first == {
        "at_ms": NOW, "event": "delete", "kind": "segment", "path": "commitlog/0", "reason": "old", "forced": True,
    }  # fmt: skip
    assert second["path"] == "/elsewhere/0"


def test_the_audit_keeps_two_files_at_most(tmp_path: Path) -> None:
    audit = Audit(tmp_path, bytes_max=2000)
    for number in range(100):
        audit.write(NOW, "create", QUEUE, None, f"number {number}")
    paths = sorted(path.name for path in tmp_path.iterdir())
    assert paths == ["slipstream.audit.jsonl", "slipstream.audit.jsonl.1"]
    lines = [json.loads(line) for name in reversed(paths) for line in (tmp_path / name).read_text().splitlines()]
    numbers = [int(line["reason"].split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 100))
    assert all((tmp_path / name).stat().st_size <= 2000 for name in paths)


def test_a_full_disk_sends_the_line_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file_io, "append_to", full)
    Audit(tmp_path).write(NOW, "delete", SEGMENT, tmp_path / "x", "old")
    assert "No space left" in caplog.text and '"reason": "old"' in caplog.text


@pytest.fixture
def directory(tmp_path: Path) -> StoreDirectory:
    made = StoreDirectory(tmp_path)
    made.create()
    return made


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_times, "SETTLED_NS", 1 << 62)  # never: tests are faster than a file system's clock


def looked(watch: FileWatch) -> list[Change]:
    return [change for found in watch.look() for change in found]


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_the_watch_tells_what_came_and_what_it_follows(directory: StoreDirectory) -> None:
    watch = FileWatch(directory)
    queue = directory.consumequeue / "topic" / "0"
    old = touch(queue / f"{0:020d}")
    assert looked(watch) == [Change(QUEUE, old, True)]
    new, index = touch(queue / f"{200:020d}"), touch(directory.index / "20260101000000000")
    touch(queue / "notes.txt")
    touch(queue / f"{400:020d}.creating")
    assert looked(watch) == [Change(QUEUE, new, True, old), Change(INDEX, index, True)]
    assert looked(watch) == []
    segment = touch(directory.commitlog / f"{0:020d}")
    assert watch.look_at_segments() == [Change(SEGMENT, segment, True)]
    assert watch.counts() == {"segment": 1, "queue": 2, "index": 1}


def test_the_watch_passes_links_to_themselves(directory: StoreDirectory) -> None:
    watch = FileWatch(directory)
    directory.consumequeue.mkdir(parents=True, exist_ok=True)
    (directory.consumequeue / "loop").symlink_to("loop")
    old = touch(directory.consumequeue / "topic" / "0" / f"{0:020d}")
    assert looked(watch) == [Change(QUEUE, old, True)]


def test_the_watch_tells_what_somebody_else_removed(directory: StoreDirectory) -> None:
    watch = FileWatch(directory)
    queue = directory.consumequeue / "topic" / "0"
    paths = [touch(queue / f"{base:020d}") for base in (0, 200, 400)]
    looked(watch)
    watch.forget(paths[0])
    paths[0].unlink()
    paths[1].unlink()
    assert looked(watch) == [Change(QUEUE, paths[1], False)]
    paths[2].unlink()
    queue.rmdir()
    assert looked(watch) == [Change(QUEUE, paths[2], False)]
    assert looked(watch) == []


def test_a_directory_that_has_not_changed_is_not_listed(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_times, "SETTLED_NS", -(1 << 62))
    watch = FileWatch(directory)
    touch(directory.commitlog / f"{0:020d}")
    watch.look_at_segments()
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _path: pytest.fail("listed again"))
        assert watch.look_at_segments() == []
    os.utime(directory.commitlog, ns=(1, 1))
    touch(directory.commitlog / f"{200:020d}")
    assert len(watch.look_at_segments()) == 1
