"""Names that are imported when they are first asked for, and what went wrong where they cannot be.

Python takes an AttributeError out of a module's `__getattr__` for a name that is not there: an import that fails with
one, somewhere far below, would be reported as "cannot import name".
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from traceback import extract_tb
from types import ModuleType
from typing import Any


def name_of(module: str, name: str, asked: str) -> Any:
    """`name` of `module`, which somebody asked for as `asked`. Raises ImportError with the cause, and what importing
    the module raises."""
    try:
        return getattr(import_module(module), name)
    except AttributeError as error:
        raise ImportError(f"{asked} cannot be loaded: {_cause(error)}", name=asked) from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected in the block, which loads modules and returns soon.

    What they make lives on, and to look for garbage among it takes a tenth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _cause(error: AttributeError) -> str:
    """Return what failed, where, and which module is not what its user takes it for."""
    *_, last = extract_tb(error.__traceback__)
    text = f"AttributeError: {error} ({last.filename}, line {last.lineno})"
    if isinstance(error.obj, ModuleType) and (places := _places(error.obj)):
        text += f"; the module {error.obj.__name__!r} that was found is {places}: rename it if it is not that package"
    return text


def _places(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return os.fspath(file) if file else ", ".join(map(str, getattr(module, "__path__", ())))
