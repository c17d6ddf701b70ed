"""Values of options from their text: a word, a number, yes or no; or an error that names what would do."""

from __future__ import annotations

import difflib
import json
import os
import re
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NAMES_TOLD_MAX = 100
TOLD = reprlib.Repr()
TOLD.maxstring = 400
FILE_SCHEME = "file:"
OTHER_HOST = re.compile(r"(?:^|,)\s*file://([^/,]+)", re.IGNORECASE)
PARTITIONS_MAX = 100_000  # of one read's plan: each is a task, and the driver keeps them all
MADE_BY = "`protoc --include_imports --descriptor_set_out=FILE orders.proto`"  # a set of Protobuf's descriptors
ELSEWHERE = re.compile(r"(?:^|,)\s*(?!file:)([a-z][a-z0-9+.-]*):/", re.IGNORECASE)


class InvalidOption(ValueError):
    """Raised for an unknown option or column, or a value that is not allowed.

    Next: use the name that the error proposes; `spark_bridge/USAGE.md` lists them all.
    """

    code = "INVALID_OPTION"


def option_text(value: Any) -> str:
    """An option's value as Spark's readers write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def place_of(store: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """The option that names one store, or several."""
    if isinstance(store, str | os.PathLike):
        return {"path": str(store)}
    return {"paths": json.dumps([str(path) for path in store])}


def listed(argument: str, names: Any) -> list[str] | None:
    """Return what a call was given as a list of names.

    Raises InvalidOption, also for one text: its letters are no names.
    """
    if names is None:
        return None
    each: list[Any] = list(names) if isinstance(names, Iterable) and not isinstance(names, str | bytes) else [None]
    if not all(isinstance(name, str) for name in each):
        raise InvalidOption(f"{argument}={names!r}: a list of texts, as ['a', 'b']")
    return each


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, and those there are."""
    names = list(names)
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    listed, more = ", ".join(names[:NAMES_TOLD_MAX]) or "none", len(names) - NAMES_TOLD_MAX
    return f"{hint}known: {listed}" + (f" and {more} more" if more > 0 else "")


def choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    """Return one of some words, given in any case."""
    if value.lower() not in choices:
        raise InvalidOption(f"{option}={value!r}: one of {', '.join(choices)}")
    return value.lower()


def flag(option: str, value: str) -> bool:
    """Yes or no, as Spark writes it."""
    return choice(option, value, ("true", "false")) == "true"


def count(option: str, text: str | None, least: int, most: int | None = None) -> int | None:
    """A whole number that is at least `least` and at most `most`; None when it is not given."""
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError as error:
        raise InvalidOption(f"{option}={text!r}: a whole number") from error
    if value < least:
        raise InvalidOption(f"{option}={value}: at least {least}")
    if most is not None and value > most:
        raise InvalidOption(f"{option}={value}: at most {most}")
    return value


def json_value(option: str, text: str, do: str) -> Any:
    """Return what the JSON says.

    Raises InvalidOption, too, where it would say less than its writer wrote, or what no text is.

    `do` is what would be right. Python's parser takes the last of equal names, and halves of surrogate pairs.
    """
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"{option}={TOLD.repr(text)} ({_cause(error)}): {do}") from error
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} comes twice")
    return fields


def _cause(error: Exception) -> str:
    return "a half of a surrogate pair is not a text" if isinstance(error, UnicodeEncodeError) else str(error)


def local_path(option: str, path: str) -> str:
    """The path, as it is without `file:`. Files are mapped where they lie, so others are InvalidOption."""
    elsewhere = ELSEWHERE.search(path)
    if elsewhere is not None:
        what = f"{option}={path!r}: {elsewhere[1]} cannot be mapped into memory, and a store is read where it lies"
        do = "give a directory of each executor's own host, as a slave there keeps it, or one that all of them mount"
        raise InvalidOption(f"{what}; {do}")
    host = OTHER_HOST.search(path)
    if host is not None:
        what = f"{option}={path!r}: a file: URL with a host ({host[1]!r}) is not read, files are mapped where they lie"
        raise InvalidOption(f"{what}; write file:///DIRECTORY or the directory alone")
    bare = path.removeprefix(FILE_SCHEME)
    return "/" + bare.lstrip("/") if bare.startswith("//") else bare or path


def file_of_driver(option: str, name: str, most: int) -> bytes:
    """Return what a file of the driver's host holds; it travels with the tasks. Raises InvalidOption."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidOption(f"{option}={name[:200]!r}: {reason}; a file that the driver can read") from error
    if len(data) > most:
        raise InvalidOption(f"{option}={name!r}: larger than {most} bytes; is it the right file?")
    return data
