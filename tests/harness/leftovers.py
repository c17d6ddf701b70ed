"""What a test leaves in the repository's folder: new names at its top, but for caches and what git ignores."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path


class Folder:
    """The names at the top of a folder, each of them new only once. Hidden ones are editors' and caches'."""

    def __init__(self, root: Path) -> None:
        self._root = root
        ignored = (root / ".gitignore").read_text().split()
        self._ignored = [pattern.rstrip("/") for pattern in ignored]
        self._known: set[str] = set()
        self.news()

    def news(self) -> set[str]:
        """The names that came since the last look."""
        names = set(os.listdir(self._root)) - self._known
        self._known |= names
        return {name for name in names if not name.startswith(".") and not self._is_ignored(name)}

    def _is_ignored(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._ignored)
