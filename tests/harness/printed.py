"""Every command that prints, as a command line on a running broker's store or on copies of it, for tests of all output.

What is not listed is in `SILENT`, with the reason; a test sees to it that a new command is in one of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from store.files.file_io import CREATING_SUFFIX
from tools.cli import cli
from tools.common.local_broker import LocalBroker

SILENT = {  # path: why no test of all output runs it
    "broker": "runs until it is stopped", "namesrv": "runs until it is stopped", "web": "runs until it is stopped",
    "flight": "runs until it is stopped", "wait": "waits for a broker to serve", "stop": "ends the broker",
    "run": "is the demonstration, of minutes", "top": "is a terminal's view, with tests of its own",
    "warm": "compiles",
    "completion": "prints a shell's script", "init": "writes files of a new broker",
    "log manifest": "has RocketMQ's own words, compared with RocketMQ's",
    "debug bundle": "writes a file", "admin": "has mqadmin's own words",
}  # fmt: skip

NO_JSON = {  # path: why it has neither `--json` nor `-o json`
    "broker": "runs until it is stopped", "namesrv": "runs until it is stopped", "web": "runs until it is stopped",
    "flight": "runs until it is stopped",
    "wait": "its exit code is its result", "stop": "its exit code is its result",
    "completion": "prints a shell's script", "run": "is the demonstration: its exit code is its result",
    "top": "is a terminal's view; `status`, `ha status`, `stats` and `groups` have its figures as JSON",
    "log manifest": "prints JSON lines anyway",
}  # fmt: skip


class Line(NamedTuple):
    """A command line without `--json`, and the schemas of what it prints with it; none where it prints other text."""

    arguments: tuple[str, ...]
    schemas: tuple[str, ...]

    @property
    def path(self) -> str:
        """The words that name the command."""
        words = [word for word in self.arguments[:3] if word.isalpha()]
        while words and not isinstance(command_of(words), click.Command):
            words.pop()
        return " ".join(words)


def command_of(words: list[str]) -> click.Command | None:
    """The command of these words."""
    command: click.Command | None = cli
    for word in words:
        command = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
    return command


def leaves(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command, by its words."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name))


def lines_on(broker: LocalBroker, scratch: Path) -> list[Line]:
    """The lines, in an order in which they may run; copies of the store are made in `scratch`."""
    live, alone, other = str(broker.store), str(scratch / "alone"), str(scratch / "other")
    at = ("--broker", f"127.0.0.1:{broker.port}", "--timeout", "120")
    # Of files that are being written a copy would find the name, and then no file any more.
    left_out = shutil.ignore_patterns("lock", "slipstream.run", "*.lock", f"*{CREATING_SUFFIX}")
    for copy in (alone, other):
        shutil.copytree(broker.store, copy, ignore=left_out)
    file = scratch / "lines"
    file.write_text("one\ntwo\n")
    return [
        Line(("produce", "--store", live, "--topic", "printed", "--timeout", "120", str(file)), ("produce",)),
        Line(("send", *at, "-t", "printed", str(file)), ("send",)),
        Line(("consume", *at, "-t", "printed", "-g", "people", "--from", "first", "--count", "2"), ("message",)),
        Line(("lake", live, "--to", "delta", "--table", str(scratch / "lake"), "--once"), ("lake",)),
        Line(("status", live), ("status",)),
        Line(("counters", live), ()),
        Line(("stats", live), ("stats",)),
        Line(("clients", live), ("clients",)),
        Line(("groups", live), ("groups",)),
        Line(("groups", "-g", "people", live), ("groups",)),
        Line(("snapshot", "--list", live), ("snapshot",)),
        Line(("ha", "status", live), ("ha.status",)),
        Line(("ha", "explain", live), ("ha.explain",)),
        Line(("doctor", "--timeout", "120", live), ("doctor",)),
        Line(("log", "cat", live), ("message",)),
        Line(("log", "stat", live), ("log.stat",)),
        Line(("log", "map", live), ("log.map",)),
        Line(("log", "plan", "--option", "minPartitions=2", live), ("log.plan",)),
        Line(("log", "diff", live, alone), ("log.diff",)),
        Line(("log", "verify", live), ("log.verify",)),
        Line(("log", "verify", "--unprotected", live), ("log.verify.span",)),
        Line(("log", "find", "--key", "k", live), ("message",)),
        Line(("log", "find", "--queue", "T:0", "--time", "0", live), ("log.find.time",)),
        Line(("log", "digest", alone), ("log.digest",)),
        Line(("log", "sidecar", live), ("log.sidecar",)),
        Line(("log", "rebuild", "queue", alone), ("log.rebuild",)),
        Line(("log", "rebuild", "index", alone), ("log.rebuild",)),
        Line(("log", "repair", "--from", other, "--dry-run", alone), ("log.repair",)),
        Line(("log", "repair", "--cut", "0", "--dry-run", alone), ("log.repair.cut",)),
        Line(("log", "export", "--json", str(scratch / "out"), alone), ()),
        Line(("replica", "check", alone, "--with", other), ("replica.check",)),
        Line(("replica", "rewind", alone, "--with", other, "--dry-run"), ("replica.rewind",)),
        Line(("replica", "forget", alone), ("replica.forget",)),
        Line(("promote", other), ("promote",)),
        Line(("demote", other, "--master", "127.0.0.1:1"), ("demote",)),
    ]
