"""A file system of its own with little room: a broker on it meets a disk that is really full. Takes root.

It is mounted in a namespace that a process of its own holds: nobody else sees it, and with that process it is gone.
One of kind `ext4` lies in a sparse file, on a loop device; `tmpfs` lies in memory, and gives blocks to who only reads.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType

import pytest

from tests.harness import containers
from tools.common.local_broker import LocalBroker

FILLER, STEP, ROUNDS_IN_VAIN = "filler", 4096, 3
MOUNTS = {
    "tmpfs": 'mount -t tmpfs -o "size=$1" none "$2"',
    # its device is given back with the mount; nothing is kept for root, who fills it
    "ext4": 'truncate -s "$1" "$2.image" && mkfs.ext4 -q -m 0 "$2.image" && mount -o loop "$2.image" "$2"',
}
HOLDING = " && echo mounted && exec cat"


def _written(file: FileIO) -> int:
    """Write until there is no room; how much that was."""
    begin = file.tell()
    try:
        while file.write(bytes(STEP)):
            pass
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    return file.tell() - begin


class SmallDisk:
    """The disk; `path` leads to it from here, `directory` where `inside` runs a command."""

    def __init__(self, directory: Path, size_bytes: int, kind: str = "ext4") -> None:
        if (missing := containers.missing()) is not None:
            pytest.skip(missing)
        directory.mkdir()
        self.directory = directory
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", MOUNTS[kind] + HOLDING, "sh", str(size_bytes), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != "mounted":
            pytest.skip(f"no {kind} of {size_bytes} bytes can be mounted here")
        pid = self._holder.pid
        self.inside = ["nsenter", f"--mount=/proc/{pid}/ns/mnt"]
        self.path = Path(f"/proc/{pid}/root{directory}")

    def broker(self, directory: Path, compat: str, settings: Mapping[str, object]) -> LocalBroker:
        """One whose store is on the disk."""
        below = self.directory / "store"
        keys = {**settings, "compat": compat, "storePathRootDir": below}
        broker = LocalBroker(directory / "b", inside=self.inside, **keys)
        broker.store = self.path / "store"
        return broker

    def fill(self) -> None:
        """Take all the room that is left; what replaced files held comes back with the journal's next turn."""
        in_vain = 0
        with open(self.path / FILLER, "ab", buffering=0) as file:
            while in_vain < ROUNDS_IN_VAIN:
                in_vain = 0 if _written(file) else in_vain + 1
                os.fsync(file.fileno())

    def free(self) -> None:
        """Give it back."""
        (self.path / FILLER).unlink()

    def is_full(self) -> bool:
        """Whether nobody gets a block."""
        return os.statvfs(self.path).f_bfree == 0

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._holder.communicate()  # its input ends, and so does it
