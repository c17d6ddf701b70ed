"""`slipstream counters`: every counter of a running broker, read from the mapped region alone.

Watched, a second costs one copy of the words and one write: names are put into lines once.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import closing

from ipc.counters import WORDS_PER_SLOT, Counters
from store.reading.extent import require_running
from tools.common.watch import show_json, ticks

HEADINGS = ("counter", "kind", "owner", "value")
ALTERNATE, NORMAL, HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H", "\x1b[K", "\x1b[J"
VALUE_CELLS = 20  # of a 64-bit number


class Lines:
    """All counters as lines of text, in the region's order."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        rows = [HEADINGS[:3], *((view.label, view.kind, view.owner) for view in counters)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = ["  ".join(map(str.ljust, row, widths)) for row in rows]
        self._heading, self._names = f"{padded[0]}  {HEADINGS[3]:>{VALUE_CELLS}}", padded[1:]

    def now(self) -> list[str]:
        """Return the lines with the values of this moment."""
        values = self._counters.words[: len(self._names) * WORDS_PER_SLOT : WORDS_PER_SLOT].tolist()
        pairs = zip(self._names, values, strict=True)
        return [self._heading, *(f"{name}  {value:>{VALUE_CELLS}}" for name, value in pairs)]


def show(store: str, as_json: bool, watch: bool) -> int:
    """The counters of the broker that runs on STORE, once or until Ctrl-C. Raises NoBroker."""
    with closing(require_running(store).counters()) as counters:
        if as_json:
            show_json(lambda: _plain(store, counters), watch)
        elif not watch:
            sys.stdout.write("\n".join(Lines(counters).now()) + "\n")
        elif sys.stdout.isatty():
            _watch_in_place(store, Lines(counters))
        else:
            _watch_blocks(store, Lines(counters))
    return 0


def _plain(store: str, counters: Counters) -> dict[str, dict[str, str | int]]:
    require_running(store)
    return {view.label: {"kind": view.kind, "owner": view.owner, "value": view.value} for view in counters}


def _watch_in_place(store: str, lines: Lines) -> None:
    sys.stdout.write(ALTERNATE)
    try:
        for _ in ticks():
            require_running(store)
            size = shutil.get_terminal_size()
            shown = [line[: size.columns] + END_OF_LINE for line in lines.now()[: size.lines]]
            sys.stdout.write(HOME + "\r\n".join(shown) + END_OF_SCREEN)
            sys.stdout.flush()
    finally:
        sys.stdout.write(NORMAL)
        sys.stdout.flush()


def _watch_blocks(store: str, lines: Lines) -> None:
    for _ in ticks():
        require_running(store)
        sys.stdout.write("\n".join(lines.now()) + "\n\n")
        sys.stdout.flush()
