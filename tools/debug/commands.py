"""`slipstream debug`, as it is typed."""

from __future__ import annotations

import errno
from pathlib import Path

import click

from store.errors import NotAStore
from tools.common.given_path import GivenPath
from tools.common.lazy_group import SuggestingGroup, done_by
from tools.common.numbers import number
from tools.common.output_form import form

SECONDS = 120


@click.group(cls=SuggestingGroup)
def debug() -> None:
    """Write one file of facts about a broker for a bug report."""


def check_bundle(store: Path, output: Path | None, **_others: object) -> None:
    """Check the arguments of `debug bundle`. Raises NotAStore, FileExistsError."""
    if not store.is_dir():
        raise NotAStore(str(store), "not a directory; give the directory of a store")
    if output is not None:
        refuse_existing(output)


def refuse_existing(target: Path) -> None:
    """Raises FileExistsError: existing files are not overwritten."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "it already exists and is not overwritten; give another name", str(target))


@debug.command()
@click.argument("store", type=GivenPath(path_type=Path, file_okay=False))
@click.option(
    "-o",
    "--output",
    type=GivenPath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File to write. Default: slipstream-debug-TIME.tar.gz.",
)
@click.option(
    "-c",
    "--config",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="The broker's file. Default: the file of the running broker.",
)
@number(
    "--seconds",
    click.IntRange(1, 3600),
    SECONDS,
    "SECONDS",
    "Leave out what takes longer than this many seconds in all.",
)
@form("Print one JSON object: the file, its content, what could not be read.", output=False)
@done_by("tools.debug.bundle:bundle", "tools.debug.commands:check_bundle")
def bundle() -> None:
    """Write one file about STORE and its broker for a bug report.

    Look at the file before you send it. It contains versions, facts about the machine and the broker's processes, and
    the broker's file with secrets masked. It contains the output of status, counters, stats, groups and doctor, the end
    of the log file, names, sizes and times of files, and tables of topics and groups. Names of topics, groups, hosts
    and users are included; bodies, keys and properties of messages are not.
    """
