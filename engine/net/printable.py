"""A stranger's text as it may be shown: on one line, without control characters, of bounded length."""

from __future__ import annotations

LINE_CHARACTERS_MAX = 2000


def printable(text: str) -> str:
    """The text with what is not printable escaped: no terminal takes an order from it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def one_line(text: str) -> str:
    """The same, cut where it is too long."""
    shown = printable(text)
    if len(shown) <= LINE_CHARACTERS_MAX:
        return shown
    return f"{shown[:LINE_CHARACTERS_MAX]}... ({len(shown)} characters)"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
