"""Hands each group of tests to one worker: xdist's own scheduler by scope, told the scopes.

A test in which a worker died has failed, and is not tried again; the others of its group go to the worker that comes
instead. Left alone, xdist tries it again and again, or waits for ever for a worker that it never tells to end.

xdist's way to name groups, `--dist=loadgroup`, changes the tests' names, which pytest 9.2 does not let it do: nothing
fails, and every test is a group of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


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
        """All workers have collected, and told, unless they found no test; or one has that came later."""
        if self._path.exists():
            self._groups = json.loads(self._path.read_text())
        comes_later = self.collection is not None
        super().schedule()
        if comes_later:
            super().schedule()  # a worker begins a test when it knows the next
            for node in self.registered_collections.keys() & self.assigned_work.keys():
                if not (self.workqueue or node.shutting_down):
                    node.shutdown()

    def _reschedule(self, node: WorkerController) -> None:
        """Hand out to a worker that has collected; another one may have come at the same time, and has not yet."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Hand out a group. A worker that just died keeps it until xdist reports its end; then another one gets it."""
        with suppress(OSError):
            super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which a worker died; None for one that ended well."""
        groups = self.assigned_work.pop(node)
        pending = [(group, test) for group, tests in groups.items() for test, is_done in tests.items() if not is_done]
        if not pending:
            return None
        group, died_in = pending[0]
        groups[group][died_in] = True
        self.workqueue.update({name: tests for name, tests in groups.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
