"""Rows of names of `engine.shared_memory.clients.client_table`, very many of them, at once."""

from __future__ import annotations

from enum import IntEnum

from ipc.arrays import Words
from ipc.region import WORD_BYTES

NAME_BYTES_MAX = 256


class NameRow(IntEnum):
    """Words of a row of names: its length in bytes, then the text."""

    BYTES = 0
    TEXT = 1
    WORDS = 33


def texts_of(rows: Words) -> list[str]:
    """The names of these rows."""
    lengths, text = rows[:, NameRow.BYTES].tolist(), rows.tobytes()
    starts = range(NameRow.TEXT * WORD_BYTES, len(text), NameRow.WORDS * WORD_BYTES)
    return [
        text[start : start + min(length, NAME_BYTES_MAX)].decode(errors="replace")
        for start, length in zip(starts, lengths, strict=True)
    ]
