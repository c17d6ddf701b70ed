"""Snapshots: what was there at a moment, of this folder and this history only; what is damaged holds nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.clock import wall_ms
from store.epochs import Epoch
from store.errors import NoBroker, NotAStore, OwnFileDamaged
from store.files import file_io
from store.files.segment_files import SegmentFiles
from store.notes import epochs, summed_json
from store.notes.epochs import Epochs
from store.upkeep import snapshot_state, snapshots
from store.upkeep.snapshots import (
    KEEP_MS_MAX,
    Holds,
    Snapshot,
    SnapshotForeign,
    SnapshotGone,
    SnapshotRefused,
    SnapshotUnknown,
)
from tests.harness.dispatched import small_store
from tests.harness.logs import SmallLog

DAY_MS = 24 * 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


def taken(log: SmallLog, name: str = "nightly") -> Snapshot:
    return snapshot_state.take(log.root, name, DAY_MS)


def require(log: SmallLog, one: Snapshot, first: int = 0, end: int | None = None) -> None:
    snapshot_state.require(log.root, one)
    snapshot_state.require_log(log.root, one, log.files.directory, first, log.end if end is None else end)


def test_a_snapshot_has_the_ends_of_the_log_and_of_every_queue(log: SmallLog) -> None:
    one = taken(log)
    counts = Counter((record.topic, record.queue_id) for record in log.records)
    assert {(topic, queue): end for topic, ends in one.offsets.items() for queue, end in ends.items()} == counts
    assert (one.min_offset, one.end_offset, one.queues) == (0, log.end, len(counts))
    assert one == snapshots.read(log.root, "nightly") and list(snapshots.names(log.root)) == ["nightly"]
    require(log, one)
    require(log, one, end=log.end + 1000)
    snapshots.drop(log.root, "nightly")
    with pytest.raises(SnapshotUnknown, match="known: none"):
        snapshots.read(log.root, "nightly")
    with pytest.raises(SnapshotUnknown):
        snapshots.drop(log.root, "nightly")


def test_an_unknown_name_is_refused_with_the_nearest(log: SmallLog) -> None:
    taken(log)
    with pytest.raises(SnapshotUnknown, match=r"did you mean 'nightly'\? known: nightly"):
        snapshots.read(log.root, "nightyl")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "..", ".x", "-x", "x" * 65, "a b", "ä", "a\n", "a\0"])
def test_a_name_is_no_path(log: SmallLog, name: str) -> None:
    for refused in (lambda: snapshot_state.take(log.root, name, DAY_MS), lambda: snapshots.read(log.root, name)):
        with pytest.raises(SnapshotRefused, match="not a name for a snapshot"):
            refused()


@pytest.mark.parametrize("keep_ms", [0, -1, KEEP_MS_MAX + 1])
def test_no_snapshot_is_kept_for_ever(log: SmallLog, keep_ms: int) -> None:
    with pytest.raises(SnapshotRefused, match="at most 744 h"):
        snapshot_state.take(log.root, "x", keep_ms)


def test_a_name_is_given_once_and_there_are_so_many_and_expired_ones_make_room(
    log: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taken(log)
    with pytest.raises(SnapshotRefused, match="there is a snapshot of that name"):
        taken(log)
    monkeypatch.setattr(snapshot_state, "SNAPSHOTS_MAX", 2)
    taken(log, "second")
    with pytest.raises(SnapshotRefused, match="2 at most; drop some"):
        taken(log, "third")
    snapshots.write(log.root, replace(first, expires_ms=wall_ms() - 1))
    with pytest.raises(SnapshotGone, match="it has expired"):
        require(log, snapshots.read(log.root, "nightly"))
    taken(log, "third")
    assert sorted(snapshots.names(log.root)) == ["second", "third"]


def test_more_offsets_than_a_file_holds_are_refused(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "BYTES_MAX", 500)
    with pytest.raises(SnapshotRefused, match="6 queues do not fit into one snapshot"):
        taken(log)
    assert not list((log.root / "slipstream.snapshots").iterdir())


def test_a_folder_that_is_no_store_or_was_killed_has_no_snapshot(log: SmallLog, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        snapshot_state.take(tmp_path, "x", DAY_MS)
    log.directory.mark_running()
    with pytest.raises(NoBroker, match="was not left in order"):
        taken(log)


def test_a_copy_has_other_snapshots(log: SmallLog, tmp_path: Path) -> None:
    one = taken(log)
    copy = tmp_path / "copy"
    shutil.copytree(log.root, copy)
    with pytest.raises(SnapshotForeign, match=r"it was made for .*store, and this is another directory \(a copy\?\)"):
        snapshot_state.require(copy, snapshots.read(copy, "nightly"))
    held = Holds().look(copy, wall_ms())
    assert held.from_offset is None and "holds nothing here" in held.findings[0]
    moved = tmp_path / "moved"
    log.root.rename(moved)
    snapshot_state.require(moved, one)
    assert Holds().look(moved, wall_ms()).from_offset == 0, "it is the same folder"


def test_since_a_boot_a_device_may_have_another_number(log: SmallLog) -> None:
    one = taken(log)
    other = replace(one, place=one.place._replace(device=one.place.device + 1))
    with pytest.raises(SnapshotForeign):
        snapshot_state.require(log.root, other)
    snapshot_state.require(log.root, replace(other, boot="another"))


def test_a_log_that_was_cut_and_another_history_are_refused(log: SmallLog) -> None:
    one = taken(log)
    with pytest.raises(SnapshotGone, match="it was cut below the snapshot's end"):
        require(log, one, end=log.end - 1)
    epochs.write(log.root, Epochs(entries=(Epoch(1, log.end, "b:1", 1),)))
    require(log, one)
    epochs.write(log.root, Epochs(entries=(Epoch(1, log.end - 1, "b:1", 1),)))
    with pytest.raises(SnapshotForeign, match="another history"):
        require(log, one)
    epochs.path_of(log.root).unlink()
    log.flip(log.records[-1].offset + 90)
    with pytest.raises(SnapshotForeign, match="other bytes below offset"):
        require(log, one)
    require(log, one, first=log.end)  # nothing is left to compare: the reader says what is gone


def test_an_end_at_a_segments_end_is_compared_too(log: SmallLog) -> None:
    base = log.files.base_offsets()[1]
    files = SegmentFiles(log.files.directory, log.files.segment_bytes)
    one = replace(taken(log), end_offset=base)
    with files.open(0) as segment:
        tail = hashlib.sha256(segment.view[-snapshot_state.TAIL_BYTES :]).hexdigest()
    require(log, replace(one, tail=tail))
    with pytest.raises(SnapshotForeign):
        require(log, one)


def test_a_snapshot_holds_until_it_expires_whatever_the_clock_says(log: SmallLog) -> None:
    early, late = taken(log, "early"), taken(log, "late")
    snapshots.write(log.root, replace(early, min_offset=100, expires_ms=2000, created_ms=1000))
    snapshots.write(log.root, replace(late, min_offset=700, expires_ms=5000, created_ms=1000))
    holds = Holds()
    assert [holds.look(log.root, now).from_offset for now in (0, 1999, 2000, 4999, 5000)] == [100, 100, 700, 700, None]
    snapshots.write(log.root, replace(late, expires_ms=KEEP_MS_MAX + 5001))
    assert holds.look(log.root, 5000).from_offset is None, "a clock that was put back makes nothing last for ever"
    snapshots.drop(log.root, "late")
    assert holds.look(log.root, 1500) == (100, [])


DAMAGED = [b"", b"{", b"[]", b"null", b"7", b"\xff", b"[" * 100_000, b'{"version": 1}']


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_snapshot_holds_nothing_is_not_read_and_stays(log: SmallLog, content: bytes) -> None:
    taken(log)
    path = snapshots.path_of(log.root, "nightly")
    path.write_bytes(content)
    with pytest.raises(OwnFileDamaged, match=r"not a snapshot: .*; it holds nothing and is not read; remove it"):
        snapshots.read(log.root, "nightly")
    held = Holds().look(log.root, wall_ms())
    assert held.from_offset is None and str(path) in held.findings[0] and path.exists()


def test_a_flipped_digit_and_wrong_values_with_a_right_sum_are_reported(log: SmallLog) -> None:
    one = taken(log)
    path = snapshots.path_of(log.root, "nightly")
    content = path.read_bytes()
    path.write_bytes(content.replace(f'"end_offset": {one.end_offset}'.encode(), b'"end_offset": 1'))
    with pytest.raises(OwnFileDamaged, match="its checksum is wrong"):
        snapshots.read(log.root, "nightly")
    path.write_bytes(content)
    fields = summed_json.read(path) or {}
    wrongs: list[dict[str, Any]] = [
        {"end_offset": -1},
        {"min_offset": one.end_offset + 1},
        {"offsets": {"t": {"x": 1}}},
        {"offsets": {"t": 1}},
        {"offsets": {"t": {"0": True}}},
        {"offsets": {"t": {"0": -1}}},
        {"offsets": []},
        {"epoch": [1]},
        {"epoch": [1, "x"]},
        {"tail": "no"},
        {"place": None},
        {"place": {"path": "\0", "device": 1, "inode": 1}},
        {"name": "other"},
        {"created_ms": "now"},
        {"more": 1},
    ]
    for wrong in wrongs:
        summed_json.write(path, fields | wrong)
        with pytest.raises(OwnFileDamaged):
            snapshots.read(log.root, "nightly")


@settings(deadline=None)
@given(
    content=st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_content_breaks_a_look(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("store")
    (root / "slipstream.snapshots").mkdir()
    (root / "slipstream.snapshots" / "x.json").write_bytes(content)
    assert Holds().look(root, 0).from_offset is None


def test_foreign_files_beside_snapshots_hold_nothing(log: SmallLog, tmp_path: Path) -> None:
    folder = log.root / "slipstream.snapshots"
    folder.mkdir()
    (folder / "x.json.creating").write_bytes(b"{")
    (folder / "notes.txt").write_bytes(b"?")
    (folder / "dir.json").mkdir()
    (folder / "link.json").symlink_to(tmp_path / "elsewhere")
    held = Holds().look(log.root, wall_ms())
    assert held.from_offset is None and len(held.findings) == 2
    taken(log)
    assert Holds().look(log.root, wall_ms()).from_offset == 0


def test_a_link_in_the_folders_place_is_another_stores(log: SmallLog, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (log.root / "slipstream.snapshots").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotForeign, match="a symbolic link"):
        taken(log)
    assert "a symbolic link" in Holds().look(log.root, 0).findings[0]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_readers_of_the_store_can_read_a_snapshot_whatever_the_umask(log: SmallLog) -> None:
    before = os.umask(0o077)
    try:
        taken(log)
    finally:
        os.umask(before)
    path = snapshots.path_of(log.root, "nightly")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o640, 0o750)


def test_a_full_disk_leaves_nothing_behind(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int, _data: bytes, _position: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_io, "write_at", refuse)
        with pytest.raises(OSError, match="No space left"):
            taken(log)
    assert not list((log.root / "slipstream.snapshots").iterdir())
    taken(log)
