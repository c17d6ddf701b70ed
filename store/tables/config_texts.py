"""A table of topics or groups as its file says it, of very many entries: what changed is written again, nothing else.

Implements: TopicConfigManager.encode, SubscriptionGroupManager.encode
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from store.tables import fastjson
from store.tables.entry_texts import STEP, EntryTexts, compact_of, object_text, table_text

ENTRY_DEPTH = 2
PLACE = "\0"  # of the entries, where JSON has no such character

Table = Mapping[str, Mapping[str, Any]]


class ConfigTexts:
    """`field` is the table's name in the file."""

    def __init__(self, field: str, table: Callable[[], Table], capacity: int) -> None:
        self._field, self._table = field, table
        self._under_way: Iterator[int] | None = None
        self._entries = EntryTexts(table, str, self._entry, capacity)

    def _entry(self, name: str) -> Iterable[str] | None:
        config = self._table().get(name)
        if config is None:
            return None
        return (f"{fastjson.dumps(name)}:{fastjson.dumps_pretty(dict(sorted(config.items())), ENTRY_DEPTH)}",)

    def alter(self, name: str) -> None:
        """An entry has come, changed or gone."""
        self._entries.alter(name)

    def alter_all(self) -> None:
        """The table is another one."""
        self._entries.alter_all()

    @property
    def is_much(self) -> bool:
        """Whether so much is to be written anew that it is better done in steps, or is being done so."""
        return self._under_way is not None or self._entries.stale > STEP

    def steps(self) -> Generator[int, None, None]:
        """Write the text in steps; what changes meanwhile is left for later. Callers in between share the work."""
        under_way = self._under_way = self._under_way or self._entries.steps()
        yield from _each(under_way)
        if self._under_way is under_way:
            self._under_way = None

    def order(self) -> list[str]:
        """The names as Java lists them, perhaps with some that are gone."""
        for _ in self.steps():
            pass
        return self._entries.order()

    def pretty(self, head: Mapping[str, Any], empty: Iterable[str] = ()) -> bytes:
        """The file, the table behind these fields, and behind it those that are empty."""
        return self.written(head, empty)()

    def written(self, head: Mapping[str, Any], empty: Iterable[str] = ()) -> Callable[[], bytes]:
        """The same as the table says it now, to be put together on a thread perhaps."""
        for _ in self.steps():
            pass
        entries = self._entries.brought_up()

        def put_together() -> bytes:
            return object_text(head, [table_text(self._field, entries), *(table_text(name, []) for name in empty)])

        return put_together

    def compact_in_steps(self, head: Mapping[str, Any], empty: Iterable[str] = ()) -> Generator[int, None, bytes]:
        """The same as the table says it now, without lines, put together in steps."""
        for _ in self.steps():
            pass
        parts = list[bytes]()
        tables = [table_text(self._field, [PLACE]), *(table_text(name, []) for name in empty)]
        before, _place, behind = compact_of(object_text(head, tables)).partition(PLACE.encode())
        for entries in filter(None, self._entries.parts()):
            text = ",".join(entries).encode("utf-8", "replace")
            parts.append((b"," if parts else b"") + compact_of(text))
            yield len(parts)
        return b"".join((before, *parts, behind))


def _each(steps: Iterator[int]) -> Iterator[int]:
    """Yield like `yield from`, but a caller that gives up does not end the steps for the others."""
    for done in steps:  # noqa: UP028
        yield done
