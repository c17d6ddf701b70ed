"""How our compiled code is made: numba, kept on disk, without the interpreter's lock.

Decorators of our own, because numba's are untyped: a `kernel` is a compiled function, an `inlined` one a piece of a
kernel, an `instruction` writes LLVM itself.

numba keeps a kernel as long as its own file is unchanged, although code of other files is compiled into it. So every
state of our sources has a folder of its own: a kernel of another state is never taken for this one's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.extending import intrinsic

config: Any = numba.config  # untyped

COMPILED_PACKAGES = ("ipc", "store", "engine")
STATES_KEPT = 4
FOLDER = "kernels-"


def _state_of_sources(root: Path) -> str:
    """A name for what all files that may be compiled say now."""
    digest = hashlib.sha256()
    for package in COMPILED_PACKAGES:
        for path in sorted((root / package).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Beside the sources where that may be written, else below the user's cache; NUMBA_CACHE_DIR goes before both."""
    root = Path(__file__).resolve().parent.parent
    own = root / "ipc" / "__pycache__"
    if config.CACHE_DIR:
        base = Path(config.CACHE_DIR)
    elif os.access(own if own.exists() else own.parent, os.W_OK):
        base = own
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipstream"
    folder = base / f"{FOLDER}{_state_of_sources(root)}"
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        states = sorted(base.glob(f"{FOLDER}*"), key=lambda path: path.stat().st_mtime)
        for old in states[:-STATES_KEPT]:
            shutil.rmtree(old, ignore_errors=True)  # another process may be removing it, too
    return folder


config.CACHE_DIR = str(_cache_folder())


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use, cache on disk, run without the interpreter's lock."""
    return njit(cache=True, nogil=True)(function)


def bare_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that makes no arrays and becomes part of those that call it.

    References to arrays are not counted, which saves atomic adds at every use, and none is passed on the stack.
    """
    options: Any = {"cache": True, "nogil": True, "_nrt": False, "forceinline": True}
    return njit(**options)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, inlined where it is called."""
    return njit(inline="always")(function)


def instruction(function: Callable[..., Any]) -> Any:
    """One machine-level operation for kernels."""
    return intrinsic(function)
