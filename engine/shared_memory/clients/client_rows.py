"""The rows of `shared_memory.clients.client_table` as they lie there: for who counts over very many of them at once."""

from __future__ import annotations

from pathlib import Path

from engine.shared_memory.clients.client_table import FILE, LAYOUT, NAMES, OFFSETS, REGION_KIND, ClientTable
from ipc.arrays import Words
from ipc.region import Region


class ClientRows(ClientTable):
    """The table, as one reads it who wants columns; copies of this moment."""

    @classmethod
    def attach(cls, directory: Path) -> ClientRows:
        """Attach to a running broker's client table. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / FILE, kind=REGION_KIND, layout=LAYOUT))

    def offset_rows(self) -> Words:
        """Rows of `OffsetRow`, those that nobody has, too."""
        return self._read(OFFSETS)

    def name_rows(self) -> Words:
        """Rows of `NameRow`, by the numbers that the others have for them."""
        return self._read(NAMES)
