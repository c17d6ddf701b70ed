"""Side files: the same rows as the log's, and nothing believed that is not of this log, byte for byte."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_bridge.columnar import comparison, rounds, side_file
from spark_bridge.columnar.side_file import COLUMN_NAMES, SideFile, State
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.split.splits import LogExtent, RangeSplit, Selection
from store.errors import ForeignFile
from store.files import file_io, small_files
from store.message.record import MAGIC_V2, NOT_FOR_QUEUES, SysFlag, blank
from store.notes import summed_json
from store.upkeep import side_files
from store.upkeep.side_files import SideFilesBusy
from tests.harness.bounded import run_bounded
from tests.harness.dying import DIED, act_and_die
from tests.harness.logs import SmallLog
from tests.spark_bridge.columnar.side_files import damage_of
from tests.spark_bridge.stores import GOLDEN_STORES, unpack_golden

FILE_CALLS = ("write_at", "sync_file", "rename", "sync_directory", "unlink")
SOURCE_NAMES = [name for name in COLUMN_NAMES if name != "size"]
HEAD_AT = 60  # of a record, inside its head
ADDRESSES = 4 << 30  # Arrow takes many, and hardly any memory


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """Four sealed segments and one that is written."""
    log = SmallLog(tmp_path / "store")
    numbers = iter(range(1000))
    while log.end < 4 * log.segment_bytes + 1000:
        number = next(numbers)
        texts = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} ä", "UNIQ_KEY": f"U{number}"} if number % 5 else {}
        log.append(f"topic{number % 2}", b"x" * (number % 200), queue_id=number % 3, properties=texts)
    return log


def bases(log: SmallLog) -> list[int]:
    return list(rounds.sealed_segments(log.root).bases)


def checked(log: SmallLog, base: int = 0) -> SideFile:
    return side_file.check(log.root, log.files.directory, base, log.segment_bytes)


def is_believed(log: SmallLog, base: int = 0) -> bool:
    """Whether a reader of all columns would take it."""
    one = checked(log, base)
    return one.state is State.VALID and not damage_of(one, COLUMN_NAMES)


def rows_of_source(root: Path | str, base: int, segment_bytes: int) -> list[dict[str, Any]]:
    """What Spark's source gives of a segment, brokers' own topics among it."""
    end = base + segment_bytes
    extent = LogExtent(f"{root}/commitlog", segment_bytes, base, end, end)
    split = RangeSplit(extent, base, base, base, end, Selection())
    return [row for batch in read_split(split, Asked.of(SOURCE_NAMES)) for row in batch.to_pylist()]


def rows_of_side_file(one: SideFile) -> list[dict[str, Any]]:
    table = pq.read_table(one.path, page_checksum_verification=True)
    assert table.column_names == list(COLUMN_NAMES)
    return [row for row in table.to_pylist() if not row["sysFlag"] & NOT_FOR_QUEUES]


def without_size(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SOURCE_NAMES} for row in rows]


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_rows_are_those_of_the_source(version: str, name: str, tmp_path: Path) -> None:
    root = Path(unpack_golden(version, name, tmp_path))
    if name == "features":  # one segment that RocketMQ was still writing: its rest made a blank record
        from spark_bridge.plan.inventory import find_extent

        end = find_extent(str(root)).max_physical_offset
        path = next((root / "commitlog").iterdir())
        with path.open("r+b") as file:
            file.seek(end)
            file.write(blank(path.stat().st_size - end))
    built = rounds.build_all(root)
    assert [one.base_offset for one in built] == list(rounds.sealed_segments(root).bases) and built
    states = {one.after.state for one in built}
    if name == "features" and States.has_batches(root):
        assert states == {State.REFUSED} and "inner batch" in built[0].after.reason
        return
    assert states == {State.VALID}
    for one in built:
        assert not damage_of(one.after, COLUMN_NAMES)
        segment_bytes = rounds.sealed_segments(root).files.segment_bytes
        rows = rows_of_side_file(one.after)
        assert without_size(rows) == rows_of_source(root, one.base_offset, segment_bytes)
        manifest = one.after.manifest
        assert manifest is not None and manifest.topics is not None
        assert manifest.rows - manifest.not_for_queues == len(rows) and {row["topic"] for row in rows} <= set(
            manifest.topics
        )
        assert manifest.end_offset == manifest.last_offset + rows[-1]["size"] or manifest.not_for_queues
        for _done in comparison.compare(rounds.sealed_segments(root).files, one.base_offset, one.after):
            continue
    assert not rounds.wanting(rounds.sealed_segments(root)) and not rounds.build_all(root)


class States:
    """What a store is known to hold."""

    @staticmethod
    def has_batches(root: Path) -> bool:
        """Whether a record is an inner batch, by RocketMQ's own words: 5.x has them in queues of their own."""
        return (root / "batchconsumequeue").is_dir() and any((root / "batchconsumequeue").iterdir())


