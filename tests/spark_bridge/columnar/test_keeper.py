"""The keeper of a log that grows: every sealed segment's side file, whatever is in its way for a while."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spark_bridge.columnar import keeper as keepers
from spark_bridge.columnar import side_file
from spark_bridge.columnar.keeper import LOOK_MS, RECHECK_MS, WAIT_MS, Keeper
from spark_bridge.columnar.side_file import COLUMN_NAMES, State
from store.errors import ForeignFile
from store.files import file_io
from store.message.record import SysFlag
from store.upkeep import leases, side_files
from tests.harness.logs import SmallLog
from tests.spark_bridge.columnar.side_files import damage_of

STEPS_MAX = 10_000


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    log = SmallLog(tmp_path / "store")
    grow(log, 3)
    return log


@pytest.fixture
def keeper(log: SmallLog) -> Keeper:
    return Keeper(log.root, log.files)


def grow(log: SmallLog, segments: int) -> None:
    """Until so many are sealed."""
    while log.end < segments * log.segment_bytes + 1:
        log.append(body=b"x" * 100, queue_id=log.end % 3)


def run(log: SmallLog, keeper: Keeper, now_ms: int) -> None:
    """All that is to do now."""
    assert any(not keeper.step(0, log.end, now_ms) for _ in range(STEPS_MAX))


def states(log: SmallLog) -> list[State]:
    bases = [base for base in log.files.base_offsets() if base + log.segment_bytes <= log.end]
    checked = [side_file.check(log.root, log.files.directory, base, log.segment_bytes) for base in bases]
    assert not [one for one in checked if one.state is State.VALID and damage_of(one, COLUMN_NAMES)]
    return [one.state for one in checked]


def test_the_keeper_builds_side_files_as_the_log_grows(log: SmallLog, keeper: Keeper) -> None:
    run(log, keeper, 0)
    assert (keeper.done_offset, keeper.built, states(log)) == (3 * log.segment_bytes, 3, [State.VALID] * 3)
    grow(log, 5)
    run(log, keeper, 1)
    assert (keeper.done_offset, keeper.built, states(log)) == (5 * log.segment_bytes, 5, [State.VALID] * 5)
    assert sorted(side_files.listed(log.root)) == [base * log.segment_bytes for base in range(5)]
    other = Keeper(log.root, log.files)
    run(log, other, 0)
    assert (other.done_offset, other.built) == (5 * log.segment_bytes, 0)


def test_a_segment_is_held_while_it_is_read(log: SmallLog, keeper: Keeper) -> None:
    held: set[int | None] = set()
    while keeper.step(0, log.end, 0):
        held.add(leases.held_from(log.root, 0))
    assert {0, 4096, 8192} <= held and leases.held_from(log.root, 0) is None


def test_a_segment_that_gets_no_side_file_is_counted_and_passed(log: SmallLog, keeper: Keeper) -> None:
    log.append(sys_flag=int(SysFlag.INNER_BATCH))
    grow(log, 5)
    run(log, keeper, 0)
    assert (keeper.done_offset, keeper.built, keeper.refused) == (5 * log.segment_bytes, 4, 1)
    run(log, keeper, LOOK_MS)
    assert keeper.refused == 1


def test_what_others_removed_or_damaged_comes_back(log: SmallLog, keeper: Keeper) -> None:
    run(log, keeper, 0)
    side_files.remove(log.root, 4096)
    side_files.data_path(log.root, 0).write_bytes(b"?")
    run(log, keeper, LOOK_MS - 1)
    assert keeper.built == 3
    run(log, keeper, LOOK_MS)
    assert (keeper.built, states(log)) == (4, [State.DAMAGED, State.VALID, State.VALID])
    run(log, keeper, RECHECK_MS)
    assert (keeper.built, states(log)) == (5, [State.VALID] * 3)


def test_side_files_go_with_their_segments(log: SmallLog, keeper: Keeper) -> None:
    run(log, keeper, 0)
    log.files.remove(0)
    run(log, keeper, LOOK_MS)
    assert sorted(side_files.listed(log.root)) == [4096, 8192]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_is_waited_for(
    number: int, log: SmallLog, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int, _data: bytes, _position: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_io, "write_at", full)
    run(log, keeper, 0)
    assert (keeper.waits_for, keeper.built) == (number, 0)
    assert not list(side_files.folder_of(log.root).iterdir())
    monkeypatch.undo()
    run(log, keeper, WAIT_MS - 1)
    assert (keeper.waits_for, keeper.built) == (number, 0)
    run(log, keeper, WAIT_MS)
    assert (keeper.waits_for, keeper.built) == (0, 3)


def test_a_failing_disk_is_reported(log: SmallLog, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_io, "sync_file", failing)
    with pytest.raises(OSError, match="Input/output error"):
        run(log, keeper, 0)
    assert leases.held_from(log.root, 0) is None


def test_another_builder_is_waited_for(log: SmallLog, keeper: Keeper) -> None:
    side_files.make_folder(log.root)
    fd = side_files.hold(log.root)
    run(log, keeper, 0)
    assert (keeper.waits_for, keeper.built) == (errno.EBUSY, 0)
    os.close(fd)
    run(log, keeper, WAIT_MS)
    assert (keeper.waits_for, keeper.built) == (0, 3)


def test_closing_the_keeper_removes_a_half_made_side_file(
    log: SmallLog, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bridge.columnar.segment_rows.STEP_ROWS", 3)
    assert keeper.step(0, log.end, 0) and keeper.step(0, log.end, 0)
    assert [path.name for path in side_files.folder_of(log.root).iterdir()] == [f"{0:020d}.parquet.creating"]
    keeper.close()
    assert not list(side_files.folder_of(log.root).iterdir())
    run(log, keeper, 0)
    assert keeper.built == 3


def test_a_folder_of_another_store_ends_the_keeper(log: SmallLog, keeper: Keeper, tmp_path: Path) -> None:
    side_files.folder_of(log.root).symlink_to(tmp_path)
    with pytest.raises(ForeignFile):
        run(log, keeper, 0)


def test_many_settled_segments_are_passed_in_steps(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "CHECKS_A_STEP", 1)
    keeper = Keeper(log.root, log.files)
    run(log, keeper, 0)
    steps = 0
    while keeper.step(0, log.end, LOOK_MS):
        steps += 1
    assert steps == 3
