"""Tables in which every light topic (`%LMQ%...`) and every light group has an entry, although none is kept.

Implements: LmqTopicConfigManager.selectTopicConfig, LmqSubscriptionGroupManager.findSubscriptionGroupConfig
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

from engine.protocol.tables.defaults import PERM_READ_WRITE, Identity, group_config
from store.compat import Line
from store.message.topics import is_lmq
from store.tables.tables import topic_config

Value = dict[str, Any]


class LightTable(dict[str, Value]):
    """A table by name. What is looked up under a light name and missing is made, and not kept."""

    def __init__(self, made: Callable[[str], Value]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, name: str) -> Value:
        if not is_lmq(name):
            raise KeyError(name)
        return self._made(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_lmq(name))

    def get(self, name: str, default: Any = None) -> Any:
        """The entry, or that of a light name."""
        kept = super().get(name)
        return kept if kept is not None else self._made(name) if is_lmq(name) else default


def has(table: Container[str], name: str | None, of: Identity) -> bool:
    """Whether a broker has that topic or group; a light one is there without an entry."""
    return name is not None and (name in table or (of.has_light_queues and is_lmq(name)))


def light_topic(topic: str, line: Line) -> Value:
    """The configuration of a light topic: one queue."""
    return topic_config(topic, 1, 1, PERM_READ_WRITE, line=line)


def topics_of(line: Line) -> LightTable:
    """Return a table of topics in which every light topic has an entry."""
    return LightTable(partial(light_topic, line=line))


def groups_of(line: Line) -> LightTable:
    """A table of consumer groups."""
    return LightTable(partial(group_config, line=line))
