"""A client of a group: over which channel it speaks, who it says to be, when it was heard last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Member:
    """ClientChannelInfo. `channel` is a connection's number."""

    channel: int
    client_id: str
    language: str
    version: int
    heard_ms: int  # monotonic


class TooMany(Exception):
    """Raised when one more group, member or subscription would be more than a broker keeps; nothing has changed."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"this broker keeps no more than {most} {what}")
