"""The protocol and the shells as plain Python: modules made from their sources, without numba, one line changed.

Neither compiling nor what is kept of it matters then, and a changed line costs nothing. Meant for a process of its own,
in which nothing of the engine is imported yet. The instructions and system calls of the kernels are here, in Python.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from ctypes import c_int, c_ssize_t, c_void_p
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ipc.compiled.atomics import Followed
from ipc.compiled.system_calls import PIECE_WORDS, Piece

ROOT = Path(__file__).resolve().parent.parent.parent
PLAIN = ("engine.protocol.ha.", "engine.replication.", "engine.keeping.flusher", "engine.writer.writer")
COMPILED = re.compile(r"^from ipc\.compiled\.(kernels|atomics|memory|system_calls) import", re.MULTILINE)
LIBC = ctypes.CDLL(None, use_errno=True)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a function as it is."""
    return function


bare_kernel = inlined = kernel


def load_acquire(array: Any, at: int) -> int:
    """Return a word."""
    return int(array[at])


def store_release(array: Any, at: int, value: int) -> None:
    """Set a word."""
    array[at] = value


publish = store_release


def raise_to(array: Any, at: int, value: int) -> bool:
    """Raise a word; whether it was lower."""
    is_news = array[at] < value
    array[at] = max(array[at], value)
    return bool(is_news)


def ring(array: Any, at: int) -> None:
    """Count a bell up if anybody follows it."""
    array[at] += array[at + Followed.WAITERS] != 0


def await_change(array: Any, at: int, _seen: int, _timeout_ns: int) -> int:
    """Return a word: nobody sleeps in virtual time."""
    return int(array[at])


def monotonic_ms() -> int:
    """Return the time, which a kernel asks for although it is given one."""
    return time.monotonic_ns() // 1_000_000


wall_clock_ms = monotonic_ms


def address_of(array: Any, at: int) -> int:
    """Return where an element lies."""
    return int(array.ctypes.data + at * array.itemsize)


def load_be64(array: Any, at: int) -> int:
    """Return a big-endian word."""
    return int.from_bytes(array[at : at + 8].tobytes(), "big", signed=True)


def load_be32(array: Any, at: int) -> int:
    """Return a big-endian half of a word."""
    return int.from_bytes(array[at : at + 4].tobytes(), "big", signed=True)


def store_be64(array: Any, at: int, value: int) -> None:
    """Set a big-endian word."""
    array[at : at + 8] = np.frombuffer(int(value).to_bytes(8, "big", signed=True), np.uint8)


def store_be32(array: Any, at: int, value: int) -> None:
    """Set a big-endian half of a word."""
    array[at : at + 4] = np.frombuffer(int(value).to_bytes(4, "big", signed=True), np.uint8)


def copy_bytes(target: Any, target_at: int, source: Any, source_at: int, count: int) -> None:
    """Copy bytes."""
    target[target_at : target_at + count] = source[source_at : source_at + count].copy()


def _call(name: str, *kinds: Any) -> Callable[..., int]:
    function = getattr(LIBC, name)
    function.restype, function.argtypes = c_ssize_t, kinds

    def call(*arguments: int) -> int:
        result = int(function(*map(int, arguments)))
        return result if result >= 0 else -ctypes.get_errno()

    return call


recv = _call("recv", c_int, c_void_p, c_ssize_t, c_int)
send = _call("send", c_int, c_void_p, c_ssize_t, c_int)
writev = _call("writev", c_int, c_void_p, c_int)
sendfile = _call("sendfile", c_int, c_int, c_void_p, c_ssize_t)


def write_pieces(fd: int, pieces: Any, _address: int, count: int, position: int) -> int:
    """Write pieces into a file."""
    rows = pieces[: count * PIECE_WORDS].reshape(count, PIECE_WORDS).tolist()
    data = b"".join(ctypes.string_at(row[Piece.ADDRESS], row[Piece.LENGTH]) for row in rows)
    return 0 if os.pwrite(int(fd), data, int(position)) == len(data) else -1


class Plain(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of protocol and shells as plain Python, one of them with one line changed."""

    def __init__(self, path: str = "", old: str = "", new: str = "") -> None:
        if any(name.startswith(PLAIN) for name in sys.modules):
            raise RuntimeError("the protocol is imported already: begin a process of its own")
        self._changed = path.removesuffix(".py").replace("/", ".")
        self._old, self._new = old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a module of the protocol or of the shells; None for every other module."""
        if not fullname.startswith(PLAIN):
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(ROOT / f"{fullname.replace('.', '/')}.py"))

    def exec_module(self, module: ModuleType) -> None:
        """Run the source."""
        file = Path(str(module.__spec__.origin if module.__spec__ else ""))
        source = COMPILED.sub(f"from {__name__} import", file.read_text())
        if module.__name__ == self._changed:
            if source.count(self._old) != 1:
                raise ValueError(f"{file} has {source.count(self._old)} times: {self._old}")
            source = source.replace(self._old, self._new)
        exec(compile(source, str(file), "exec"), vars(module))
