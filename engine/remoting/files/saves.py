"""Says when a change of a table is on disk, to the requests that wait for it before they are answered.

Implements: ConfigManager.persist before an administrator's answer
Each writing of a file has a number, taken when the table is read for it. A change is on disk once a writing that began
after the change has ended. All changes that wait at that moment are in the same writing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import NamedTuple


class NotSaved(Exception):
    """Raised where the writing that a change waited for failed; the change is in use, and is written once it can be."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} cannot be written: {reason}; the change is in effect, but not on disk yet")


class _Wait(NamedTuple):
    """One change: by file, the number of the writing that has it."""

    needed: dict[str, int]
    done: asyncio.Future[None]


class Saves:
    """The writings of one broker's files, and who waits for them."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = defaultdict(int)
        self._ended: dict[str, int] = defaultdict(int)
        self._waits: list[_Wait] = []

    def begin(self, name: str) -> int:
        """The number of a writing whose content is read from the table now."""
        self._begun[name] += 1
        return self._begun[name]

    def end(self, name: str, number: int) -> None:
        """Note that a write is on disk, and wake the requests that waited for it."""
        self._ended[name] = number
        waits, self._waits = self._waits, []
        for wait in waits:
            if any(self._ended[needed] < at for needed, at in wait.needed.items()):
                self._waits.append(wait)
            elif not wait.done.done():
                wait.done.set_result(None)

    def fail(self, name: str, number: int, reason: str) -> None:
        """Fail the requests that wait for this write. It is tried again, under another number."""
        waits, self._waits = self._waits, []
        for wait in waits:
            if not 0 < wait.needed.get(name, 0) <= number:
                self._waits.append(wait)
            elif not wait.done.done():
                wait.done.set_exception(NotSaved(name, reason))

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for a writing."""
        return bool(self._waits)

    def wait(self, names: Iterable[str], changed: Set[str]) -> asyncio.Future[None] | None:
        """Return what is done once these files say what their tables say now; None where they do.

        `changed` are those whose tables have changed since they were read for a writing. It raises NotSaved.
        """
        needed = {name: self._begun[name] + (name in changed) for name in names}
        needed = {name: number for name, number in needed.items() if number > self._ended[name]}
        if not needed:
            return None
        wait = _Wait(needed, asyncio.get_running_loop().create_future())
        self._waits.append(wait)
        return wait.done
