"""Offsets that an administrator set, until the consumer that pulls the queue next has heard of them.

Implements: ConsumerOffsetManager.resetOffsetTable of 5.x (useServerSideResetOffset)
Kept beyond this process in the journal of offsets, under a group's name that no group has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.protocol.tables.offset_journal import Key, OffsetJournal

MARK = "\0"  # before the group's name in the journal


class ResetOffsets:
    """Offsets still to be heard, by topic and group, then queue id. `journal` is the offsets' journal."""

    def __init__(self, journal: OffsetJournal) -> None:
        self.journal = journal
        self.table: dict[Key, dict[int, int]] = {}
        self._altered: set[Key] = set()

    def assign(self, key: Key, queue_id: int, offset: int) -> bool:
        """Say so to the next pull; False where there is no room for that."""
        if not self.journal.set_offset(_marked(key), queue_id, offset):
            return False
        self.table.setdefault(key, {})[queue_id] = offset
        self._altered.add(key)
        return True

    def has(self, key: Key, queue_id: int) -> bool:
        """Whether no pull has heard of it yet."""
        return queue_id in self.table.get(key, ())

    def erase(self, key: Key, queue_id: int, offset: int) -> None:
        """A pull has heard of this one; not of another one that was set since."""
        of_key = self.table.get(key, {})
        if of_key.get(queue_id) != offset:
            return
        del of_key[queue_id]
        if not of_key:
            del self.table[key]
        self.journal.clear_offset(_marked(key), queue_id)
        self._altered.add(key)

    def remove(self, keys: Iterable[Key]) -> None:
        """Forget the offsets of all queues of these keys."""
        for key in keys:
            for queue_id, offset in list(self.table.get(key, {}).items()):
                self.erase(key, queue_id, offset)

    def restored(self, journal: Mapping[Key, dict[int, int]]) -> dict[Key, dict[int, int]]:
        """Begin with what the process before knew; what else the journal has: how far groups are."""
        self.table = {(topic, group[1:]): of for (topic, group), of in journal.items() if group.startswith(MARK)}
        return {key: of for key, of in journal.items() if not key[1].startswith(MARK)}

    def take_altered(self) -> list[Key]:
        """Return the keys that changed since the last call, and clear them."""
        altered, self._altered = sorted(self._altered), set()
        return altered


def _marked(key: Key) -> Key:
    return key[0], MARK + key[1]
