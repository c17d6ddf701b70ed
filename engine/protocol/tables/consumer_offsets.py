"""How far every consumer group is in every queue of its topics: the next offset to consume.

Implements: ConsumerOffsetManager
`journal` hears of every change at once: what it keeps outlives this process, which the file does not say yet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from engine.protocol.tables.offset_journal import Key, NoJournal, OffsetJournal
from store.message.topics import is_lmq
from store.names import CONSUMER_OFFSETS
from store.tables import tables as broker_tables
from store.tables.offset_texts import HASH_SET_CAPACITY, OffsetTexts
from store.tables.steps import at_once
from store.tables.tables import QUEUES_A_STEP, DataVersion

# Offsets that an administrator set, until the consumer that pulls the queue next has heard of them.
#
# Implements: ConsumerOffsetManager.resetOffsetTable of 5.x (useServerSideResetOffset)
# Kept beyond this process in the journal of offsets, under a group's name that no group has.
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


QUEUES_MAX = 1 << 20  # of all groups: of what clients say, no more is kept
LOADED_CAPACITY = 8  # 16 buckets: the map that fastjson makes from a file

Value = dict[str, Any]


class NoRoom(Exception):
    """Raised when one more offset would be more than a broker keeps; nothing has changed."""

    def __init__(self) -> None:
        super().__init__(f"this broker keeps no more than {QUEUES_MAX} offsets, of groups and topics with usual names")


class ConsumerOffsets:
    """The table, as a file says it at the start. Raises MalformedConfig."""

    def __init__(self, value: Value, *, has_light: bool = False) -> None:
        self.has_light = has_light  # a light group has one offset in a topic, whatever queue it names
        self.table: dict[Key, dict[int, int]] = broker_tables.consumer_offsets(value, CONSUMER_OFFSETS)
        self._journal: OffsetJournal = NoJournal()
        self.resets = ResetOffsets(self._journal)
        self.commits = 0
        self.given_here: dict[Key, dict[int, int]] = {}  # committed to this slave: still to be sent to its master
        self._capacity = LOADED_CAPACITY if value else broker_tables.OFFSET_CAPACITY
        self._queues = sum(map(len, self.table.values()))
        self.texts = OffsetTexts(lambda: self.table, self._capacity)

    @property
    def journal(self) -> OffsetJournal:
        """Return the journal, which gets every change."""
        return self._journal

    @journal.setter
    def journal(self, journal: OffsetJournal) -> None:
        self._journal = self.resets.journal = journal

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group is; None where nobody said."""
        queue_id = 0 if self.has_light and is_lmq(group) else queue_id
        return self.table.get((topic, group), {}).get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """commitOffset: where the group was before, None where nobody had said. Raises NoRoom."""
        if group.startswith(MARK):  # the journal would take it for a reset
            raise NoRoom
        before = self._set((topic, group), 0 if self.has_light and is_lmq(group) else queue_id, offset)
        self.commits += 1
        return before

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """assignResetOffset: the group goes on there, once who pulls has heard of it. Raises NoRoom."""
        key = topic, group
        for queue_id, offset in offsets.items():
            if not self.resets.assign(key, queue_id, offset):
                raise NoRoom
            self._set(key, queue_id, offset)

    def _set(self, key: Key, queue_id: int, offset: int) -> int | None:
        of_key = self.table.get(key)
        before = of_key.get(queue_id) if of_key is not None else None
        if (before is None and self._queues >= QUEUES_MAX) or not self.journal.set_offset(key, queue_id, offset):
            raise NoRoom
        if of_key is None:
            of_key = self.table[key] = {}
        self._queues += before is None
        of_key[queue_id] = offset
        self.texts.alter(key)
        return before

    def take(self, taken: Mapping[Key, Mapping[int, int]], *, never_back: bool) -> Generator[int, None, bool]:
        """Replace own offsets by the master's, except those that the master lacks; return whether anything changed.

        In steps of so many queues; of a key all offsets are taken in the same one.
        """
        changed = False
        for key, offsets in taken.items():
            kept = self.table.get(key, {})
            now = dict(offsets)
            if never_back:
                now = {**kept, **{queue: max(offset, kept.get(queue, offset)) for queue, offset in offsets.items()}}
            if now != kept or key not in self.table:
                yield from self._replace(key, now)
                changed = True
            yield len(now)
        if self._capacity != broker_tables.OFFSET_CAPACITY:
            self._capacity = broker_tables.OFFSET_CAPACITY  # RocketMQ makes another map
            self.texts.resize(self._capacity)
        return changed

    def restore(self, table: Mapping[Key, dict[int, int]]) -> None:
        """Take over the offsets of the process before this one, which the journal keeps already."""
        self.table = self.resets.restored(table)
        self._queues = sum(map(len, self.table.values()))
        self.texts = OffsetTexts(lambda: self.table, self._capacity)

    def _replace(self, key: Key, now: dict[int, int]) -> Generator[int, None, None]:
        """Replace a key's offsets, and write the changes to the journal in steps: what the table has by then."""
        before = self.table.get(key, {})
        self.table[key] = now
        self.texts.alter(key)
        self._queues += len(now) - len(before)
        altered = [queue_id for queue_id in before if queue_id not in now]
        altered += [queue_id for queue_id, offset in now.items() if before.get(queue_id) != offset]
        for start in range(0, len(altered), QUEUES_A_STEP):
            if start:
                yield QUEUES_A_STEP
            of_key = self.table.get(key, {})
            for queue_id in altered[start : start + QUEUES_A_STEP]:
                if (offset := of_key.get(queue_id)) is None:
                    self.journal.clear_offset(key, queue_id)
                else:
                    self.journal.set_offset(key, queue_id, offset)

    def remove(self, keys: Iterable[Key]) -> bool:
        """Forget these; whether there were any."""
        removed, forgotten = False, list(keys)
        for key in forgotten:
            self.given_here.pop(key, None)
        self.resets.remove(forgotten)
        for key in forgotten:
            if key in self.table:
                at_once(self._replace(key, {}))
                del self.table[key]
                self.texts.alter(key)
                removed = True
        return removed

    def of_group(self, group: str) -> list[Key]:
        """The topics that a group consumed, as keys."""
        return [key for key in self.table if key[1] == group]

    def of_topic(self, topic: str) -> list[Key]:
        """The groups that consumed a topic, as keys."""
        return [key for key in self.table if key[0] == topic]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that consumed a topic, in Java's order."""
        of_topic = {broker_tables.GROUP_SEPARATOR.join(key): key[1] for key in self.of_topic(topic)}
        names = broker_tables.java_order(of_topic, self._capacity)
        return broker_tables.hash_map_order(of_topic[name] for name in names)

    def value(self, version: DataVersion | None, *, with_topics: bool) -> Value:
        """Return the value that the file's JSON has."""
        group_topics = self._group_topics() if with_topics else None
        return broker_tables.consumer_offsets_value(
            self.table, version, group_topics, self._capacity, light=self.has_light
        )

    def _group_topics(self) -> dict[str, list[str]]:
        by_group: dict[str, list[str]] = {}
        for topic, group in self.table:
            if self.has_light and is_lmq(group):
                continue
            by_group.setdefault(group, []).append(topic)
        return {group: broker_tables.java_order(names, HASH_SET_CAPACITY) for group, names in by_group.items()}
