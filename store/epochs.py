"""An epoch: one master's reign over a log, and how it is written as JSON, in a store's file and on the wire."""

from __future__ import annotations

from typing import Any, NamedTuple

ENTRIES_MAX = 1000  # more are forgotten, the oldest first
TEXT_MAX = 600
INT64_MAX = (1 << 63) - 1
EPOCH_MAX = 1 << 62  # of what others say: the promotions after it still have numbers


class Epoch(NamedTuple):
    """One master's reign: its log's bytes from `start_offset` on were written by `broker`, up to the next epoch's."""

    epoch: int
    start_offset: int
    broker: str
    at_ms: int


def entry_fields(one: Epoch) -> dict[str, Any]:
    """An epoch as JSON, in the file and on the wire."""
    return {"epoch": one.epoch, "start_offset": one.start_offset, "broker": one.broker, "at_ms": one.at_ms}


def entries_of(said: Any, epoch_max: int = EPOCH_MAX) -> tuple[Epoch, ...]:
    """Epochs out of a stranger's JSON: growing numbers, offsets that never fall. Raises ValueError."""
    if not isinstance(said, list) or len(said) > ENTRIES_MAX:
        raise ValueError("its epochs are not a valid list")
    entries: list[Epoch] = []
    for one in said:
        require_fields(one, "epoch", "start_offset", "broker", "at_ms")
        number, start = number_of(one, "epoch", 1), number_of(one, "start_offset")
        entry = Epoch(number, start, text_of(one, "broker"), number_of(one, "at_ms"))
        if entry.epoch > epoch_max:
            raise ValueError(f"its epoch {entry.epoch} is above {epoch_max}")
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise ValueError("its epochs are not in order")
        entries.append(entry)
    return tuple(entries)


def require_fields(fields: Any, *names: str) -> None:
    """An object with these fields and no others. Raises ValueError."""
    if not isinstance(fields, dict) or set(fields) != set(names):
        raise ValueError(f"its fields are not {', '.join(names)}")


def number_of(fields: dict[str, Any], name: str, low: int = 0) -> int:
    """A whole number that a file may hold. Raises ValueError."""
    value = fields[name]
    if type(value) is not int or not low <= value <= INT64_MAX:
        raise ValueError(f"{name} is not an allowed whole number")
    return value


def text_of(fields: dict[str, Any], name: str) -> str:
    """A text that may be shown. Raises ValueError."""
    value = fields[name]
    if not isinstance(value, str) or len(value) > TEXT_MAX or not value.isprintable():
        raise ValueError(f"{name} is not an allowed text")
    return value