def test_odd_records_are_rows_as_in_the_source(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    log.append("plain", properties=b"KEYS\x01a\x02KEYS\x01b\x02TAGS\x01\x02X")
    log.append("text", properties=b"KEYS\x01\xff\xfe\x02")
    log.append("prepared", sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    log.append("l" * 200, magic=MAGIC_V2)
    log.append("six", sys_flag=int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6))
    while log.end < log.segment_bytes:
        log.append("rest", b"y" * 100)
    (built,) = rounds.build_all(log.root)
    rows = rows_of_side_file(built.after)
    assert without_size(rows) == rows_of_source(log.root, 0, log.segment_bytes)
    assert built.after.manifest is not None and built.after.manifest.not_for_queues == 1
    assert [row["keys"] for row in rows[:2]] == ["b", "\ufffd\ufffd"]


def test_the_segment_that_is_written_has_no_side_file(log: SmallLog) -> None:
    assert bases(log) == [0, 4096, 8192, 12288]
    assert len(rounds.build_all(log.root)) == 4
    assert sorted(side_files.listed(log.root)) == bases(log)


def test_no_flipped_byte_is_believed(log: SmallLog) -> None:
    rounds.build_all(log.root)
    draw = random.Random(7)
    for path in (side_files.data_path(log.root, 0), side_files.manifest_path(log.root, 0)):
        content = path.read_bytes()
        for at in {0, len(content) - 1, *draw.sample(range(len(content)), 150)}:
            changed = bytearray(content)
            changed[at] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            assert not is_believed(log), f"byte {at} of {path.name}"
        path.write_bytes(content)
        assert is_believed(log)


def test_columns_are_judged_apart(log: SmallLog) -> None:
    rounds.build_all(log.root)
    one = checked(log)
    ((_name, at, length, _sum),) = one.data.chunks(["keys"])
    with one.path.open("r+b") as file:
        file.seek(at + length // 2)
        byte = file.read(1)
        file.seek(at + length // 2)
        file.write(bytes([byte[0] ^ 1]))
    assert checked(log).state is State.VALID  # no column was asked for
    assert damage_of(one, ["topic", "tags"]) == ""
    assert "column keys is damaged" in damage_of(one, ["topic", "keys"])
    with pytest.raises(comparison.Differs):
        list(comparison.compare(log.files, 0, one))


@pytest.mark.parametrize("suffix", side_files.SUFFIXES)
@pytest.mark.parametrize("what", ["cut", "empty", "gone", "longer", "folder", "link", "pipe"])
def test_a_broken_side_file_is_not_believed_and_built_again(suffix: str, what: str, log: SmallLog) -> None:
    rounds.build_all(log.root)
    path = side_files.folder_of(log.root) / f"{0:020d}{suffix}"
    content = path.read_bytes()
    path.unlink()
    if what in ("cut", "empty", "longer"):
        path.write_bytes({"cut": content[:-10], "empty": b"", "longer": content + b"\0"}[what])
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        other = path.with_name("elsewhere")
        other.write_bytes(content)
        path.symlink_to(other)
    elif what == "pipe":
        os.mkfifo(path)
    assert not is_believed(log)
    if what == "folder":
        path.rmdir()
    (built,) = rounds.build_all(log.root)
    assert built.base_offset == 0 and is_believed(log)


@pytest.mark.parametrize("path_of", [side_files.data_path, side_files.manifest_path])
def test_a_disk_that_fails_below_a_side_file_is_no_end_of_a_read(
    path_of: Callable[[Path, int], Path], log: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds.build_all(log.root)
    real = small_files.open_plain

    def failing(path: Path) -> int:
        if path == path_of(log.root, 0):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path)

    monkeypatch.setattr(small_files, "open_plain", failing)
    assert checked(log).state is State.DAMAGED and "Input/output error" in checked(log).reason
    assert checked(log, 4096).state is State.VALID


def test_a_side_file_of_another_segment_is_not_believed(log: SmallLog) -> None:
    rounds.build_all(log.root)
    for path_of in (side_files.data_path, side_files.manifest_path):
        shutil.copy(path_of(log.root, 4096), path_of(log.root, 0))
    assert checked(log).state is State.DAMAGED
    fields = summed_json.read(side_files.manifest_path(log.root, 0))
    assert fields is not None
    summed_json.write(side_files.manifest_path(log.root, 0), {**fields, "segment": f"{0:020d}"})
    assert not is_believed(log)  # its records lie elsewhere


def test_a_manifest_is_not_believed_what_no_manifest_says(log: SmallLog) -> None:
    rounds.build_all(log.root)
    path = side_files.manifest_path(log.root, 0)
    fields = summed_json.read(path)
    assert fields is not None
    data = fields["data"]
    for change in (
        {"format": 2},
        {"rows": -1},
        {"rows": True},
        {"rows": 1 << 70},
        {"samples": []},
        {"samples": [1]},
        {"samples": fields["samples"] * 9},
        {"topics": ["x"] * 1001},
        {"topics": [1]},
        {"topics": ["x" * 300]},
        {"first_offset": 4096},
        {"end_offset": 1 << 40},
        {"why_not": "\n"},
        {"why_not": "both"},
        {"data": None},
        {"data": []},
        {"data": {**data, "group_rows": []}},
        {"data": {**data, "group_rows": [1] * 5000}},
        {"data": {**data, "sums": {}}},
        {"data": {**data, "file_bytes": 1 << 62}},
        {"extra": 1},
        {"segment": 0},
        {"data": {**data, "chunk_bytes": {**data["chunk_bytes"], "topic": [-1]}}},
        {"data": {**data, "sha256": "x"}},
        {"not_for_queues": 10_000},
        {"segment_bytes": 10},
    ):
        summed_json.write(path, {**fields, **change})
        assert checked(log).state in (State.DAMAGED, State.STALE), change
    summed_json.write(path, fields)
    assert is_believed(log)


def test_a_log_that_was_cut_and_written_anew_makes_it_stale(log: SmallLog) -> None:
    rounds.build_all(log.root)
    last = [record for record in log.records if record.offset < 4096][-1]
    log.flip(last.offset + HEAD_AT)
    assert checked(log).state is State.STALE
    assert {4096, 8192, 12288} == {base for base in bases(log) if is_believed(log, base)}
    log.flip(last.offset + HEAD_AT)
    assert is_believed(log)


def test_a_segment_that_cannot_have_one_is_refused_once(log: SmallLog) -> None:
    log.append("batch", sys_flag=int(SysFlag.INNER_BATCH))
    while log.end < 5 * log.segment_bytes:
        log.append()
    log.flip(log.records[3].offset + 4)  # its magic number
    states = {one.base_offset: one.after for one in rounds.build_all(log.root)}
    assert states[0].state is State.REFUSED and "expected a record" in states[0].reason
    assert states[16384].state is State.REFUSED and "inner batch" in states[16384].reason
    assert not side_files.data_path(log.root, 0).exists()
    assert not rounds.wanting(rounds.sealed_segments(log.root))
    log.flip(log.records[3].offset + 4)  # mended
    assert [base for base, _ in rounds.wanting(rounds.sealed_segments(log.root))] == [0]
    (built,) = rounds.build_all(log.root)
    assert built.before.state is State.STALE and is_believed(log)


def test_side_files_are_valid_in_a_copy_and_removed_with_their_segments(log: SmallLog, tmp_path: Path) -> None:
    rounds.build_all(log.root)
    copy = SmallLog(tmp_path / "copy")
    shutil.copytree(log.root, copy.root, dirs_exist_ok=True)
    assert all(is_believed(copy, base) for base in bases(log))
    for base in (0, 4096):
        log.files.remove(base)
    rounds.build_all(log.root)
    assert sorted(side_files.listed(log.root)) == [8192, 12288]


def test_a_killed_builder_leaves_nothing_that_is_believed_and_not_true(log: SmallLog) -> None:
    rounds.build_all(log.root)
    last = [record for record in log.records if record.offset < 4096][-1]
    log.flip(last.offset + HEAD_AT)  # of another history: built anew, over what is there
    for deadly in range(1, 100):
        build = partial(act_and_die, partial(rounds.build_all, log.root), FILE_CALLS, deadly)
        code = run_bounded(build, memory_bytes=ADDRESSES).code  # Arrow begins threads
        if code != DIED:
            break
        if is_believed(log):
            list(comparison.compare(log.files, 0, checked(log)))
            log.flip(last.offset + HEAD_AT)
    assert code == 0 and deadly > 5
    rounds.build_all(log.root)
    assert is_believed(log)
    names = {path.name for path in side_files.folder_of(log.root).iterdir()}
    assert names == {f"{base:020d}{suffix}" for base in bases(log) for suffix in side_files.SUFFIXES}


@pytest.mark.parametrize("deadly", range(1, 8))
def test_a_full_disk_leaves_nothing_behind(deadly: int, log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    left, real = [deadly], file_io.write_at

    def full(fd: int, data: bytes | memoryview, position: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd, data, position)

    monkeypatch.setattr(file_io, "write_at", full)
    with pytest.raises(OSError, match="No space left") as caught:
        rounds.build_all(log.root)
    assert caught.value.errno == errno.ENOSPC
    assert not [path for path in side_files.folder_of(log.root).iterdir() if path.name.endswith(".creating")]
    monkeypatch.undo()
    rounds.build_all(log.root)
    assert all(is_believed(log, base) for base in bases(log))


def test_a_second_builder_is_refused_while_one_builds(log: SmallLog) -> None:
    fd = _held(log)
    with pytest.raises(SideFilesBusy):
        rounds.build_all(log.root)
    os.close(fd)
    assert len(rounds.build_all(log.root)) == 4


def _held(log: SmallLog) -> int:
    side_files.make_folder(log.root)
    return side_files.hold(log.root)


def test_a_folder_that_is_another_stores_is_left_alone(log: SmallLog, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    side_files.folder_of(log.root).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ForeignFile):
        rounds.build_all(log.root)
    assert checked(log).state is State.DAMAGED and not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_build_the_same_files_and_tell_of_them_in_order(log: SmallLog, threads: int) -> None:
    store, places = rounds.sealed_segments(log.root), []
    wanted, fd = rounds.wanting(store), _held(log)
    places = [one.base_offset for one in rounds.build_these(store, wanted, threads)]
    os.close(fd)
    assert places == sorted(places) and set(places) == set(bases(log))
    together = [checked(log, base).data for base in bases(log)]
    for base in bases(log):
        side_files.remove(log.root, base)
    assert [one.after.data for one in rounds.build_all(log.root)] == together


def test_a_build_that_is_stopped_leaves_no_thread_and_nothing_half_done(
    log: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_bridge.columnar import segment_rows

    monkeypatch.setattr(segment_rows, "STEP_ROWS", 2)
    store, before, fd = rounds.sealed_segments(log.root), set(threading.enumerate()), _held(log)
    building = rounds.build_these(store, rounds.wanting(store), 2)
    first = next(building)
    assert isinstance(first, rounds.Step) and first.base_offset == bases(log)[0]
    assert set(threading.enumerate()) - before
    building.close()
    assert set(threading.enumerate()) == before
    states = {checked(log, base).state for base in bases(log)}
    assert states <= {State.VALID, State.MISSING} and State.MISSING in states
    assert not [
        path for path in side_files.folder_of(log.root).iterdir() if path.name.endswith(file_io.CREATING_SUFFIX)
    ]
    os.close(fd)


def test_beside_a_broker_one_thread_builds(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(rounds, "cpus", lambda: 5)
    monkeypatch.setattr(rounds, "in_order", lambda _jobs, threads, *_, **__: asked.append(threads))
    store = rounds.sealed_segments(log.root)
    for is_live in (True, False):
        rounds.build_these(replace(store, is_live=is_live), rounds.wanting(store))
    assert asked == [1, 4], "no more threads than segments"


def test_row_groups_and_steps_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_bridge.columnar import parquet_writer, segment_rows

    monkeypatch.setattr(parquet_writer, "ROW_GROUP_ROWS_MAX", 7)
    monkeypatch.setattr(segment_rows, "STEP_ROWS", 10)
    log = SmallLog(tmp_path / "store")
    while log.end < log.segment_bytes:
        log.append(body=b"z" * 50)
    store = rounds.sealed_segments(log.root)
    fd = _held(log)
    steps = list(rounds.build_these(store, rounds.wanting(store)))
    os.close(fd)
    assert len([one for one in steps if isinstance(one, rounds.Step)]) > 2
    one = checked(log)
    assert set(one.data.group_rows[:-1]) == {7} and len(one.data.group_rows) > 2
    assert without_size(rows_of_side_file(one)) == rows_of_source(log.root, 0, log.segment_bytes)
    assert list(_sums_in_order(one)) == list(range(len(one.data.group_rows) * len(COLUMN_NAMES)))


def _sums_in_order(one: SideFile) -> Iterator[int]:
    """The chunks tile the file."""
    at = side_file.MAGIC_BYTES
    for number, (_name, begin, length, _sum) in enumerate(one.data.chunks(COLUMN_NAMES)):
        assert begin == at
        at += length
        yield number
    assert at + one.data.footer_bytes == one.data.file_bytes
