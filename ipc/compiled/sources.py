"""Which of our sources a module is made of: its own and all that it imports, as one short name for what they say.

Compiled code holds constants and inlined functions of other modules; what was compiled from them is of no use once one
of them has changed. Imports are found in the text, so nothing is imported to know them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ipc.module_names import PACKAGES, PREFIX, SOURCES

STATE_DIGITS = 16
COMPILER = SOURCES / "ipc" / "compiled" / "compiler.py"
_OURS = rf"(?:{PREFIX.rstrip('.') or '|'.join(PACKAGES)})\b[\w.]*"
_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+(?P<of>{_OURS})[ \t]+import[ \t]+(?P<names>\([^)]*\)|(?:[^\n\\]|\\\n)*)"
    rf"|import[ \t]+(?P<whole>(?:[^\n\\]|\\\n)*))",
    re.MULTILINE,
)


def state_of(file: Path) -> str:
    """Return a name of 16 hexadecimal digits for the content of `file` and of every module that it needs.

    Modules are followed through all folders. A module that changes, appears, or goes gives another name.
    """
    digest = hashlib.sha256()
    for path in files_of(file):
        text = path.read_bytes()
        digest.update(b"%s\0%d\0" % (str(_within(path)).encode(), len(text)))
        digest.update(text)
    return digest.hexdigest()[:STATE_DIGITS]


def files_of(file: Path) -> list[Path]:
    """Return `file`, the files of all modules that it needs, and those of what compiles it, in order."""
    return sorted({file, *_reached(file), COMPILER, *_reached(COMPILER)})


def _within(path: Path) -> Path:
    """The path as every copy of the sources has it."""
    return path.relative_to(SOURCES) if path.is_relative_to(SOURCES) else Path(path.name)


def _reached(file: Path) -> set[Path]:
    reached: set[Path] = set()
    to_read = [file]
    while to_read:
        for path in _needed_by(to_read.pop()):
            if path not in reached:
                reached.add(path)
                to_read.append(path)
    return reached


@cache
def _needed_by(file: Path) -> frozenset[Path]:
    """The files of the modules that one file's import statements name, and of the packages that they lie in."""
    modules = set(_imported(file.read_text(encoding="utf-8")))
    packages = {name[: dot.start()] for name in modules for dot in re.finditer(r"\.", name)}
    return frozenset(path for name in modules | packages if (path := _file_of(name)) is not None)


def _imported(text: str) -> Iterator[str]:
    for match in _IMPORT.finditer(text):
        package, names, whole = match.group("of", "names", "whole")
        if package is None:
            yield from re.findall(rf"\b{_OURS}", whole)
            continue
        yield package
        for name in re.findall(r"\w+", names):
            yield f"{package}.{name}"


def _file_of(module: str) -> Path | None:
    path = SOURCES.joinpath(*module.removeprefix(PREFIX).split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None
