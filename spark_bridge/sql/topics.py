"""Which topics of some stores have a table of their own: those with messages, and those that somebody made for them.

System topics, multi-dispatch queues, the topics that a broker names after itself and its cluster, and retry, dead
letter and reply topics without a message have none.
"""

from __future__ import annotations

from pathlib import Path

from spark_bridge.options.flights import Flights
from spark_bridge.options.read import ReadOptions
from spark_bridge.plan import inventory
from spark_bridge.plan.stores import PERM_INHERIT, REPLY_SUFFIX, resolve_stores
from spark_bridge.split.splits import Selection
from store.errors import MalformedConfig
from store.message.topics import group_of, is_lmq
from store.names import CONFIG, TOPICS
from store.tables import json_files
from store.tables.tables import topics as topics_in


def topics_of_stores(options: ReadOptions) -> list[str]:
    """Their names, sorted. Raises what finding the stores raises, and NotAStore."""
    if options.flights is not None:
        return sorted(topic for topic in _served(options.flights) if Selection(system_topics=False).admits(topic))
    topics: set[str] = set()
    for store in resolve_stores(options):
        inventory.find_extent(store.root, beyond_rot=True)  # NotAStore, or what else is wrong with it
        wanted = Selection(system_topics=options.include_system_topics)
        topics |= inventory.topics_of(store.root, wanted)
        topics |= {topic for topic in _made(store.root) if wanted.admits(topic)}
    return sorted(topics)


def _served(flights: Flights) -> set[str]:
    """Return what servers list: of each store, one that answers. Raises ServerUnreachable."""
    from spark_bridge.flight.client import RemoteStore  # gRPC is for those who need it
    from spark_bridge.flight.errors import ServerUnreachable

    topics: set[str] = set()
    for locations in flights.stores:
        for location in locations:
            try:
                with RemoteStore(location, flights.token, flights.roots) as store:
                    topics.update(name for name in store.topics() if not is_lmq(name))
                break
            except ServerUnreachable:
                if location == locations[-1]:
                    raise
    return topics


def _made(root: str) -> list[str]:
    try:
        table = topics_in(json_files.read(Path(root) / CONFIG / TOPICS))
    except MalformedConfig:  # the queues tell what has messages
        return []
    return [topic for topic, fields in table.items() if _is_for_messages(topic, fields.get("perm"))]


def _is_for_messages(topic: str, perm: object) -> bool:
    inherited = isinstance(perm, int) and bool(perm & PERM_INHERIT)
    return not inherited and group_of(topic) is None and not topic.endswith(REPLY_SUFFIX)
