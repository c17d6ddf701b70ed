"""The cycle collector rests while a plan is made: it goes through a hundred thousand queues again and again.

A third of a large plan's time went there, and nothing that a plan makes is in cycles. Reference counts go on as ever.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class _Rest:
    """The number of plans that threads of this process make; where somebody else has switched it off it stays off."""

    def __init__(self) -> None:
        self.lock, self.plans, self.is_ours = threading.Lock(), 0, False

    def begin(self) -> None:
        with self.lock:
            if not self.plans:
                self.is_ours = gc.isenabled()
                gc.disable()
            self.plans += 1

    def end(self) -> None:
        with self.lock:
            self.plans -= 1
            if not self.plans and self.is_ours:
                gc.enable()


_rest = _Rest()


def _after_fork() -> None:
    """The threads that were planning are not in the child."""
    global _rest
    if _rest.plans and _rest.is_ours:
        gc.enable()
    _rest = _Rest()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Pause the collector in the block; it goes on when the last such block ends."""
    rest = _rest
    rest.begin()
    try:
        yield
    finally:
        rest.end()


def planned_in_peace(plan: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """A function that plans, done so."""

    @wraps(plan)
    def run(*args: Asked.args, **options: Asked.kwargs) -> Answer:
        with collector_at_rest():
            return plan(*args, **options)

    return run
