"""The part of the clients role that answers administrators, of several with one store, one line of threads, one count.

Implements: AdminBrokerProcessor, as far as `engine.protocol.broker.admin_requests` does not
"""

from __future__ import annotations

import logging

from engine.monitoring.series import Shown
from engine.protocol.clients.protection import EVERY_MS, SlowGroups
from engine.protocol.remoting.answers import Json
from engine.remoting.loop.work_pool import WorkPool
from engine.remoting.processors.admin.admin_orders import AdminOrders
from engine.remoting.processors.admin.admin_part import AdminPart, AdminShared
from engine.remoting.processors.admin.broker_stats import BrokerStats
from engine.remoting.processors.admin.client_metrics import ClientMetrics
from engine.remoting.processors.admin.client_overview import ClientOverview
from engine.remoting.processors.admin.client_reports import ClientReports
from engine.remoting.processors.admin.front_totals import FrontTotals
from engine.remoting.processors.admin.online import Online
from engine.remoting.processors.admin.queue_reports import QueueReports
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.processors.store_view import StoreView
from ipc.clock import monotonic_ms, wall_ms
from store.message.delay import SCHEDULE_TOPIC

log = logging.getLogger("slipstream.remoting")

THREADS, WAITING_MAX = 1, 256
PARTS: tuple[type[AdminPart], ...] = (QueueReports, ClientReports, ClientOverview, AdminOrders)


class Administration(Part):
    """All parts that answer administrators, as one."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        config, counters = context.config, context.counters
        stats = BrokerStats(counters, counters.directory, config.broker_cluster_name)
        expires = config.broker_fast_failure_enable and self.line.admin.expires_reports
        self._pool = WorkPool("reports", THREADS, WAITING_MAX, config.wait_in_admin_queue_ms if expires else None)
        self._store = StoreView(config, counters)
        shared = AdminShared(self._store, self._pool, Online(context.clients, context.links), stats)
        for part in (open_part(context, shared) for open_part in PARTS):
            self.handlers |= part.handlers
            self.later |= part.later
        self._stats = stats
        totals = FrontTotals(context.links, context.counts)
        self._client_metrics = ClientMetrics(context, shared, totals)
        self._slow, self._protect_at_ms = SlowGroups(), monotonic_ms() + EVERY_MS
        self.questions = {"pulled": self._pulled, "counted": totals.take}

    def turn(self, now_ms: int) -> None:
        """Take samples; stop groups that read too slowly, where that is wished."""
        self._stats.turn(now_ms)
        if now_ms >= self._protect_at_ms:
            self._protect_at_ms = now_ms + EVERY_MS
            self._protect()

    def _protect(self) -> None:
        context = self.context
        for group, behind in self._slow.take(context.config.consumer_fallbehind_max_bytes):
            config = context.metadata.groups.get(group)
            if config is not None and config["consumeEnable"]:
                log.warning(
                    "group %s is %d bytes behind the log's end: it may not consume again until an"
                    " administrator allows it (disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold)",
                    group,
                    behind,
                )
                context.metadata.set_group({**config, "consumeEnable": False}, wall_ms())

    def close(self) -> None:
        """Cancel reports that have not begun, and unmap the queues' ends."""
        self._pool.close()
        self._stats.close()
        self._client_metrics.close()

    async def series(self) -> list[Shown]:
        """Clients, groups, what they took and how far they are behind."""
        return await self._client_metrics.series()

    def waiting(self) -> dict[str, int]:
        """Return how many requests wait: reports here, sends and ends of transactions in the fronts."""
        fronts = self.context.counters.fronts
        ends = sum(front.ends_in_flight.read() for front in fronts)
        sends = max(0, sum(front.sends_in_flight.read() for front in fronts) - ends)
        return {"admin": self._pool.size, "send": sends, "transaction": ends}

    def figures(self) -> dict[str, str]:
        """Return what was put and got; the fronts' queues; how far delayed messages are."""
        config, fronts = self.context.config, self.context.counters.fronts
        ends = sum(front.ends_in_flight.read() for front in fronts)
        sends = max(0, sum(front.sends_in_flight.read() for front in fronts) - ends)
        delayed = {}
        for level, offset in sorted(self.context.metadata.delay_offsets.items()):
            end = self._client_metrics.end_of(SCHEDULE_TOPIC, level - 1)
            delayed[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return {
            **self._stats.figures(self.line.broker.transferred_tps_key),
            **delayed,
            "sendThreadPoolQueueSize": str(sends),
            "sendThreadPoolQueueCapacity": str(config.send_queue_capacity),
            "pullThreadPoolQueueCapacity": str(config.pull_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(max(front.send_wait_ms.read() for front in fronts)),
            "EndTransactionQueueSize": str(ends),
            "pageCacheLockTimeMills": str(max(front.writer_wait_ms.read() for front in fronts)),
            "getMessageEntireTimeMax": str(max(front.pull_longest_ms.read() for front in fronts)),
            "startAcceptSendRequestTimeStamp": str(self.context.config.accepts_sends_from_ms),
        }

    def _pulled(self, fields: Json) -> None:
        self._stats.pulled(fields)
        judges = self.context.config.disable_slow_consumers
        for topic, group, queue_id, offset, behind in fields["offsets"]:
            self.context.clients.pulled.commit(group, topic, queue_id, offset)
            if judges and behind >= 0:
                self._slow.note(group, topic, queue_id, behind)
