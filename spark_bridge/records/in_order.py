"""Items of jobs in the order of the jobs, made ahead by threads, of which a bounded number waits to be taken."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
AHEAD = 3  # items of a job that were made and nobody has taken
JOBS_AHEAD = 2  # for each thread: jobs that were begun and whose items were not all taken
LOOK_SECONDS = 1.0
END, LAST = object(), object()


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


class _Shared(Generic[Item]):
    """Jobs and what was made of each, by all threads."""

    def __init__(self, jobs: Iterable[Callable[[], Iterator[Item]]], begun_max: int, ahead: int) -> None:
        self._jobs, self._begun_max, self._ahead = iter(jobs), begun_max, ahead
        self._asking = threading.Lock()  # one thread at a time asks for the next job
        self._changed = threading.Condition()
        self._lines: deque[deque[Any]] = deque()  # of the jobs that were begun, in order
        self._is_left = False

    def make(self) -> None:
        """Do jobs until there are no more, or until nobody takes their items any more."""
        while True:
            line: deque[Any] = deque()
            try:
                with self._asking:
                    if not self._add(line, self._lines, self._begun_max):
                        return
                    job = next(self._jobs, None)
                if job is None:
                    self._add(LAST, line, self._ahead)
                    return
                for item in job():
                    if not self._add(item, line, self._ahead):
                        return
            except BaseException as error:  # the thread that takes the items raises it
                self._add(error, line, self._ahead)
                return
            if not self._add(END, line, self._ahead):
                return

    def _add(self, item: Any, to: deque[Any], most: int) -> bool:
        """Add an item, or a line to the lines, once there is room; False once nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: len(to) < most or self._is_left)
            to.append(item)
            self._changed.notify_all()
            return not self._is_left

    def take(self, makers: list[threading.Thread]) -> Any:
        """The next item, once it is made; END behind the last one of a job, LAST behind the last job."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._lines and self._lines[0], LOOK_SECONDS):
                if not any(maker.is_alive() for maker in makers):
                    raise RuntimeError("the threads ended before their items")
            item = self._lines[0].popleft()
            if item is END:
                self._lines.popleft()
            self._changed.notify_all()
            return item

    def leave(self) -> None:
        """Take no more, which ends each thread behind its next item."""
        with self._changed:
            self._is_left = True
            self._lines.clear()
            self._changed.notify_all()


def in_order(
    jobs: Iterable[Callable[[], Iterator[Item]]], threads: int, ahead: int = AHEAD, awaits_end: bool = False
) -> Generator[Item, None, None]:
    """Yield the items of each job behind those of the job before it; each job is done in one of the threads.

    The next job is asked for in one thread at a time. What a job raises is raised in its place. Who stops taking, by
    closing this iterator or dropping it, ends the threads: each finishes the item that it makes; with `awaits_end` this
    iterator ends when they have.
    """
    if threads <= 1:
        for job in jobs:
            yield from job()
        return
    shared = _Shared(jobs, JOBS_AHEAD * threads, ahead)
    makers = [
        threading.Thread(target=shared.make, name=f"slipstream-ahead-{number}", daemon=True)
        for number in range(threads)
    ]
    try:
        for maker in makers:
            maker.start()
        while (item := shared.take(makers)) is not LAST:
            if isinstance(item, BaseException):
                raise item
            if item is not END:
                yield item
    finally:
        shared.leave()
        for maker in makers:
            if awaits_end and maker.ident is not None:
                maker.join()
