"""What the parts that answer administrators share: the store's files, threads to read them, who is connected, rates."""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.remoting.places import Place
from engine.remoting.loop.work_pool import WorkPool
from engine.remoting.processors.admin.broker_stats import BrokerStats
from engine.remoting.processors.admin.online import Online
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.processors.store_view import StoreView

QUEUES_MAX = 65_536  # of one topic, in one answer


class AdminShared(NamedTuple):
    """The objects that all parts for administrators share, made once."""

    store: StoreView
    pool: WorkPool
    online: Online
    stats: BrokerStats


class AdminPart(Part):
    """A part that answers some administrators' requests."""

    def __init__(self, context: PartContext, shared: AdminShared) -> None:
        super().__init__(context)
        self.metadata, self.rules = context.metadata, self.line.admin
        self.store, self.pool, self.online, self.stats = shared.store, shared.pool, shared.online, shared.stats

    def message_queues(self, topic: str, count: int) -> list[Place]:
        """The first queues of a topic, as this broker's."""
        name = self.context.config.broker_name
        return [Place(topic, name, number) for number in range(min(count, QUEUES_MAX))]

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int:
        """queryOffset: -1 where nothing is known."""
        return self.metadata.offsets.get((topic, group), {}).get(queue_id, -1)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group consumes, like whichTopicByConsumer."""
        return [topic for topic, of_group in self.metadata.offsets if of_group == group]
