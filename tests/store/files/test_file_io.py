"""Files that are there whole or not at all, and a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from store.files import file_io, mapped_files
from store.files.segment_files import SegmentFiles

FULL_TMPFS = """
import errno, os, sys
from pathlib import Path
from store.files.segment_files import SegmentFiles
root = Path(sys.argv[1])
files = SegmentFiles(root / "commitlog", 1 << 20)
files.reserve(0)
try:
    files.reserve(1 << 20)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
else:
    raise AssertionError("a second MiB fits into a tmpfs of 1.5 MiB")
assert files.base_offsets() == [0]
assert [path.name for path in files.directory.iterdir()] == ["0" * 20]
with files.open(0, writable=True) as segment:
    segment.array[:] = 7  # all blocks are ours: no SIGBUS
files.remove(0)
files.reserve(1 << 20)
print("as expected")
"""


def test_a_reserved_file_is_whole_zero_and_has_its_blocks(unnamed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file_io.create_reserved(path, 1 << 20)
    assert path.read_bytes() == bytes(1 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20
    path.write_bytes(b"kept")
    file_io.create_reserved(path, 1 << 20)
    assert path.read_bytes() == b"kept"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def unnamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system has files without names; where it has not, they are made under another one."""
    if not request.param:
        system_open = os.open

        def without(path: Path, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return system_open(path, flags, mode)

        monkeypatch.setattr(os, "open", without)
    return bool(request.param)


@pytest.mark.parametrize("call", ["reserve", "sync_file", "last"])
def test_a_failing_step_leaves_nothing_behind(
    unnamed: bool, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    last = "give_name" if unnamed else "rename"
    monkeypatch.setattr(file_io, last if call == "last" else call, full)
    with pytest.raises(OSError, match="No space left"):
        file_io.create_reserved(tmp_path / "file", 4096)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_making_has_no_name_that_rocketmq_would_stumble_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(file_io, "sync_file", lambda _fd: seen.append(list(tmp_path.iterdir())))
    file_io.create_reserved(tmp_path / "file", 4096)
    assert seen == [[]]
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_replacing_a_file_keeps_the_old_one_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    file_io.replace_file(path, b"old")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(file_io, "sync_file", full)
        with pytest.raises(OSError, match="No space left"):
            file_io.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    file_io.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_populating_pages_keeps_their_contents(tmp_path: Path) -> None:
    with SegmentFiles(tmp_path, 1 << 20).create(0) as segment:
        segment.array[5000:5010] = 9
        assert mapped_files.populate_write(segment.array, 5000, 100_000) in (True, False)
        assert mapped_files.populate_write(segment.view, (1 << 20) - 10, 100_000) in (True, False)  # cut at the end
        assert segment.array[5000:5010].tolist() == [9] * 10
        assert int(segment.array.sum()) == 90


def test_data_ranges_cover_all_that_is_not_zero(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file_io.create_sparse(path, 1 << 20)
    fd = file_io.open_file(path, writable=True)
    try:
        assert list(file_io.data_ranges(fd, 0, 1 << 20)) == []
        file_io.write_at(fd, b"x" * 10, 300_000)
        file_io.write_at(fd, b"y", (1 << 20) - 1)
        covered = np.zeros(1 << 20, bool)
        for start, end in file_io.data_ranges(fd, 100, 1 << 20):
            covered[start:end] = True
        assert covered[300_000:300_010].all() and covered[-1] and not covered[:100].any()
        assert list(file_io.data_ranges(fd, 300_005, 300_007)) == [(300_005, 300_007)]
    finally:
        os.close(fd)


def test_segments_on_a_file_system_that_fills_up(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare to mount a small tmpfs")
    mount = f"mount -t tmpfs -o size=1536k none {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs in a namespace of one's own is not allowed here")
    command = f'{mount} && exec "$0" -c "$1" {tmp_path}'
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, sys.executable, FULL_TMPFS],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(file_io.__file__).parents[2],
    )
    assert (ran.stdout, ran.stderr) == ("as expected\n", "")
