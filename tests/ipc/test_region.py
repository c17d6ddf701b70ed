"""A region is what it says, whole, and nobody else's."""

import os
from pathlib import Path

import pytest

from ipc.errors import RegionMismatch, RegionMissing
from ipc.process import is_alive, start_time
from ipc.region import HEADER_BYTES, HeaderWord, Region
from tests.harness.children import exit_code_of


def test_what_one_process_writes_another_reads(tmp_path: Path) -> None:
    region = Region.create(tmp_path / "r", 4096, kind="test", layout=3)
    child = os.fork()
    if child == 0:
        other = Region.attach(tmp_path / "r", kind="test", layout=3, writable=True)
        other.words[7] = 42
        os._exit(0)
    exit_code_of(child)
    assert region.words[7] == 42
    made_by = region.header[[HeaderWord.CREATOR_PID, HeaderWord.CREATOR_START]]
    assert made_by.tolist() == [os.getpid(), start_time(os.getpid())]


def test_a_region_is_private_and_all_its_blocks_are_reserved(tmp_path: Path) -> None:
    Region.create(tmp_path / "r", 1 << 20, kind="test", layout=1).close()
    found = (tmp_path / "r").stat()
    assert found.st_mode & 0o777 == 0o640
    assert found.st_blocks * 512 >= HEADER_BYTES + (1 << 20)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    Region.create(tmp_path / "r", 64, kind="test", layout=1).close()
    region = Region.attach(tmp_path / "r", kind="test", layout=1)
    with pytest.raises(ValueError, match="read-only"):
        region.words[0] = 1


@pytest.mark.parametrize(
    ("why", "change", "message"),
    [
        ("another kind", {"kind": "ring"}, "wanted"),
        ("another layout", {"layout": 2}, "layout 1.1 of its region 'test' found"),
    ],
)
def test_another_region_is_refused(tmp_path: Path, why: str, change: dict[str, object], message: str) -> None:
    Region.create(tmp_path / "r", 64, kind="test", layout=1).close()
    asked: dict[str, object] = {"kind": "test", "layout": 1, **change}
    with pytest.raises(RegionMismatch, match=message):
        Region.attach(tmp_path / "r", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * 8192])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(RegionMismatch):
        Region.attach(tmp_path / "r", kind="test", layout=1)


def test_a_shortened_region_is_refused(tmp_path: Path) -> None:
    Region.create(tmp_path / "r", 8192, kind="test", layout=1).close()
    os.truncate(tmp_path / "r", HEADER_BYTES + 100)
    with pytest.raises(RegionMismatch, match="8192 bytes promised, 100 found"):
        Region.attach(tmp_path / "r", kind="test", layout=1)


def test_a_missing_region_says_so(tmp_path: Path) -> None:
    with pytest.raises(RegionMissing, match="no such region"):
        Region.attach(tmp_path / "r", kind="test", layout=1)


def test_a_zombie_and_a_stranger_are_not_alive() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    started = start_time(os.getpid())
    assert started is not None
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert start_time(child) is None  # a zombie
    exit_code_of(child)
    assert start_time(child) is None
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started + 1)
