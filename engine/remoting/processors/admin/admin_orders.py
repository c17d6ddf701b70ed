"""What administrators order, and the sums that they ask for.

Implements: AdminBrokerProcessor.cleanExpiredConsumeQueue, cloneGroupOffset, ViewBrokerStatsData, cleanUnusedTopic,
    deleteExpiredCommitLog (306, 314, 315, 316, 329)
Publishes:  deletion_requests, which the housekeeper follows
Queues whose messages are gone, and those of topics that are no more, the housekeeper cleans by itself, file by file; a
queue never begins again at 0.
"""

from __future__ import annotations

from engine.protocol.broker import admin_bodies
from engine.protocol.remoting.answers import Refused, given, shown
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.store.stats_items import Stats
from engine.remoting.processors.admin.admin_part import AdminPart, AdminShared
from engine.remoting.processors.parts import PartContext
from ipc import waiting
from store.names import CONSUMER_OFFSETS


class AdminOrders(AdminPart):
    """Handlers of administrators' orders, by request code."""

    def __init__(self, context: PartContext, shared: AdminShared) -> None:
        super().__init__(context, shared)
        self.handlers = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.VIEW_BROKER_STATS_DATA: self._stats,
        }

    def _clean(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request)

    def _delete_expired(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        waiting.add(self.context.counters.deletion_requests, 1)
        return self.answered(request)

    def _clone(self, request: RemotingCommand, _channel: int, now_ms: int) -> RemotingCommand:
        """RocketMQ clones the offsets of the named topic only: without one, nothing."""
        source, target, topic = (shown(given(request, name)) for name in ("srcGroup", "destGroup", "topic"))
        offline = (given(request, "offline") or "").lower() == "true"
        offsets = self.metadata.offsets.get((topic, source))
        if topic not in self.metadata.topics or not offsets:
            return self.answered(request)
        if offline or not self.online.is_unsubscribed(source, topic):
            for queue_id, offset in dict(offsets).items():
                self.metadata.commit_offset(target, topic, queue_id, offset, now_ms)
            self.metadata.changed.add(CONSUMER_OFFSETS)
        return self.answered(request)

    def _stats(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        name, key = shown(given(request, "statsName")), shown(given(request, "statsKey"))
        spans = self.stats.spans(name, key)
        if spans is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return self.answered(request, body=admin_bodies.stats_data(*map(Stats._asdict, spans)))
