"""What a role does beside its turns: tasks by name, one of a name at a time, whose failures are logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("slipstream.remoting")


class RoleTasks:
    """The tasks of one role."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the task of that name is not done."""
        return name in self._tasks

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start it; nobody may have begun one of this name that is not done."""
        task = self._tasks[name] = self._loop.create_task(work, name=name)
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", name, exc_info=task.exception())

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
