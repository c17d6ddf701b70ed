"""What fronts are to know of topics, consumer groups and their subscriptions, and what of it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.tables.metadata import Metadata

RESETS, SUBSCRIPTIONS = "resets", "subscriptions"
Json = dict[str, Any]


class FrontTables:
    """Tables of one broker for its fronts. Before earlier clients are `replayed`, subscriptions would look empty."""

    def __init__(self, metadata: Metadata, consumers: ConsumerManager, replayed: Callable[[], bool]) -> None:
        self._metadata, self._consumers, self._replayed = metadata, consumers, replayed

    def tables(self) -> Iterator[str]:
        """Yield the tables that fronts may hear of now."""
        yield from ("topics", "groups", "forbidden", RESETS)
        if self._replayed():
            yield SUBSCRIPTIONS

    def _table(self, table: str) -> Mapping[Any, Any]:
        if table == SUBSCRIPTIONS:
            return self._consumers.groups
        if table == RESETS:
            return self._metadata.consumer_offsets.resets.table
        of_metadata: Mapping[Any, Any] = getattr(self._metadata, table)
        return of_metadata

    def names_in(self, table: str) -> Sequence[Any]:
        """Return what has an entry there; of resets (topic, group)."""
        return list(self._table(table))

    def entries_of(self, table: str, names: Sequence[Any]) -> Json:
        """Return what fronts are to know of these; None: it is gone."""
        values = self._table(table)
        if table == RESETS:
            return {
                "@".join(key): {str(queue): at for queue, at in values.get(key, {}).items()} or None for key in names
            }
        if table == SUBSCRIPTIONS:
            return {name: values[name].value() if name in values else None for name in names}
        return {name: values.get(name) for name in names}

    def take_altered(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield what is other than when this was asked last, or gone."""
        yield from self._metadata.take_altered()
        if resets := self._metadata.consumer_offsets.resets.take_altered():
            yield RESETS, list(resets)
        if altered := self._consumers.take_altered():
            yield SUBSCRIPTIONS, list(altered)
