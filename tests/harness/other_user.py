"""Programs of another Unix user, with this environment: in a mount namespace where it can be reached by everybody.

A home directory that nobody else may enter is covered there, for that program alone, by an empty one that shows the
interpreter, its packages, Java and this checkout, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
ENTERED_BY_ALL, READ_BY_ALL = 0o001, 0o005
SECONDS = 900
ENTER = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", 'eval "$PLAN"; unset PLAN; exec "$@"', "sh"]
BECOME = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "--no-new-privs"]


class OtherUser:
    """The user nobody, in one group. `folder` is one that all may enter; what is in `home` belongs to that user."""

    def __init__(self, folder: Path, group: int) -> None:
        self.home, self._stash = folder / "home", folder / "stash"
        self._group = group
        self.home.mkdir()
        os.chown(self.home, NOBODY, group)
        self._stash.mkdir()

    def why_not(self) -> str:
        """Why no program of that user can be run on this machine; empty where one can."""
        if os.geteuid() != 0:
            return "only root becomes another user"
        ran = self.run("import pyarrow, pyspark, slipstream")
        return "" if ran.returncode == 0 else f"another user cannot run this environment: {ran.stderr.strip()[-300:]}"

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A program in Python's words, to its end."""
        command = [*ENTER, *BECOME, f"--regid={self._group}", sys.executable, "-c", program, *map(str, arguments)]
        plan = "\n".join(_plan(_needed(os.environ), self._stash))
        here = dict.fromkeys(("HOME", "TMPDIR", "SPARK_LOCAL_DIRS"), str(self.home))
        own = {**here, "PYTHONPATH": str(ROOT), "PLAN": plan}
        return subprocess.run(
            command,
            cwd=self.home,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )


def _needed(environment: Mapping[str, str]) -> list[Path]:
    places = [sys.base_prefix, sys.prefix, str(ROOT), environment.get("JAVA_HOME", ""), f"{sys.prefix}/java"]
    paths = dict.fromkeys(path for place in places if place for path in (Path(place), Path(place).resolve()))
    return [path for path in paths if path.exists()]


def _plan(needed: Sequence[Path], stash: Path) -> Iterator[str]:
    """Commands that make paths reachable: each is kept aside, what closes them is covered, and they are put back."""
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        above = next((one for one in reversed(path.parents) if not one.stat().st_mode & ENTERED_BY_ALL), None)
        if above is not None:
            closed.setdefault(above, []).append(path)
        elif path.stat().st_mode & READ_BY_ALL != READ_BY_ALL:
            closed.setdefault(path, []).append(path)
    number = 0
    for cover, paths in closed.items():
        kept: list[tuple[Path, Path]] = []
        for path in _outermost(paths):
            for shown in sorted(path.iterdir()) if path.stat().st_mode & READ_BY_ALL != READ_BY_ALL else [path]:
                number += 1
                aside = stash / str(number)
                yield f"{_make(aside, shown)} && mount --rbind '{shown}' '{aside}'"
                kept.append((aside, shown))
        yield f"mount -t tmpfs -o mode=755 tmpfs '{cover}'"
        for aside, shown in kept:
            yield f"mkdir -p '{shown.parent}' && {_make(shown, aside)} && mount --rbind '{aside}' '{shown}'"


def _make(target: Path, like: Path) -> str:
    """What makes a place for a mount of that."""
    return f"if [ -d '{like}' ]; then mkdir -p '{target}'; else touch '{target}'; fi"


def _outermost(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if not any(other in path.parents for other in paths)]
