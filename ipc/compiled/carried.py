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

from ipc.errors import CompileUnknown
from ipc.machine import baseline
from ipc.module_names import PREFIX, SOURCES, named

FOLDER = SOURCES / "ipc" / "carried"
LIST, LIBRARY, MODULE = "carried.json", "carried.abi3.so", "carried"
ASKED = "SLIPSTREAM_COMPILE"  # in the environment: compile although there is carried code
BASELINE, NATIVE = "baseline", "native"  # its values: for what carried code is made for, or for this CPU alone


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


def library() -> Library | None:
    """Return the library of this machine; None where there is none to take, for the reason that `why_not` gives."""
    return _loaded_once()[0]


def why_not() -> str:
    """Return why this process takes no library; empty where it takes one, or none came with the package."""
    return _loaded_once()[1]


@cache
def _loaded_once() -> tuple[Library | None, str]:
    said, why = _looked_at(FOLDER)
    if said is None or why:
        return None, why
    try:
        return Library(_loaded(FOLDER / LIBRARY), said["kernels"]), ""
    except ImportError as error:  # the system is older than its C library, or may not map code from there
        return None, str(error)


def listed(folder: Path = FOLDER) -> dict[str, Any] | None:
    """Return what the list in a folder says, where the library and all sources are those that it names."""
    said, _why = _looked_at(folder)
    return said


@cache
def _looked_at(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the list if it is true here, and why the library is not taken."""
    asked = os.environ.get(ASKED, "")
    if asked not in ("", BASELINE, NATIVE):
        raise CompileUnknown(asked, (BASELINE, NATIVE))
    try:
        said: dict[str, Any] = json.loads(_content_of(folder / LIST))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"its list cannot be read: {error}"
    try:
        if digest_of(folder / LIBRARY) != said["library"]:
            return None, f"{LIBRARY} is not the file that was made"
        for name, digest in said["sources"].items():
            if digest_of(SOURCES / name) != digest:
                return None, f"it was made of another {name}"
        machine, _kernels = said["machine"], said["kernels"]
    except (OSError, KeyError, TypeError, AttributeError) as error:
        return None, f"{type(error).__name__}: {error}"
    if asked:
        return said, f"{ASKED}={asked}"
    if machine != os.uname().machine or baseline() is None:
        return said, f"it is for another kind of processor ({machine})"
    return said, ""


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's content. Raises OSError."""
    return hashlib.sha256(_content_of(file)).hexdigest()


def _content_of(file: Path) -> bytes:
    """Return what is in a file, also in the archive from which this package is imported. Raises OSError."""
    loader: Any = __spec__.loader
    try:
        content: bytes = loader.get_data(os.fspath(file))
    except OSError as error:
        if error.errno:
            raise
        raise FileNotFoundError(file) from error  # an archive's loader gives no number
    return content


def _class_of(text: str) -> type:
    module, _, name = text.partition(":")
    enumeration: type = getattr(sys.modules[named(module)], name)
    return enumeration


def _loaded(file: Path) -> ModuleType:
    """Map the library. One in an archive is copied to memory first, which nobody else can change."""
    if file.is_file():
        return _mapped(file)
    with open(os.memfd_create(LIBRARY), "wb") as copy:
        copy.write(_content_of(file))
        copy.flush()
        return _mapped(Path(f"/proc/self/fd/{copy.fileno()}"))


def _mapped(file: Path) -> ModuleType:
    name = named(f"ipc.{MODULE}")
    loader = ExtensionFileLoader(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
