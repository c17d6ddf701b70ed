"""The writer's journal: the region of the two commit records that `engine.writer.drain_kernel` writes in turn."""

from __future__ import annotations

from pathlib import Path

from engine.writer.drain_kernel import CommitWord, JournalWord, journal_bytes
from ipc.region import Region

JOURNAL_FILE, JOURNAL_KIND, JOURNAL_LAYOUT = "journal", "journal", 1


def create_journal(directory: Path, rings: int, end_offset: int) -> None:
    """The journal of a store whose log ends at `end_offset`; made by the supervisor."""
    region = Region.create(directory / JOURNAL_FILE, journal_bytes(rings), kind=JOURNAL_KIND, layout=JOURNAL_LAYOUT)
    region.words[JournalWord.RECORDS + CommitWord.END] = end_offset
    region.close()


def attach_journal(directory: Path) -> Region:
    """The journal, for the writer. Raises RegionMissing, RegionMismatch."""
    return Region.attach(directory / JOURNAL_FILE, kind=JOURNAL_KIND, layout=JOURNAL_LAYOUT, writable=True)
