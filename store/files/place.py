"""Where a directory is: device and inode, which a copy never shares, beside the path, which anything may share.

A directory that was moved on its file system, or that is reached through a symbolic link or a bind mount (a container's
volume), is the same place. A copy is not, wherever it lies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A directory, known by device and inode."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path | str) -> Place:
        """The directory at that path. Raises OSError."""
        status = os.stat(path)
        return cls(os.path.realpath(path), status.st_dev, status.st_ino)

    @classmethod
    def from_fields(cls, fields: Any) -> Place | None:
        """Return what `fields` gave; None for anything else."""
        if not isinstance(fields, Mapping):
            return None
        path, device, inode = (fields.get(name) for name in cls._fields)
        if not isinstance(path, str) or type(device) is not int or type(inode) is not int or "\0" in path:
            return None
        return cls(path, device, inode)

    def fields(self) -> dict[str, Any]:
        """Return the place as fields for a file."""
        return self._asdict()

    def is_same(self, other: Place) -> bool:
        """Whether both are one directory, while the machine runs."""
        return (self.device, self.inode) == (other.device, other.inode)

    def led_from(self, path: str, root: Path | str) -> Path | None:
        """Return where a path below this place lies when this place is reached as `root`; None for a path elsewhere."""
        if path != self.path and not path.startswith(os.path.join(self.path, "")):
            return None
        return Path(root) / os.path.relpath(path, self.path)


def is_there(place: Place | None, path: Path) -> bool:
    """Whether the directory at `path` is that one."""
    try:
        return place is not None and Place.of(path).is_same(place)
    except OSError:
        return False
