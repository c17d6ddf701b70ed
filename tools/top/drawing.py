"""Lines of text in so many cells: curves, cells of tables, cut texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from engine.net.printable import printable


class Glyphs(NamedTuple):
    """Characters that curves and tables are drawn with."""

    steps: str
    arrow: str
    cut: str
    up: str
    down: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "─▶", "…", "▴", "▾")
ASCII = Glyphs("_.-=+*%#", "->", "~", "^", "v")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return the characters that the terminal can show."""
    return UNICODE if (encoding or "").lower().replace("-", "") == "utf8" else ASCII


def curve(values: Sequence[float], width: int, glyphs: Glyphs = UNICODE, seconds: int = 300) -> str:
    """The last `seconds` samples in so many cells, the largest of each cell; the newest to the right."""
    values = values[-seconds:]
    if width < 1 or not values:
        return ""
    each = -(-len(values) // width)
    first = len(values) % each
    parts = [values[:first]] if first else []
    parts += [values[at : at + each] for at in range(first, len(values), each)]
    tops = [max(part) for part in parts]
    most, last = max(tops), len(glyphs.steps) - 1
    if most <= 0:
        return glyphs.steps[0] * len(tops)
    return "".join(glyphs.steps[min(last, -int(-top * last // most))] for top in tops)


def fitted(text: str, width: int, *, to_right: bool = False, cut: str = "…") -> str:
    """A stranger's text in exactly so many cells."""
    text = printable(text)
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + cut if width > 0 else ""
    spaces = " " * (width - cell_len(text))
    return spaces + text if to_right else text + spaces


def line_of(text: str, width: int, style: str = "") -> Text:
    """A line that is not longer than so many cells."""
    line = Text(printable(text), style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line
