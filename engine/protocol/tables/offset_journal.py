"""Where the offsets of consumer groups are kept beyond the process that knows them."""

from __future__ import annotations

from typing import Protocol

Key = tuple[str, str]  # topic, group


class OffsetJournal(Protocol):
    """The place where offsets are kept beyond this process."""

    def set_offset(self, key: Key, queue_id: int, offset: int) -> bool:
        """The group is there in that queue; False where there is no room for that."""

    def clear_offset(self, key: Key, queue_id: int) -> None:
        """The group is nowhere in that queue."""


class NoJournal:
    """A journal that keeps no offsets."""

    def set_offset(self, key: Key, queue_id: int, offset: int) -> bool:
        """Do nothing; True: there is room."""
        return True

    def clear_offset(self, key: Key, queue_id: int) -> None:
        """Do nothing: no offset is kept."""
