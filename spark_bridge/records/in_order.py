"""Items of several iterators in their order, made ahead by threads, of which each holds a bounded number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
AHEAD = 3  # items that a thread has made and nobody has taken
LOOK_SECONDS = 1.0
END = object()


class _Line(Generic[Item]):
    """What one thread has made, in the order in which it is to be taken."""

    def __init__(self) -> None:
        self._made: deque[Item | BaseException | object] = deque()
        self._changed = threading.Condition()
        self._is_left = False

    def put(self, item: Item | BaseException | object) -> bool:
        """Add an item once there is room; False once nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) < AHEAD or self._is_left)
            self._made.append(item)
            self._changed.notify_all()
            return not self._is_left

    def take(self, maker: threading.Thread) -> Item | BaseException | object:
        """The next item, once it is made."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._made, LOOK_SECONDS):
                if not maker.is_alive() and not self._made:
                    raise RuntimeError(f"thread {maker.name} ended before its items")
            item = self._made.popleft()
            self._changed.notify_all()
            return item

    def leave(self) -> None:
        """Take no more, which ends the thread behind its next item."""
        with self._changed:
            self._is_left = True
            self._made.clear()
            self._changed.notify_all()


def in_order(parts: Sequence[Callable[[], Iterator[Item]]], threads: int) -> Iterator[Item]:
    """Yield the items of each part behind those of the part before it; each part is iterated in one of the threads.

    What a part raises is raised in its place. Who stops taking, by closing this iterator or dropping it, ends the
    threads: each finishes the item that it makes.
    """
    count = min(threads, len(parts))
    if count <= 1:
        for part in parts:
            yield from part()
        return
    lines = [_Line[Item]() for _ in range(count)]
    makers = [
        threading.Thread(target=_make, args=(parts[number::count], line), name=f"slipstream-scan-{number}", daemon=True)
        for number, line in enumerate(lines)
    ]
    try:
        for maker in makers:
            maker.start()
        for number in range(len(parts)):
            line, maker = lines[number % count], makers[number % count]
            while (item := line.take(maker)) is not END:
                if isinstance(item, BaseException):
                    raise item
                yield item  # type: ignore[misc]
    finally:
        for line in lines:
            line.leave()


def _make(parts: Sequence[Callable[[], Iterator[Item]]], line: _Line[Item]) -> None:
    """Put the items of some parts into their line, each part's end behind its items."""
    try:
        for part in parts:
            for item in part():
                if not line.put(item):
                    return
            if not line.put(END):
                return
    except BaseException as error:  # the thread that takes the items raises it
        line.put(error)
