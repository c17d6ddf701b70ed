"""Checks the arguments of `slipstream replica` before its work is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from store.errors import NotAStore
from store.files.directory import store_directory
from store.reading.extent import require_idle
from tools.log.options import NotReadable

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\s]+):([0-9]{1,5})")


def is_address(text: str) -> bool:
    """Whether that is HOST:PORT, and no directory of that name is there."""
    return ADDRESS.fullmatch(text) is not None and not Path(text).exists()


def check(other: str, **_others: object) -> None:
    """Check the arguments of `replica check`. Raises NotAStore."""
    if is_address(other):
        return
    if not Path(other).is_dir():
        raise NotAStore(other, "it is neither a directory nor HOST:PORT of a running broker")
    store_directory(other)


def rewind(store: Path, to: int | None, other: str | None, **_others: object) -> None:
    """Check the arguments of `replica rewind`. Raises NotReadable, NotAStore, StoreLocked."""
    if (to is None) == (other is None):
        raise NotReadable("give either --to OFFSET or --with OTHER")
    if other is not None:
        check(other)
    forget(store)


def forget(store: Path, **_others: object) -> None:
    """Check the arguments of `replica forget`. Raises StoreLocked."""
    require_idle(store_directory(store))
