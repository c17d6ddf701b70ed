"""`slipstream debug`, as it is typed."""

from __future__ import annotations

import errno
from pathlib import Path

import click

from store.errors import NotAStore
from tools.common.given_path import GivenPath
from tools.common.lazy_group import SuggestingGroup, done_by
from tools.common.output_form import form


@click.group(cls=SuggestingGroup)
def debug() -> None:
    """Collect what a maintainer would ask for."""


def check_bundle(store: Path, output: Path | None, **_others: object) -> None:
    """Check the arguments of `debug bundle`. Raises NotAStore, FileExistsError."""
    if not store.is_dir():
        raise NotAStore(str(store), "it is no directory; name that of a store")
    if output is not None:
        refuse_existing(output)


def refuse_existing(target: Path) -> None:
    """Raise FileExistsError for a file that exists; it is not changed."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "it is there already and stays as it is; name another file", str(target))


@debug.command()
@click.argument("store", type=GivenPath(path_type=Path, file_okay=False))
@click.option(
    "-o", "--output", type=GivenPath(path_type=Path, dir_okay=False), help="Else slipstream-debug-TIME.tar.gz."
)
@click.option("-c", "--config", type=GivenPath(path_type=Path), help="The broker's file, where no broker runs.")
@click.option("--seconds", type=click.IntRange(1, 3600), default=120, show_default=True, help="Then the rest is left.")
@form("One JSON object: the file, what is in it, what could not be read.", output=False)
@done_by("tools.debug.bundle:bundle", "tools.debug.commands:check_bundle")
def bundle() -> None:
    """Write one file about STORE and its broker, to be looked at and sent to who helps.

    In it: versions, facts of the machine and of the broker's processes, its file with secrets masked, what status,
    counters, stats, groups and doctor say, the log's tail, names, sizes and times of files, tables of topics and
    groups. Not in it: bodies, keys and properties of messages. Names of topics, groups, hosts and users are in it.
    """
