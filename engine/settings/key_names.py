"""Finds what a name in a broker's file means: a known key, another spelling of one, or a key without effect.

The warnings and errors are texts without the file and the line, which the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.settings.key import Key
from engine.settings.keys import KEYS, OLD_SPELLINGS, SYNONYMS
from engine.settings.unused_keys import UNUSED

BY_NAME = {key.name: key for key in KEYS}


class Setting(NamedTuple):
    """The key that a line sets, None for one without effect; and a warning, or none."""

    key: Key | None
    warning: str | None = None


class Unacceptable(ValueError):
    """Raised for a line that stops a start; the text says why, and what to do."""


def setting_of(name: str, value: str) -> Setting:
    """Return what `name=value` sets. Raises Unacceptable."""
    known = SYNONYMS.get(name, name)
    if known in OLD_SPELLINGS:
        now = OLD_SPELLINGS[known]
        return Setting(BY_NAME[now], f"an old spelling of {now}, accepted here; RocketMQ 4.9 and 5.x ignore it")
    if known in BY_NAME:
        return Setting(BY_NAME[known])
    if (unused := UNUSED.get(known)) is None:
        raise Unacceptable(f"{name}={value}: unknown key; {hint(name, (*BY_NAME, *SYNONYMS, *OLD_SPELLINGS, *UNUSED))}")
    if unused.stops(value):
        raise Unacceptable(f"{name}={value.strip()}: not allowed; {unused.why}")
    has_default = "has no effect here; its value is RocketMQ's default"
    return Setting(None, has_default if unused.harmless is not None else unused.why)


def hint(name: str, known: Iterable[str]) -> str:
    """The known name that is most like an unknown one, as a question."""
    import difflib  # rarely: a file is mostly right

    by_lower = {candidate.lower(): candidate for candidate in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean {by_lower[nearest[0]]}?" if nearest else "no known key is similar"


def why_not_live(name: str, live: Mapping[str, object]) -> str:
    """Return why a running broker cannot change a setting, as an administrator reads it."""
    if name in UNUSED:
        return f"{name}: not changed: {UNUSED[name].why.partition(';')[0].removeprefix('without effect: ')}"
    if SYNONYMS.get(name, name) in BY_NAME or name in OLD_SPELLINGS:
        return f"{name} cannot change while the broker runs; set it in its file"
    return f"{name}: unknown key; {hint(name, (*live, *BY_NAME))}"
