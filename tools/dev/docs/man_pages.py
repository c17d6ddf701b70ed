"""Manual pages from the commands' declarations: a page for `slipstream` and for each of its commands, `make man`.

They are files of this tree, docs/man, because the build of a wheel has none of the packages that the commands need.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from tools.cli import SECTIONS, cli

ROOT = Path(__file__).parents[3]
MAN = ROOT / "docs" / "man"
RELEASE = re.compile(r"^## (?P<version>[\d.]+) - (?P<date>\d{4}-\d{2}-\d{2})$", re.MULTILINE)
EXIT_CODES = (
    ("0", "all well"), ("1", "a check failed, or something was found"), ("2", "wrong usage or configuration"),
    ("3", "no broker serves"), ("4", "input, output or the store failed"), ("130", "interrupted"),
)  # fmt: skip


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    made = {"slipstream.1": page(cli, "slipstream")}
    context = click.Context(cli, info_name="slipstream")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None and not command.hidden:
            made[f"slipstream-{name}.1"] = page(command, f"slipstream {name}")
    return made


def page(command: click.Command, path: str) -> str:
    """Return one page; of a group other than `slipstream`, with all its commands."""
    name = path.replace(" ", "-")
    lines = [
        f'.TH {name.upper()} 1 "{_release("date")}" "Slipstream {_release("version")}" "Slipstream"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(_first_line(command))}",
        ".SH SYNOPSIS",
        *_synopsis(command, path),
        ".SH DESCRIPTION",
        *_paragraphs(command),
        ".SH OPTIONS",
        *_options(command),
    ]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *(_listed() if command is cli else _below(command, path))]
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", roff(meaning)]
    others = [f".BR slipstream\\-{roff(each)} (1)" for each in sorted(cli.list_commands(click.Context(cli)))]
    see = [f"{other}," for other in others[:-1]] + others[-1:] if command is cli else [".BR slipstream (1)"]
    return "\n".join([*lines, ".SH SEE ALSO", *see]) + "\n"


def _release(part: str) -> str:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for release in RELEASE.finditer((ROOT / "CHANGELOG.md").read_text()):
        if release["version"] == version:
            return release[part]
    raise ValueError(f"CHANGELOG.md has no line `## {version} - DATE`")


def _first_line(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


def _synopsis(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f".B {roff(path)}"
    yield roff(" ".join(command.collect_usage_pieces(context)))


def _paragraphs(command: click.Command) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        if number:
            yield ".PP"
        yield from (roff(line.strip("\b")) for line in paragraph.splitlines() if line.strip("\b"))
    if command.epilog and not command.epilog.startswith("Exit codes"):
        yield from (".PP", roff(command.epilog))


def _options(command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name="slipstream", help_option_names=["-h", "--help"])
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {roff(record[0])}", roff(record[1]) or "\\&")


def _listed() -> Iterator[str]:
    for heading, section in SECTIONS.items():
        yield f".SS {roff(heading)}"
        for name, (_where, summary) in section.items():
            yield from (".TP", f".BR slipstream\\-{roff(name)} (1)", roff(summary))


def _below(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _below(command, f"{path} {name}")
            continue
        yield f".SS {roff(f'{path} {name}')}"
        yield from (*_synopsis(command, f"{path} {name}"), ".PP", *_paragraphs(command), *_options(command))


def roff(text: str) -> str:
    """Text that means itself in a page: no line of it is a request, a hyphen is one that may be copied."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def write(folder: Path = MAN) -> None:
    """Write all pages, and remove those of removed commands."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in folder.glob("*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write()
    sys.stdout.write(f"{MAN.relative_to(ROOT)}: {len(pages())} pages\n")
