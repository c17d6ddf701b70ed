"""Answers how far groups are in queues, and where queues begin and end.

Implements: ConsumerManageProcessor's offsets; AdminBrokerProcessor's searchOffsetByTimestamp, getMaxOffset,
    getMinOffset, getEarliestMsgStoretime
Queues are read on threads of their own: the loop goes on. Where one ends is in shared memory: a consumer that begins
asks it of each of its queues in turn, and is to miss nothing that is sent meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from engine.net.log_lines import Seldom
from engine.protocol.remoting.answers import (
    NULL_POINTER,
    Json,
    Refused,
    Thrown,
    given,
    null_pointer,
    shown,
    whole_number,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables import light
from engine.protocol.tables.consumer_offsets import NoRoom
from engine.remoting.files.saves import NotSaved
from engine.remoting.loop.work_pool import WorkPool
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.processors.store_view import StoreView
from engine.remoting.sockets.server import Answered
from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds
from engine.shared_memory.queue_table import TOPIC_BYTES_MAX
from ipc.clock import wall_ms
from store.compat import Line
from store.files import file_io
from store.names import CONSUMER_OFFSETS, GIVEN_OFFSETS
from store.queues.time_search import Boundary
from store.reading.queue_view import QueueView
from store.tables.fastjson import INT32_MAX, INT32_MIN


# Where a group begins that is new in a queue: at 0, if the queue's first message is there still, and in memory.
#
# Implements: ConsumerManageProcessor.queryConsumerOffset; DefaultMessageStore.checkInDiskByConsumeOffset,
#     checkInMemByConsumeOffset
# It reads files: any thread may ask, no loop does.
def begins_at_zero(store: StoreView, topic: str, queue_id: int, memory_bytes: int, line: Line) -> bool:
    """4.9: unless the first message is further back than so much memory; 5.x: if the page cache has it.

    Of an empty queue 5.x says no, and its clients skip what is sent before they have asked for its end: DECISIONS 43.
    """
    view = store.queues.view(topic, queue_id)
    if view.min_offset > 0:
        return False
    first = view.entry(0)
    if first is None:
        return True
    if line.groups.zero_is_cached:
        return _is_in_memory(store, first.physical_offset, first.size)
    return store.max_physical_offset - first.physical_offset <= memory_bytes


def _is_in_memory(store: StoreView, physical_offset: int, size: int) -> bool:
    base = store.files.base_of(physical_offset)
    try:
        return _is_cached(store.files.path_of(base), physical_offset - base, size)
    except OSError:
        return False


def _is_cached(path: Path, at: int, size: int) -> bool:
    """Whether that part of a file can be read without its disk."""
    fd = file_io.open_file(path, writable=False)
    try:
        return os.preadv(fd, [bytearray(size)], at, os.RWF_NOWAIT) == size
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


log = logging.getLogger("slipstream.remoting")

THREADS, WAITING_MAX = 2, 20_000  # queryThreadPoolQueueCapacity
NOT_YET = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
RESET = "Offset has been previously reset"  # and who says how far it is has not heard of it
NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"


class OffsetProcessor(Part):
    """Requests about offsets, for one broker."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self._store, self._pool = StoreView(context.config, context.counters), WorkPool("queues", THREADS, WAITING_MAX)
        self._ends = QueueEnds.attach(context.counters.directory)
        self._save_at_ms = self._saved_commits = 0
        self._went_back = False  # the last commit set its group back: nobody but an administrator does that
        self._seldom = Seldom(log)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._memory_bytes = memory * context.config.memory_max_percent // 100
        self.handlers = {RequestCode.UPDATE_CONSUMER_OFFSET: self._update}
        self.later = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
        }
        self.questions = {"commit_offset": self._commit_of_pull, "reset_heard": self._reset_heard}

    def begin(self, request: RemotingCommand, channel: int, now_ms: int) -> Answered | Awaitable[Answered]:
        """A commit that sets a group back is an administrator's reset: it is on disk before it is answered."""
        self._went_back = False
        answer = super().begin(request, channel, now_ms)
        if request.code != RequestCode.UPDATE_CONSUMER_OFFSET or not self._went_back or answer is None:
            return answer
        return self._finish(request, self._once_saved(answer))

    async def _once_saved(self, answer: Answered | Awaitable[Answered]) -> RemotingCommand:
        assert isinstance(answer, RemotingCommand)
        try:
            await self.context.saved((CONSUMER_OFFSETS,))
        except NotSaved as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return answer

    def turn(self, now_ms: int) -> None:
        """Have the file follow, each interval."""
        if now_ms >= self._save_at_ms:
            self._save_at_ms = now_ms + self.context.config.flush_consumer_offset_interval_ms
            self._have_saved()

    def _have_saved(self) -> None:
        metadata = self.context.metadata
        if metadata.consumer_offsets.commits != self._saved_commits:
            self._saved_commits = metadata.consumer_offsets.commits
            metadata.changed |= {CONSUMER_OFFSETS, *([GIVEN_OFFSETS] if self.context.is_slave else [])}

    def waiting(self) -> dict[str, int]:
        """Return how many requests for offsets wait."""
        return {"consumer_manager": self._pool.size}

    def close(self) -> None:
        """Save what slaves committed, cancel waiting work, and unmap the queues' ends."""
        self._have_saved()
        self._pool.close()
        self._ends.close()

    # how far groups are

    def _update(self, request: RemotingCommand, channel: int, now_ms: int) -> RemotingCommand:
        group, topic = given(request, "consumerGroup"), given(request, "topic")
        queue_id = whole_number(request, "queueId", INT32_MIN, INT32_MAX)
        offset = whole_number(request, "commitOffset")
        if self.line.groups.checks_commits:
            try:
                self._check_commit(group, topic, queue_id, offset)
            except Refused as refused:
                return self.answered(request, refused.code, refused.remark, ext_fields={})
        if group is None or topic is None or queue_id is None or offset is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('java.lang.Integer.intValue()', 'a field')}")
        if self.context.metadata.consumer_offsets.resets.has((topic, group), queue_id):
            return self.answered(request, remark=RESET, ext_fields={})
        self._commit(group, topic, queue_id, offset, str(self.context.links.channels.get(channel)), now_ms)
        return self.answered(request, ext_fields={})

    def _check_commit(self, group: str | None, topic: str | None, queue_id: int | None, offset: int | None) -> None:
        metadata = self.context.metadata
        if not light.has(metadata.groups, group, metadata.identity):
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {shown(group)} not exist!")
        if not light.has(metadata.topics, topic, metadata.identity):
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {shown(topic)} not exist!")
        if queue_id is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if offset is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")

    def _commit_of_pull(self, fields: Json) -> None:
        group, topic, host = (str(fields[name]) for name in ("group", "topic", "host"))
        if self.context.metadata.consumer_offsets.resets.has((topic, group), int(fields["queueId"])):
            return
        with suppress(Refused):  # it is said
            self._commit(group, topic, int(fields["queueId"]), int(fields["offset"]), host, wall_ms())

    def _reset_heard(self, fields: Json) -> Json:
        key, queue_id = (str(fields["topic"]), str(fields["group"])), int(fields["queueId"])
        self.context.metadata.consumer_offsets.resets.erase(key, queue_id, int(fields["offset"]))
        return {}

    def _commit(self, group: str, topic: str, queue_id: int, offset: int, host: str, now_ms: int) -> None:
        try:
            before = self.context.metadata.commit_offset(group, topic, queue_id, offset, now_ms)
        except NoRoom as no_room:
            self._seldom.tell("an offset of %s in %s was not stored: %s", group, topic, no_room)
            raise Refused(ResponseCode.SYSTEM_BUSY, str(no_room)) from None
        if self.context.is_slave:
            self.context.metadata.give_offset(group, topic, queue_id, offset)
        if before is not None and offset < before:
            self._went_back = True
            self.context.metadata.changed.add(CONSUMER_OFFSETS)
            what = "%s moves %s back from %d to %d in queue %d of topic %s"
            self._seldom.tell(what, host, group, before, offset, queue_id, topic)

    async def _query(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group = given(request, "consumerGroup")
        topic, queue_id = self._queue_of(request)
        offset = self.context.metadata.consumer_offsets.query(group or "", topic, queue_id)
        if offset is not None and offset >= 0:
            return self.answered(request, ext_fields={"offset": str(offset)})
        remark = NOT_YET
        if self.line.groups.zero_is_cached and given(request, "setZeroIfNotFound") == "false":
            remark = NOT_ZERO
        elif self._end_of(topic, queue_id) == 0 or await self._pool.run(
            begins_at_zero, self._store, topic, queue_id, self._memory_bytes, self.line
        ):
            return self.answered(request, ext_fields={"offset": "0"})
        return self.answered(request, ResponseCode.QUERY_NOT_FOUND, remark, ext_fields={})

    async def _all(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        return self.answered(request, body=await self.context.offsets.compact())

    # where queues begin and end

    async def _max(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        end = self._end_of(*self._queue_of(request))
        if end is None:
            view = await self._view_of(request)
            end = await self._pool.run(lambda: view.max_offset)
        return self._offset(request, end)

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        """Return where the dispatcher shows a queue to end; None where its files have to say."""
        name = topic.encode("utf-8", "replace")
        if topic not in self.context.metadata.topics or len(name) > TOPIC_BYTES_MAX:
            return None
        slot = self._ends.find(name, queue_id)
        if slot != NO_SLOT:
            return int(self._ends.next_offsets[slot])
        return None if self._store.queues.view(topic, queue_id).is_there else 0

    async def _min(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        view = await self._view_of(request)
        offset = await self._pool.run(lambda: view.min_offset)
        remark = "" if self.line.groups.least_offset_has_remark else None
        return self.answered(request, remark=remark, ext_fields={"offset": str(offset)})

    async def _search(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        view = await self._view_of(request)
        timestamp_ms = self._number(request, "timestamp", whole_number(request, "timestamp"))
        is_upper = (given(request, "boundaryType") or "").upper() == Boundary.UPPER.name
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        return self._offset(request, await self._pool.run(lambda: view.offset_at(timestamp_ms, boundary)))

    async def _earliest(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        view = await self._view_of(request)
        stored_ms = await self._pool.run(lambda: view.earliest_ms)
        return self.answered(request, ext_fields={"timestamp": str(stored_ms)})

    def _offset(self, request: RemotingCommand, offset: int) -> RemotingCommand:
        return self.answered(request, ext_fields={"offset": str(offset)})

    async def _view_of(self, request: RemotingCommand) -> QueueView:
        """The queue that is asked about, as it is now."""
        return await self._pool.run(self._store.queues.view, *self._queue_of(request))

    def _queue_of(self, request: RemotingCommand) -> tuple[str, int]:
        """The queue that is asked about. Raises Thrown."""
        topic = given(request, "topic")
        if topic is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('Object.hashCode()', chr(34) + 'key' + chr(34))}")
        return topic, self._number(request, "queueId", whole_number(request, "queueId", INT32_MIN, INT32_MAX))

    def _number(self, _request: RemotingCommand, name: str, number: int | None) -> int:
        if number is None:
            what = f'the return value of "get{name[0].upper()}{name[1:]}()"'
            raise Thrown(f"{NULL_POINTER}: {null_pointer('java.lang.Number.intValue()', what)}")
        return number
