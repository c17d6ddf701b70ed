"""What a shell may complete that is not a command, an option or a path: a named store's topics and groups.

Asked at each Tab: nothing but a directory or one file of the store is read, and no broker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import click

from store.names import BATCH_QUEUES, CONFIG, CONSUME_QUEUES, CONSUMER_OFFSETS

OFFSETS_BYTES_MAX = 4 << 20
VALUES_MAX = 1000


def topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Topics that have queues in the store of the command line."""
    root = _store_of(ctx)
    names = {name for below in (CONSUME_QUEUES, BATCH_QUEUES) for name in _names_in(root / below)} if root else set()
    return _fitting(names, incomplete)


def groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Groups that have offsets in the store of the command line."""
    root = _store_of(ctx)
    file = root / CONFIG / CONSUMER_OFFSETS if root else None
    try:
        if file is None or file.stat().st_size > OFFSETS_BYTES_MAX:
            return []
        table = json.loads(file.read_bytes())["offsetTable"]
        return _fitting({key.rpartition("@")[2] for key in table}, incomplete)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []  # a shell that completes has no place for errors


def _store_of(ctx: click.Context) -> Path | None:
    """The store that is named already; an option that has no value yet leaves it among what is not parsed."""
    named = [ctx.params.get("store"), *ctx.args]
    return next((Path(store) for store in named if store and os.path.isdir(store)), None)


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    fitting = (name for name in names if name.startswith(incomplete) and name.isprintable())
    return sorted(fitting)[:VALUES_MAX]
