"""What a front knows of topics, consumer groups and subscriptions: what the clients role says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.protocol.tables import light
from store.compat import Line

Json = dict[str, Any]
TOPICS, GROUPS, SUBSCRIPTIONS, RESETS, FORBIDDEN = "topics", "groups", "subscriptions", "resets", "forbidden"
NEEDED = frozenset({TOPICS, GROUPS, SUBSCRIPTIONS})  # the other tables arrive before these


class Tables:
    """The tables by name. `is_complete` is False until the clients role has sent all of them once.

    topics: TopicConfig by name; groups: SubscriptionGroupConfig by name; subscriptions: by group what its consumers
    say in their heartbeats (`engine.protocol.clients`), for as long as there are any; resets: what pulls are to hear;
    forbidden: what a group may not use of a topic.
    """

    def __init__(self, light_of: Line | None = None) -> None:
        """`light_of`: the release line whose light topics and groups are there without an entry (enableLmq)."""
        every = (TOPICS, GROUPS, SUBSCRIPTIONS, RESETS, FORBIDDEN)
        self._tables: dict[str, dict[str, Json]] = {table: {} for table in every}
        if light_of is not None:
            self._tables |= {TOPICS: light.topics_of(light_of), GROUPS: light.groups_of(light_of)}
        self._coming: dict[str, dict[str, Json]] = {}  # whole tables of which the end has not come
        self._complete: set[str] = set()
        self._followers: list[Callable[[str, str | None], None]] = []

    @property
    def topics(self) -> dict[str, Json]:
        """TopicConfig of each topic, by its name."""
        return self._tables[TOPICS]

    @property
    def groups(self) -> dict[str, Json]:
        """SubscriptionGroupConfig of each consumer group, by its name."""
        return self._tables[GROUPS]

    @property
    def subscriptions(self) -> dict[str, Json]:
        """Subscriptions of each group, from its consumers' heartbeats."""
        return self._tables[SUBSCRIPTIONS]

    @property
    def forbidden(self) -> dict[str, Json]:
        """Bits of what a group may not use of a topic, by group, then topic."""
        return self._tables[FORBIDDEN]

    @property
    def resets(self) -> dict[str, Json]:
        """Offsets by queue id that the next pulls hear, by topic@group."""
        return self._tables[RESETS]

    @property
    def is_complete(self) -> bool:
        """Return whether all tables arrived once: before that, a missing name means nothing."""
        return self._complete >= NEEDED

    def follow(self, on_change: Callable[[str, str | None], None]) -> None:
        """Register `on_change(table, name)` for each entry that changes; `None`: all of the table."""
        self._followers.append(on_change)

    def take(self, fields: Json) -> None:
        """Take entries that the clients role sent for a table (name to value, null: gone)."""
        name, entries = fields["table"], fields["entries"]
        table = self._tables.setdefault(name, {})
        if not fields.get("whole"):
            _change(table, entries)
            _change(self._coming.get(name, {}), entries)
            for key in entries:
                self._changed(name, key)
            return
        if fields["begins"]:
            self._coming[name] = {}
        elif name not in self._coming:
            return  # who was here before us heard the beginning
        _change(self._coming[name], entries)
        if fields["ends"]:
            table.clear()
            table.update(self._coming.pop(name))
            self._complete.add(name)
            self._changed(name, None)

    def _changed(self, table: str, name: str | None) -> None:
        for on_change in self._followers:
            on_change(table, name)


def _change(table: dict[str, Json], entries: Mapping[str, Json | None]) -> None:
    for key, value in entries.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
