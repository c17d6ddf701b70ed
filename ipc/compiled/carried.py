"""Compiled code that comes with the package: one library for this kind of machine, made when the package was built.

The library holds the kernels that Python calls, each in the forms in which it is called, behind functions of the
interpreter's own; nothing of numba is needed to run it. It is taken only where its digest and the digests of all the
sources that it was made of are what the list beside it says, and where the CPU has the instructions that it uses.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ipc.machine import baseline
from ipc.module_names import PREFIX, SOURCES, named

FOLDER = SOURCES / "ipc" / "carried"
LIST, LIBRARY, MODULE = "carried.json", "carried.abi3.so", "carried"
ASKED = "SLIPSTREAM_COMPILE"  # in the environment: compile for this CPU although there is carried code


class Library:
    """The kernels of a library; `classes` are the enumerations of what each returns, as `module:name`."""

    def __init__(self, module: ModuleType, classes: Mapping[str, list[str]]) -> None:
        self._module, self._classes = module, classes
        self._functions: dict[str, Any] = module.functions()
        self._compiled: dict[str, Callable[..., Any]] = {}  # by name: what takes arguments that no carried form takes
        module.on_missed(self._missed)

    def function_of(self, function: FunctionType, compiled: Callable[..., Any]) -> Any:
        """Return the carried function, None without one; `compiled` is called for other kinds of arguments."""
        name = f"{function.__module__.removeprefix(PREFIX)}.{function.__qualname__}"
        function_of_it = self._functions.get(name)
        if function_of_it is not None:
            self._compiled[name] = compiled
            if classes := self._classes.get(name):
                self._module.on_result(name, tuple(_class_of(each) for each in classes))
        return function_of_it

    def _missed(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return self._compiled[name](*arguments)


@cache
def library() -> Library | None:
    """Return the library of this machine; None without one that is whole, of these sources, and for this CPU."""
    if os.environ.get(ASKED) or baseline() is None:
        return None
    try:
        said = listed()
        return Library(_loaded(FOLDER / LIBRARY), said["kernels"]) if said else None
    except (OSError, ImportError):
        return None


def listed() -> dict[str, Any] | None:
    """Return what the list says; None where the library or a source is another one, or of another kind of machine."""
    try:
        said: dict[str, Any] = json.loads((FOLDER / LIST).read_bytes())
        is_here = said["machine"] == os.uname().machine and said["library"] == digest_of(FOLDER / LIBRARY)
        is_of_these = is_here and all(digest_of(SOURCES / name) == digest for name, digest in said["sources"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return said if is_of_these and said.keys() >= {"kernels"} else None


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's content. Raises OSError."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _class_of(text: str) -> type:
    module, _, name = text.partition(":")
    enumeration: type = getattr(sys.modules[named(module)], name)
    return enumeration


def _loaded(file: Path) -> ModuleType:
    name = named(f"ipc.{MODULE}")
    loader = ExtensionFileLoader(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
