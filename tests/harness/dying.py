"""A child process that dies just before one of its calls that change files: what a crash at that moment leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import ModuleType

from store.files import file_io, mapped_files

MODULES = (file_io, mapped_files)  # that make those calls
DIED, FAILED = 9, 3


def ends_at_call(action: Callable[[], object], calls: Iterable[str], deadly: int) -> int:
    """The exit code of a child that acts and dies before its `deadly`-th of these calls; 0 when it came through."""
    places = [(next(module for module in MODULES if hasattr(module, name)), name) for name in calls]
    child = os.fork()
    if not child:
        try:
            _die_at(places, deadly)
            action()
            os._exit(0)
        finally:
            os._exit(FAILED)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _die_at(places: Iterable[tuple[ModuleType, str]], deadly: int) -> None:
    """Have this process die before its `deadly`-th of these calls."""
    left = [deadly]

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if not left[0]:
                os._exit(DIED)
            return real(*arguments, **options)

        return call

    for module, name in places:
        setattr(module, name, dying(getattr(module, name)))
