"""Values of options from their text: a word, a number, yes or no; or an error that names what would do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

NAMES_TOLD_MAX = 100
FILE_SCHEME = "file:"
ELSEWHERE = re.compile(r"(?:^|,)\s*(?!file:)([a-z][a-z0-9+.-]*):/", re.IGNORECASE)


class InvalidOption(ValueError):
    """An option or a column that this source does not have, or a value that it cannot take."""

    code = "INVALID_OPTION"


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, and those there are."""
    names = list(names)
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    told, more = ", ".join(names[:NAMES_TOLD_MAX]) or "none", len(names) - NAMES_TOLD_MAX
    return f"{hint}known: {told}" + (f" and {more} more" if more > 0 else "")


def choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    """One of some words, in any case."""
    if value.lower() not in choices:
        raise InvalidOption(f"{option}={value!r}: one of {', '.join(choices)}")
    return value.lower()


def flag(option: str, value: str) -> bool:
    """Yes or no, as Spark writes it."""
    return choice(option, value, ("true", "false")) == "true"


def count(option: str, text: str | None, least: int) -> int | None:
    """A whole number that is at least `least`; None when it is not given."""
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError as error:
        raise InvalidOption(f"{option}={text!r}: a whole number") from error
    if value < least:
        raise InvalidOption(f"{option}={value}: at least {least}")
    return value


def local_path(option: str, path: str) -> str:
    """The path, as it is without `file:`. Files are mapped where they lie, so others are InvalidOption."""
    elsewhere = ELSEWHERE.search(path)
    if elsewhere is not None:
        told = f"{option}={path!r}: {elsewhere[1]} cannot be mapped into memory, and a store is read where it lies"
        do = "give a directory of each executor's own host, as a slave there keeps it, or one that all of them mount"
        raise InvalidOption(f"{told}; {do}")
    bare = path.removeprefix(FILE_SCHEME)
    return "/" + bare.lstrip("/") if bare.startswith("//") else bare or path
