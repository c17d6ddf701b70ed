"""What the clients role does for a master's services: writes delayOffset.json, hands 323 to the transactions role.

Implements: ScheduleMessageService.persist, its DataVersion; AdminBrokerProcessor.resumeCheckHalfMessage
The delay role says in shared memory how far it is. Half messages are put again by the transactions role: it is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from engine.protocol.remoting.answers import Json
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.services.delay import version_steps
from engine.protocol.tables.defaults import TRANSACTION_GROUP
from engine.remoting.processors.parts import Part, PartContext
from engine.shared_memory.delay_table import DelayTable
from ipc.clock import wall_ms
from ipc.errors import IpcError
from store.errors import InvalidMessage
from store.message.host import parse_message_id
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.names import DELAY_OFFSETS

VERSION_STEP = 200  # delayOffsetUpdateVersionStep
RESUME_SECONDS, RESUMING_MAX = 3.0, 1000
NOT_PUT = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
THROWN = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class ServicePart(Part):
    """The clients role's part for services of a master."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self._delays = self._attach()
        self._save_at_ms, self._is_new = 0, False  # whether the file says less
        self._numbers = itertools.count(time.monotonic_ns())  # a predecessor's are answered by the same roles
        self._resuming: dict[int, asyncio.Future[bool]] = {}
        self.later = {RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume}
        self.questions = {"transaction_offsets": self._transaction_offsets, "resumed": self._resumed}

    def _attach(self) -> DelayTable | None:
        """The table of a master."""
        if self.context.is_slave:
            return None
        try:
            return DelayTable.attach(self.context.counters.directory)
        except IpcError:
            return None  # only some roles of a broker, in one process

    def turn(self, now_ms: int) -> None:
        """Follow the delay role; have the file written each flushDelayOffsetInterval."""
        if self._delays is None or not self._delays.is_begun:
            return
        is_due = now_ms >= self._save_at_ms
        if is_due:
            self._save_at_ms = now_ms + self.context.config.flush_delay_offset_interval_ms
        self._take(self._delays, is_due=is_due)

    def _take(self, delays: DelayTable, *, is_due: bool) -> None:
        metadata = self.context.metadata
        before, now = metadata.delay_offsets, delays.current()
        after = {**before, **{level: at for level, at in now.items() if at or level in before}}
        if after != before:
            metadata.delay_offsets, metadata.delay_offsets_text = after, None
            steps = version_steps(sum(before.values()), sum(after.values()), VERSION_STEP)
            version = metadata.versions[DELAY_OFFSETS]
            if steps:
                version = version._replace(counter=version.counter + steps, timestamp_ms=wall_ms())
                metadata.versions[DELAY_OFFSETS] = version
            self._is_new = True
        if is_due and self._is_new:
            metadata.changed.add(DELAY_OFFSETS)
            self._is_new = False

    def close(self) -> None:
        """The last word of the delay role, which ended before."""
        if self._delays is not None:
            if self._delays.is_begun:
                self._take(self._delays, is_due=True)
            self._delays.close()

    # transactions

    def _transaction_offsets(self, _fields: Json) -> Json:
        """Return how far half and op messages are looked at; -1: never."""
        query = self.context.metadata.consumer_offsets.query
        offsets = {name: query(TRANSACTION_GROUP, topic, 0) for name, topic in (("half", HALF_TOPIC), ("op", OP_TOPIC))}
        return {name: -1 if offset is None else offset for name, offset in offsets.items()}

    async def _resume(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        """A half message is put back, as one that nobody was asked about."""
        fields = request.ext_fields or {}
        try:
            _host, offset = parse_message_id(fields.get("msgId", ""))
        except InvalidMessage:
            return self._said(request, THROWN)
        if self.context.is_slave or len(self._resuming) >= RESUMING_MAX:
            return self._said(request, NOT_PUT)
        number = next(self._numbers)
        done = self._resuming[number] = self.context.loop.create_future()
        self.context.links.tell_services({"what": "resume", "number": number, "offset": offset})
        try:
            return self._said(request, None if await asyncio.wait_for(done, RESUME_SECONDS) else THROWN)
        except TimeoutError:
            return self._said(request, NOT_PUT)
        finally:
            self._resuming.pop(number, None)

    def _said(self, request: RemotingCommand, remark: str | None) -> RemotingCommand:
        return self.answered(request, ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR, remark)

    def _resumed(self, fields: Json) -> None:
        """The transactions role has done it, or could not."""
        done = self._resuming.get(fields["number"])
        if done is not None and not done.done():
            done.set_result(bool(fields["is_put"]))
