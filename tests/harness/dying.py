"""A child process that dies just before one of its calls that change files: what a crash at that moment leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import ModuleType

from store.files import file_io, mapped_files
from tests.harness.children import exit_code_of

MODULES = (file_io, mapped_files)  # that make those calls
DIED, FAILED = 9, 3


def ends_at_call(action: Callable[[], object], calls: Iterable[str], deadly: int) -> int:
    """The exit code of a child that acts and dies before its `deadly`-th of these calls; 0 when it came through."""
    child = os.fork()
    if not child:
        try:
            os._exit(act_and_die(action, calls, deadly))
        finally:
            os._exit(FAILED)
    return exit_code_of(child)


def act_and_die(action: Callable[[], object], calls: Iterable[str], deadly: int) -> int:
    """Act in a process that is to die before its `deadly`-th of these calls; 0 when it comes through."""
    _die_at([(next(module for module in MODULES if hasattr(module, name)), name) for name in calls], deadly)
    action()
    return 0


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
