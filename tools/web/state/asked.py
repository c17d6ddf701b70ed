"""What a request says, checked: stores by their number, whole numbers within bounds, text up to a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.web.state.errors import Refused, Unknown

TEXT_CHARACTERS_MAX = 512
LONG_MAX = (1 << 63) - 1


class Watched(NamedTuple):
    """One of the stores that the console was started for; `label` is what the user calls it."""

    number: int
    path: Path
    label: str


class Asked:
    """The parameters of one request."""

    def __init__(self, stores: Sequence[Watched], values: Mapping[str, str]) -> None:
        self.stores, self._values = stores, values

    @property
    def store(self) -> Watched:
        """The store that it is about; the first one by default. Raises Unknown."""
        number = self.whole("store", 0) or 0
        if number >= len(self.stores):
            raise Unknown(f"store {number}: there are {len(self.stores)} of them, from 0 on")
        return self.stores[number]

    def text(self, name: str) -> str:
        """Return a text, empty if missing. Raises Refused for a long one."""
        value = self._values.get(name, "")
        if len(value) > TEXT_CHARACTERS_MAX:
            raise Refused(f"{name}: longer than {TEXT_CHARACTERS_MAX} characters")
        return value

    def whole(self, name: str, low: int, high: int = LONG_MAX) -> int | None:
        """Return a whole number, None if missing. Raises Refused for an invalid one."""
        value = self._values.get(name, "").strip()
        if not value:
            return None
        if not (value.isascii() and value.isdecimal()) or len(value) > 19 or not low <= int(value) <= high:
            raise Refused(f"{name}: not a whole number from {low} to {high}")
        return int(value)
