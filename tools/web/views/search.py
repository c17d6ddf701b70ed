"""Message search: by key, id, log offset, queue and offset, or time; the newest ones where nothing is asked for."""

from __future__ import annotations

from collections import deque

from store.compat import NEWEST, line_of
from store.errors import InvalidMessage
from store.message.host import parse_message_id
from store.message.record import Message
from store.reading.log_reader import LogReader, open_log
from store.reading.queue_view import QueueView
from store.reading.search import Finder, finder_on
from store.reading.summary import messages
from tools.common.moments import moment_ms
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json
from tools.web.state.errors import Refused
from tools.web.views.message import head
from tools.web.views.topics import QUEUES_SHOWN_MAX, queues_of

LIMIT, LIMIT_MAX = 25, 50
SCAN_BYTES_MAX = 64 << 20  # of the log that no index covers
LOOK_BACK_BYTES = (256 << 10, 4 << 20, 32 << 20)
KINDS = ("newest", "key", "id", "offset", "queue", "time")
Hits = tuple[list[Message], list[str]]


def view(_console: Console, asked: Asked) -> Json:
    """Return what was asked for, in the log's order, and how it was looked for. Raises Refused."""
    kind = asked.text("by") or KINDS[0]
    if kind not in KINDS:
        raise Refused(f"by: one of {', '.join(KINDS)}")
    store = asked.store
    reader = open_log(store.path)
    limit = asked.whole("limit", 1, LIMIT_MAX) or LIMIT
    if reader.files is None:
        return {"messages": [], "notes": ["the store has no messages yet"], "limit": limit}
    hits, notes = _looked_for(kind, store, reader, asked, limit)
    return {"messages": [head(one) for one in hits[:limit]], "notes": notes, "limit": limit, "live": reader.live}


def _looked_for(kind: str, store: Watched, reader: LogReader, asked: Asked, limit: int) -> Hits:
    finder = finder_on(store.path, reader, SCAN_BYTES_MAX)
    value, topic = asked.text("value").strip(), asked.text("topic").strip() or None
    if kind == "newest":
        return _newest(store, reader, finder, topic, limit)
    if not value:
        raise Refused(f"{kind}: give a value")
    if kind == "key":
        result = finder.by_key(value, topic, limit)
        return result.messages[::-1], result.notes
    if kind == "id":
        return _by_id(finder, value, topic, limit)
    if kind == "offset":
        return _at_offset(reader, finder, _whole(value))
    if topic is None:
        raise Refused(f"{kind}: give a topic")
    queue_id = asked.whole("queue", 0, 1 << 31)
    if kind == "time":
        return _at_time(store, reader, finder, topic, queue_id, _moment(value), limit)
    queue = queues_of(store, reader).view(topic, queue_id or 0)
    return _of_queue(queue, finder, max(_whole(value), queue.min_offset), limit)


def _whole(value: str) -> int:
    return Asked([], {"value": value}).whole("value", 0) or 0


def _moment(value: str) -> int:
    try:
        return moment_ms(value)
    except ValueError as wrong:
        raise Refused(str(wrong)) from wrong


def _by_id(finder: Finder, value: str, topic: str | None, limit: int) -> Hits:
    try:
        _host, offset = parse_message_id(value)
    except InvalidMessage:
        offset = -1
    message = finder.at(offset)
    if message is not None and message.message_id == value.upper():
        return [message], []
    result = finder.by_key(value, topic, limit)
    return result.messages[::-1], result.notes


def _at_offset(reader: LogReader, finder: Finder, offset: int) -> Hits:
    if not reader.min_offset <= offset < reader.max_offset:
        return [], [f"the log reaches from offset {reader.min_offset} to {reader.max_offset}"]
    message = finder.at(offset)
    if message is not None:
        return [message], []
    following = finder.at(reader.boundary_at(offset))
    return [one for one in (following,) if one], [f"no record begins at offset {offset}; the next one is shown"]


def _of_queue(queue: QueueView, finder: Finder, start: int, limit: int) -> Hits:
    entries = [queue.entry(number) for number in range(start, min(start + limit, queue.max_offset))]
    hits = [message for entry in entries if entry and (message := finder.at(entry.physical_offset))]
    return hits, [f"the queue reaches from offset {queue.min_offset} to {queue.max_offset}"]


def _at_time(
    store: Watched, reader: LogReader, finder: Finder, topic: str, queue_id: int | None, moment: int, limit: int
) -> Hits:
    """The first message from that time on, of one queue or of each, and those behind it in one queue."""
    queues = queues_of(store, reader, line_of(NEWEST).queues)
    if queue_id is not None:
        queue = queues.view(topic, queue_id)
        return _of_queue(queue, finder, max(queue.offset_at(moment), queue.min_offset), limit)
    hits = []
    for number in range(QUEUES_SHOWN_MAX):
        queue = queues.view(topic, number)
        if queue.is_there and (entry := queue.entry(queue.offset_at(moment))):
            message = finder.at(entry.physical_offset)
            hits += [message] if message is not None and message.store_timestamp_ms >= moment else []
    hits.sort(key=lambda one: one.physical_offset)
    return hits, [] if hits else ["no message of this topic was stored at or after that time"]


def _newest(store: Watched, reader: LogReader, finder: Finder, topic: str | None, limit: int) -> Hits:
    if topic is not None:
        queues = queues_of(store, reader)
        offsets: list[int] = []
        for number in range(QUEUES_SHOWN_MAX):
            queue = queues.view(topic, number)
            last = range(max(queue.min_offset, queue.max_offset - limit), queue.max_offset) if queue.is_there else ()
            offsets += [entry.physical_offset for at in last if (entry := queue.entry(at))]
        newest = sorted(offsets, reverse=True)[:limit]
        return [message for offset in newest if (message := finder.at(offset))], []
    last_ones: deque[Message] = deque(maxlen=limit)
    for far in LOOK_BACK_BYTES:
        start = max(reader.min_offset, reader.max_offset - far)
        last_ones = deque(messages(reader, reader.boundary_at(start)), maxlen=limit)
        if len(last_ones) == limit or start == reader.min_offset:
            break
    return list(last_ones)[::-1], []
