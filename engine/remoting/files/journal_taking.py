"""Gives a new clients role the offsets and locks that the one before it left in shared memory."""

from __future__ import annotations

from engine.protocol.clients.locks import RebalanceLockManager
from engine.remoting.files.broker_files import BrokerFiles
from engine.shared_memory.clients.client_table import ClientJournal
from store.names import CONSUMER_OFFSETS


def take_journal(journal: ClientJournal, files: BrokerFiles, locks: RebalanceLockManager) -> None:
    """Offsets and locks as the clients role before us left them; at a broker's start, offsets as the file says."""
    metadata = files.metadata
    offsets, files.on_written = metadata.consumer_offsets, journal.note_file
    for name, state in files.read_states.items():
        journal.note_file(name, state)
    if journal.is_filled:
        of_file = offsets.table if journal.is_overfull else {}
        offsets.restore({**of_file, **journal.offsets()})
        metadata.changed.add(CONSUMER_OFFSETS)
        locks.restore(journal.locks())
    else:
        journal.fill(offsets.table)
    offsets.journal = locks.journal = journal
