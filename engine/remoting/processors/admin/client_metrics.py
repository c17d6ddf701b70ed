"""Clients and groups as metrics: who is connected, what they took, how far they are behind.

Implements: BrokerMetricsManager's metrics of connections, requests and lag
Tables are gone over in steps, with turns for others between them; queues are read on a thread. What so many queues
would have to be read for that a scrape cannot wait for it is left out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from engine.monitoring.counted import KEPT, SENT
from engine.monitoring.sent_messages import SentMessages
from engine.monitoring.series import COUNTER, GAUGE, Sample, Series, Shown
from engine.protocol.clients.client_tables import Member
from engine.protocol.clients.lag import Consuming, Lag, QueueLook, Tables, consuming, lag_of
from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.versions import version_name
from engine.remoting.processors.admin.admin_part import AdminShared
from engine.remoting.processors.admin.front_totals import FrontTotals
from engine.remoting.processors.admin.message_sizes import MessageSizes
from engine.remoting.processors.parts import PartContext
from engine.remoting.processors.store_view import StoreView
from engine.settings.store_parts import kinds_of
from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds
from engine.shared_memory.topic_table import counts_of
from ipc.arrays import Words
from ipc.clock import wall_ms
from ipc.errors import IpcError
from store.message.topics import DEAD_PREFIX, RETRY_PREFIX, is_system_topic
from store.message.unit import Unit
from store.names import CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues.consume_queue import file_bytes_of
from store.reading.queue_reader import NO_FILE, FileMaps, QueueReader

STEP = 500  # queues, or members, between two turns of the loop
LOOKS_MAX = 20_000  # queues that are read for one scrape
SCAN_MAX, MATCHED_MAX = 20_000, 5000  # maxConsumeQueueScan, sampleCountThreshold
ROWS = 1024
MAPS = 64
SYSTEM_GROUPS = "cid_rmq_sys_"
REMOTING = "remoting"
LANGUAGES = frozenset("JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS".split())
MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
TAKEN = ("topic", "consumer_group", "is_system")
BEHIND = ("consumer_group", "topic", "is_retry", "is_system")


class TooManyLooks(Exception):
    """Raised when a scrape has read as many queues as it may."""


def is_system(topic: str, group: str) -> str:
    """Whether it is RocketMQ's own affair, as a label."""
    return str(is_system_topic(topic) or group.lower().startswith(SYSTEM_GROUPS)).lower()


