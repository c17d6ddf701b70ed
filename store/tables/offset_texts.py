"""consumerOffset.json, and the same as a slave asks for it, of tables with very many queues: written in steps.

Implements: ConsumerOffsetManager.encode
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from store.message.topics import is_lmq
from store.tables import fastjson
from store.tables.entry_texts import EntryTexts, object_text, table_text
from store.tables.tables import (
    DELAY_CAPACITY,
    GROUP_SEPARATOR,
    GROUP_TOPIC_CAPACITY,
    LIGHT_TABLE,
    OFFSET_TABLE,
    VERSION,
    DataVersion,
    is_of_light_group,
    java_order,
    numbers_in_order,
)

QUEUES_A_PIECE = 64
HASH_SET_CAPACITY = 8
GROUP_TOPICS = "groupTopicMap"
EMPTY = "{}"

Key = tuple[str, str]  # topic, group
Table = Mapping[Key, Mapping[int, int]]


class Written(NamedTuple):
    """Written parts that are not put together yet: that is done in one go, on a thread perhaps."""

    version: DataVersion | None
    groups: list[str] | None
    offsets: list[str]
    has_light: bool = False  # enableLmq: RocketMQ keeps the offsets of light groups in a table of their own

    def compact(self) -> bytes:
        """Return the JSON as it is sent."""
        parts = [] if self.version is None else [f'"{VERSION}":{fastjson.dumps(self.version.value())}']
        plain, light = self._apart()
        if self.groups is not None:
            parts.append(f'"{GROUP_TOPICS}":{{{",".join(self._listed_groups())}}}')
        if self.has_light:
            parts.append(f'"{LIGHT_TABLE}":{{{",".join(light)}}}')
        parts.append(f'"{OFFSET_TABLE}":{{{",".join(plain)}}}')
        return f"{{{','.join(parts)}}}".encode("utf-8", "replace")

    def pretty(self) -> bytes:
        """As consumerOffset.json says it, light groups with queue 0."""
        return self._pretty([], self.offsets)

    def pretty_light(self) -> bytes:
        """As lmqConsumerOffset.json says it."""
        plain, light = self._apart()
        return self._pretty([table_text(LIGHT_TABLE, light)], plain)

    def _pretty(self, light: list[str], offsets: list[str]) -> bytes:
        head = {} if self.version is None else {VERSION: self.version.value()}
        tables = [] if self.groups is None else [table_text(GROUP_TOPICS, self._listed_groups())]
        return object_text(head, [*tables, *light, table_text(OFFSET_TABLE, list(map(_on_lines, offsets)))])

    def _listed_groups(self) -> list[str]:
        """Those whose topics RocketMQ lists: none for light groups."""
        groups = self.groups or []
        return [text for text in groups if not is_lmq(text[1:])] if self.has_light else groups

    def _apart(self) -> tuple[list[str], list[str]]:
        """The entries of plain groups, and those of light ones, which have an offset and no queue."""
        if not self.has_light:
            return self.offsets, []
        plain, light = list[str](), list[str]()
        for text in self.offsets:
            name, _is, numbers = text.rpartition(":{")
            if is_of_light_group(name):
                light.append(f"{name}:{numbers.partition(':')[2].partition(',')[0].rstrip('}') or 0}")
            else:
                plain.append(text)
        return plain, light


def _on_lines(text: str) -> str:
    """An entry with integer keys breaks before its end only."""
    return text if text.endswith(EMPTY) else f"{text[:-1]}\n\t\t}}"


class OffsetTexts:
    """Texts of one table of offsets, which reports each of its changes."""

    def __init__(self, table: Callable[[], Table], capacity: int) -> None:
        self._table = table
        self._topics: dict[str, dict[str, None]] = {}  # by group, in the table's order
        for topic, group in table():
            self._topics.setdefault(group, {})[topic] = None
        self._offsets = EntryTexts(self._table, GROUP_SEPARATOR.join, self._entry, capacity)
        self._groups = EntryTexts(lambda: self._topics, str, self._group, GROUP_TOPIC_CAPACITY)

    def alter(self, key: Key) -> None:
        """Note that a group's offsets in a topic changed, or were removed."""
        topic, group = key
        self._offsets.alter(key)
        if (key in self._table()) == (topic in self._topics.get(group, ())):
            return
        self._groups.alter(group)
        if key in self._table():
            self._topics.setdefault(group, {})[topic] = None
            return
        del self._topics[group][topic]
        if not self._topics[group]:
            del self._topics[group]

    def resize(self, capacity: int) -> None:
        """Note that the map has another capacity now."""
        self._offsets.alter_all(capacity)

    def steps(self, *, with_topics: bool) -> Iterator[int]:
        """Write in steps like `EntryTexts.steps`; `with_topics`: also the topics of groups."""
        yield from self._offsets.steps()
        if with_topics:
            yield from self._groups.steps()

    def written(self, version: DataVersion | None, *, with_topics: bool, has_light: bool = False) -> Written:
        """What the steps came to."""
        return Written(version, self._groups.texts() if with_topics else None, self._offsets.texts(), has_light)

    def _entry(self, key: Key) -> Iterable[str] | None:
        offsets = self._table().get(key)
        return None if offsets is None else _entry_pieces(GROUP_SEPARATOR.join(key), offsets)

    def _group(self, group: str) -> Iterable[str] | None:
        topics = self._topics.get(group)
        if topics is None:
            return None
        return (f"{fastjson.dumps(group)}:{fastjson.dumps(java_order(topics, HASH_SET_CAPACITY))}",)


def _entry_pieces(name: str, offsets: Mapping[int, int]) -> Iterator[str]:
    numbers = numbers_in_order(offsets, DELAY_CAPACITY)
    yield f"{fastjson.dumps(name)}:{{"
    for start in range(0, len(numbers), QUEUES_A_PIECE):
        of_piece = [(number, offsets.get(number)) for number in numbers[start : start + QUEUES_A_PIECE]]
        between = "," if start else ""
        yield between + ",".join([f"{number}:{offset}" for number, offset in of_piece if offset is not None])
    yield "}"
