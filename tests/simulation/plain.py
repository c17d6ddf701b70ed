"""The protocol as plain Python: modules made from their sources, without numba, one line changed where that is asked.

Neither compiling nor what is kept of it matters then, and a changed line costs nothing. Meant for a process of its own.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def _load(array: Any, at: int, size: int) -> int:
    return int.from_bytes(array[at : at + size].tobytes(), "big", signed=True)


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that leaves a function alone."""
    return function


def stand_in() -> None:
    """What kernels are made with, and the few instructions that the protocol's use, in Python."""
    if any(name.startswith("engine.protocol.ha") for name in sys.modules):
        raise RuntimeError("the protocol is imported already: begin a process of its own")
    stand_ins: dict[str, dict[str, Any]] = {
        "ipc.compiled.kernels": dict.fromkeys(("kernel", "bare_kernel", "inlined", "instruction"), as_it_is),
        "ipc.compiled.atomics": {"load_acquire": lambda array, at: int(array[at])},
        "ipc.compiled.memory": {
            "load_be64": lambda array, at: _load(array, at, 8),
            "load_be32": lambda array, at: _load(array, at, 4),
        },
    }
    for name, content in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with one line changed."""

    def __init__(self, path: str, old: str, new: str) -> None:
        self._file = ROOT / path
        self._name = path.removesuffix(".py").replace("/", ".")
        source = self._file.read_text()
        if source.count(old) != 1:
            raise ValueError(f"{path} has {source.count(old)} times: {old}")
        self._source = source.replace(old, new)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Of that module."""
        if fullname != self._name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self._file))

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        exec(compile(self._source, str(self._file), "exec"), vars(module))
