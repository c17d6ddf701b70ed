"""How our compiled code is made: numba, kept on disk, without the interpreter's lock.

Two decorators, because numba's own are untyped: a `kernel` is a compiled function, an `instruction` writes LLVM itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import intrinsic


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use, cache on disk, run without the interpreter's lock."""
    return njit(cache=True, nogil=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, inlined where it is called."""
    return njit(inline="always")(function)


def instruction(function: Callable[..., Any]) -> Any:
    """One machine-level operation for kernels."""
    return intrinsic(function)
