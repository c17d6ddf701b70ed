"""The part of the clients role that looks messages up: by key, by unique key, by offset.

Implements: QueryMessageProcessor (12, 33); spec: remoting, 7 client requests
Files are read on threads; an answer has as many records as fit a frame.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.protocol.remoting.answers import Refused, Thrown, given, no_value, shown, whole_number
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from engine.remoting.loop.work_pool import WorkPool
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.processors.store_view import StoreView
from store.tables.fastjson import INT32_MAX, INT32_MIN

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
THREADS, WAITING_MAX = 2, 1024
BODY_BYTES_MAX = 12 * 1024 * 1024
NOTHING = "can not find message, maybe time range not correct"


class Queries(Part):
    """Handlers of queries for messages, by request code."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self._store = StoreView(context.config, context.counters)
        self._query_max_num = context.config.query_max_num
        self.pool = WorkPool("queries", THREADS, WAITING_MAX)
        self.later = {RequestCode.QUERY_MESSAGE: self._query, RequestCode.VIEW_MESSAGE_BY_ID: self._view}

    def figures(self) -> dict[str, str]:
        """Return how many wait to be looked up, and how long the first of them does."""
        wait_ms = str(self.pool.head_wait_ms)
        return {"queryThreadPoolQueueSize": str(self.pool.size), "queryThreadPoolQueueHeadWaitTimeMills": wait_ms}

    def waiting(self) -> dict[str, int]:
        """Return how many queries for messages wait."""
        return {"query_message": self.pool.size}

    def close(self) -> None:
        """Cancel queries that have not begun."""
        self.pool.close()

    async def _query(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        topic, key = shown(given(request, "topic")), shown(given(request, "key"))
        header = "QueryMessageRequestHeader"
        if given(request, UNIQUE_KEY_QUERY) == "true":
            max_num: int = self._query_max_num
        else:
            wanted = whole_number(request, "maxNum", INT32_MIN, INT32_MAX)
            max_num = self._needed(wanted, header, "getMaxNum", "java.lang.Integer.intValue()")
        long_value = "java.lang.Long.longValue()"
        begin_ms = self._needed(whole_number(request, "beginTimestamp"), header, "getBeginTimestamp", long_value)
        end_ms = self._needed(whole_number(request, "endTimestamp"), header, "getEndTimestamp", long_value)
        if max_num < 0:
            raise Thrown(f"java.lang.IllegalArgumentException: Illegal Capacity: {max_num}")
        search = self._store.search
        answer = await self.pool.run(search.query, topic, key, max_num, begin_ms, end_ms, BODY_BYTES_MAX)
        ext = {
            "indexLastUpdatePhyoffset": str(answer.last_physical_offset),
            "indexLastUpdateTimestamp": str(answer.last_update_ms),
        }
        if answer.records:
            return self._in_json(request, b"".join(answer.records), ext)
        return self.answered(request, ResponseCode.QUERY_NOT_FOUND, NOTHING, ext)

    async def _view(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        offset = whole_number(request, "offset")
        at = self._needed(offset, "ViewMessageRequestHeader", "getOffset", "java.lang.Long.longValue()")
        record = await self.pool.run(self._store.records.at, at)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {at}")
        return self._in_json(request, record)

    def _in_json(self, request: RemotingCommand, body: bytes, ext: Mapping[str, str] | None = None) -> RemotingCommand:
        """RocketMQ writes what it sends from the page cache by itself, and its header always in JSON."""
        return request.answer(ResponseCode.SUCCESS, None, ext, body, version=self.version, serialize=Serialize.JSON)

    def _needed(self, value: int | None, header: str, getter: str, call: str) -> int:
        return no_value(self.line, header, getter, call) if value is None else value
