"""A child process that dies just before one of its calls of `file_io`: what a crash at that moment leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from store.files import file_io

DIED, FAILED = 9, 3


def ends_at_call(action: Callable[[], object], calls: Iterable[str], deadly: int) -> int:
    """The exit code of a child that acts and dies before its `deadly`-th of these calls; 0 when it came through."""
    child = os.fork()
    if not child:
        left = [deadly]

        def dying(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                left[0] -= 1
                if not left[0]:
                    os._exit(DIED)
                return real(*arguments, **options)

            return call

        for name in calls:
            setattr(file_io, name, dying(getattr(file_io, name)))
        try:
            action()
            os._exit(0)
        finally:
            os._exit(FAILED)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