class ClientMetrics:
    """Metrics of one broker's clients and groups."""

    def __init__(self, context: PartContext, shared: AdminShared, totals: FrontTotals) -> None:
        self._context, self._clients, self._totals = context, context.clients, totals
        self._sent = SentMessages(context.counts)
        self._stats, self._pool, self._store = shared.stats, shared.pool, shared.store
        self._ends = self._attach()
        is_read = self._ends is not None and not context.is_slave
        self._sizes = MessageSizes(context.config, self._ends) if self._ends is not None and is_read else None

    def _attach(self) -> QueueEnds | None:
        try:
            return QueueEnds.attach(self._context.counters.directory)
        except IpcError:
            return None  # only some roles of a broker, in one process

    def close(self) -> None:
        """Unmap the ends of the queues."""
        if self._ends is not None:
            self._ends.close()
            self._ends = None

    async def series(self) -> list[Shown]:
        """Return all metrics of clients and groups."""
        sizes = await self._log_first()
        series: list[Shown] = [*await self._connections(), *self._taken(), *sizes]
        series += self._context.counts.series(what for what in KEPT if what != SENT)
        if self._ends is not None:
            series += await self._behind()
        return series

    async def _log_first(self) -> list[Shown]:
        """Return the sizes of topics: first what the log has of each, and only then what fronts know of it."""
        context, stored, shown = self._context, None, list[Shown]()
        if self._sizes is not None:
            with suppress(Refused):  # administrators ask too much just now
                stored = await self._pool.run(self._sizes.look)
        if not context.is_slave:
            shown.append(partial(self._sent.series, counts_of(context.counters.directory)))
        await self._totals.settle()
        if stored is not None:
            shown.append(self._sent.sizes(stored))
        return shown

    # who is there

    async def _connections(self) -> list[Series]:
        producers: Counter[tuple[str, ...]] = Counter()
        consumers: Counter[tuple[str, ...]] = Counter()
        seen = 0
        for of in list(self._clients.producers.groups.values()):
            for member in list(of.values()):
                producers[_language(member), version_name(member.version).lower(), REMOTING] += 1
            seen = await _step(seen + len(of))
        for name, group in list(self._clients.consumers.groups.items()):
            mode = MODES.get(group.consume_type or "", "")
            for one in list(group.members.values()):
                who = _label(name), _language(one), version_name(one.version).lower(), mode
                consumers[*who, REMOTING, is_system("", name)] += 1
            seen = await _step(seen + len(group.members))
        of_producers = ("language", "version", "protocol_type")
        of_consumers = ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system")
        return [
            Series(GAUGE, "rocketmq_producer_connections", "Producer connections", of_producers, _floats(producers)),
            Series(GAUGE, "rocketmq_consumer_connections", "Consumer connections", of_consumers, _floats(consumers)),
        ]

    # what they took

    def _taken(self) -> Iterator[Series]:
        messages: list[Sample] = []
        sizes: list[Sample] = []
        for topic, group, count, size in self._stats.got():
            if not topic.startswith((RETRY_PREFIX, DEAD_PREFIX)):
                labels = topic, group, is_system(topic, group)
                messages.append((labels, float(count)))
                sizes.append((labels, float(size)))
        yield Series(COUNTER, "rocketmq_messages_out", "Total number of outgoing messages", TAKEN, messages)
        yield Series(COUNTER, "rocketmq_throughput_out", "Total traffic of outgoing messages", TAKEN, sizes)

    # how far they are behind

    async def _behind(self) -> list[Series]:
        metadata = self._context.metadata
        tables = Tables(
            metadata.groups,
            metadata.topics,
            self._clients.consumers,
            metadata.consumer_offsets.query,
            self._clients.pulled.query,
            self.end_of,
        )
        every: list[Consuming] = []
        seen = 0
        for one in consuming(tables, self._context.counters.broker_permission.read()):
            every.append(one)
            seen = await _step(seen + 1 + len(one.queues))
        try:
            lags = await self._pool.run(_Look(self._context, self._store).lags, every, wall_ms())
        except Refused:  # administrators ask too much just now
            return []
        samples: dict[str, list[Sample]] = {name: [] for name, _unit, _what in GAUGES}
        for one, lag in lags:
            labels = one.group, one.topic, "false", is_system(one.topic, one.group)
            for name, field, _what in GAUGES:
                samples[name].append((labels, float(getattr(lag, field))))
            seen = await _step(seen + 1)
        return [Series(GAUGE, f"rocketmq_consumer_{name}", what, BEHIND, samples[name]) for name, _f, what in GAUGES]

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return where a queue ends, out of shared memory where that is; no file is opened."""
        if self._ends is None:
            return self._store.queues.view(topic, queue_id).max_offset
        slot = self._ends.find(topic.encode("utf-8", "replace"), queue_id)
        return 0 if slot == NO_SLOT else int(self._ends.next_offsets[slot])


GAUGES = (
    ("lag_messages", "lag", "Consumer lag messages"),
    ("lag_latency_milliseconds", "latency_ms", "Consumer lag time"),
    ("inflight_messages", "in_flight", "Consumer inflight messages"),
    ("queueing_latency_milliseconds", "queueing_ms", "Consumer queueing time"),
    ("ready_messages", "ready", "Consumer ready messages"),
)


class _Look(QueueLook):
    """Reads queues, on a thread; once."""

    def __init__(self, context: PartContext, store: StoreView) -> None:
        config = context.config
        self._store, self._maps, self._left = store, FileMaps(MAPS), LOOKS_MAX
        self._root = Path(config.store_path_root_dir)
        self._file_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
        self._ext_bytes = kinds_of(config).ext_file_bytes
        self._rows: Words = np.zeros((ROWS, len(Unit)), np.int64)

    def lags(self, every: list[Consuming], now_ms: int) -> list[tuple[Consuming, Lag]]:
        """Return the lags for which few enough queues have to be read."""
        known = []
        for one in every:
            try:
                known.append((one, lag_of(one, self, now_ms)))
            except TooManyLooks:
                continue
        return known

    def _look(self) -> None:
        if not self._left:
            raise TooManyLooks
        self._left -= 1

    def stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of a group's next message, not of one that expired before it was consumed."""
        self._look()
        view = self._store.queues.view(topic, queue_id)
        return view.stored_ms(max(offset, view.min_offset))

    def count(self, topic: str, queue_id: int, span: tuple[int, int], codes: tuple[int, ...] | None) -> int:
        """estimateMessageCount: of a long span from what its beginning says."""
        start, end = span
        if codes is None or start >= end:
            return max(0, end - start)
        self._look()
        reader, wanted = self._reader(topic, queue_id), np.array(codes, np.int64)
        seen = matched = 0
        while start + seen < end and seen < SCAN_MAX and matched <= MATCHED_MAX:
            count = reader.read(start + seen, end, ROWS, self._rows)
            if count in (NO_FILE, 0):
                break
            matched += int(np.isin(self._rows[:count, Unit.TAGS_CODE], wanted).sum())
            seen += count
        if not seen:
            return end - start
        return matched if start + seen >= end else int(matched * (end - start) / seen)

    def _reader(self, topic: str, queue_id: int) -> QueueReader:
        below = Path(topic) / str(queue_id)
        plain, ext = self._root / CONSUME_QUEUES / below, self._root / QUEUE_EXTENSIONS / below
        return QueueReader(self._maps, plain, self._file_bytes, ext_directory=ext, ext_file_bytes=self._ext_bytes)


def _label(name: str) -> str:
    """A stranger's word, as what can be written."""
    return name.encode("utf-8", "replace").decode()


def _language(member: Member) -> str:
    """Return a client's language in lower case, "other" where RocketMQ does not know it."""
    name = member.language.upper()
    return name.lower() if name in LANGUAGES else "other"


async def _step(seen: int) -> int:
    """Give way once that many were looked at; how many since."""
    if seen < STEP:
        return seen
    await asyncio.sleep(0)
    return 0


def _floats(counts: Counter[tuple[str, ...]]) -> list[Sample]:
    return [(labels, float(count)) for labels, count in counts.items()]
