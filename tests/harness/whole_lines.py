"""The lines of a file that another process writes."""

from __future__ import annotations

from pathlib import Path


def whole_lines(path: Path) -> list[str]:
    """Those that are whole: the last one may be on its way."""
    return path.read_text().rpartition("\n")[0].splitlines()
