"""Other masters of this broker's name, as it has seen them last: a file beside the regions, for all views.

A master's clients role writes it, and removes it once there is none. It goes with the regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store.notes import summed_json
from store.notes.summed_json import Damaged

NAME, RIVALS_MAX = "rivals", 8


class Rival(NamedTuple):
    """Another master; `verdict` is what `engine.protocol.ha.reign` calls it, `ha_address` where its log comes from."""

    verdict: str
    broker: str
    epoch: int
    address: str
    ha_address: str


def write(directory: Path, rivals: Sequence[Rival]) -> None:
    """Note them in the place of those before. Raises OSError."""
    if not rivals:
        with suppress(FileNotFoundError):
            (directory / NAME).unlink()
        return
    summed_json.write(directory / NAME, {"rivals": [one._asdict() for one in rivals[:RIVALS_MAX]]})


def read(directory: Path) -> list[Rival]:
    """Return the rivals seen last; an empty list where the file is damaged."""
    kinds = {"verdict": str, "broker": str, "epoch": int, "address": str, "ha_address": str}
    try:
        said = (summed_json.read(directory / NAME) or {}).get("rivals", [])
        whole = [one for one in said if {name: type(value) for name, value in one.items()} == kinds]
        return [Rival(**one) for one in whole]
    except (Damaged, OSError, AttributeError, TypeError):
        return []
