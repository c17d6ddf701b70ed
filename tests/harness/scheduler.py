"""Hands each group of tests to one worker: xdist's own scheduler by scope, told the scopes.

xdist's way to name groups, `--dist=loadgroup`, changes the tests' names, which pytest 9.2 does not let it do: nothing
fails, and every test is a group of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling


def tell_groups(path: Path, groups: Mapping[str, str]) -> None:
    """On a worker: the group of each test, by its name; all of them write the same."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(groups))
    unfinished.replace(path)


class GroupScheduling(LoadScopeScheduling):
    """In the process that hands out tests: their groups are what the workers wrote to `groups`."""

    def __init__(self, config: Any, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        self._path = groups
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """All workers have collected, and told, unless they found no test."""
        if self._path.exists():
            self._groups = json.loads(self._path.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
