"""What a 5.x master had taken over and this broker will not do after a promotion: timer messages, popped messages.

Counted is what the log and the copied tables say. A timer message counts once (by its UNIQ_KEY) when it is due after
the moment up to which the master's wheel was read, as `timercheck` has it, else after now, and no cancellation of it is
in the log. Of popped messages the checkpoints count that lie behind the revive service's copied offset, with all
messages of each: acknowledged ones among them count, too, so that this is an upper bound.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.protocol.tables.timer_state import TimerCheckpoint
from ipc.clock import wall_ms
from store.errors import StoreError
from store.message.properties import TAGS, TIMER_DEL_UNIQUE_KEY, TIMER_OUT_MS, UNIQ_KEY
from store.message.record import Message
from store.message.topics import SYSTEM_PREFIX, TIMER_TOPIC
from store.names import CONFIG, CONSUMER_OFFSETS, TIMER_CHECKPOINT
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading.by_queues import Listed, messages_listed
from store.reading.log_reader import LogReader, open_log
from store.tables import json_files

REVIVE_PREFIX, REVIVE_GROUP, CHECKPOINT_TAG = SYSTEM_PREFIX + "REVIVE_LOG_", "CID_RMQ_SYS_REVIVE_GROUP", "ck"
SECONDS, MESSAGES_OF_ONE_MAX = 10.0, 1 << 20


class Undelivered(NamedTuple):
    """The counts of each kind; `is_whole` False: time was over, or something could not be read, before the end."""

    timers: int
    popped: int
    is_whole: bool

    def lines(self) -> list[str]:
        """Return the lines for people; an empty list where nothing is pending."""
        least = "" if self.is_whole else "at least "
        said = []
        if self.timers:
            said.append(
                f"NOT DELIVERED: {least}{self.timers} timer messages of the old master are pending (counted in"
                f" {TIMER_TOPIC}); this broker has no timer wheel, and keeps them in its log only"
            )
        if self.popped:
            bound = "up to " if self.is_whole else "at least "
            said.append(
                f"NOT DELIVERED: {bound}{self.popped} messages that consumers had popped and may not have acknowledged"
                f" (counted in {REVIVE_PREFIX}*): this broker does not deliver them again"
            )
        return said


def undelivered(store: Path) -> Undelivered:
    """Look through the queues of timers and of popped messages, for SECONDS at most."""
    until, timers, popped = time.monotonic() + SECONDS, 0, 0
    try:
        reader = open_log(store)
        places = [place for place in queue_directories(reader.directory.consumequeue) if _is_one(place[0])]
        if reader.files is None or not places:
            return Undelivered(0, 0, is_whole=True)
        wheel = [path for topic, _id, path in places if topic == TIMER_TOPIC]
        timers, offsets = _timers(store, _messages(reader, wheel, until)), _revived(store)
        for topic, queue_id, path in places:
            if topic != TIMER_TOPIC:
                first = offsets.get((topic, queue_id), 0)
                waiting = (one for one in _messages(reader, [path], until) if one.queue_offset >= first)
                popped += sum(map(_popped, waiting))
    except (StoreError, OSError, ValueError):
        return Undelivered(timers, popped, is_whole=False)
    return Undelivered(timers, popped, is_whole=time.monotonic() < until)


def _is_one(topic: str) -> bool:
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def _messages(reader: LogReader, paths: list[Path], until: float) -> Iterator[Message]:
    queues = tuple(map(ConsumeQueue.open, paths))
    topics = frozenset(path.parent.name for path in paths)
    for message in messages_listed(reader, Listed(queues, topics, reader.max_offset), reader.min_offset):
        if time.monotonic() >= until:
            return
        yield message


def _timers(store: Path, wheel: Iterator[Message]) -> int:
    path = store / CONFIG / TIMER_CHECKPOINT
    read_ms = TimerCheckpoint.decode(path.read_bytes()).last_read_ms if path.is_file() else 0
    done_ms, pending, cancelled = read_ms or wall_ms(), set[str](), set[str]()
    for message in wheel:
        if cancels := message.properties.get(TIMER_DEL_UNIQUE_KEY):
            cancelled.add(cancels)
            continue
        due = message.properties.get(TIMER_OUT_MS, "")
        if due.isascii() and due.isdecimal() and int(due) > done_ms:
            pending.add(message.properties.get(UNIQ_KEY) or str(message.physical_offset))
    return len(pending - cancelled)


def _revived(store: Path) -> dict[tuple[str, int], int]:
    """Return how far the master's revive service was, by topic and queue."""
    path, offsets = store / CONFIG / CONSUMER_OFFSETS, dict[tuple[str, int], int]()
    table = json_files.read(path).get("offsetTable") if path.is_file() else None
    for key, queues in table.items() if isinstance(table, dict) else ():
        topic, _at, group = str(key).partition("@")
        if group == REVIVE_GROUP and isinstance(queues, dict):
            offsets |= {(topic, int(number)): int(offset) for number, offset in queues.items()}
    return offsets


def _popped(message: Message) -> int:
    """Return how many messages a checkpoint stands for; 0 for acknowledgements and invalid ones."""
    if message.properties.get(TAGS) != CHECKPOINT_TAG:
        return 0
    try:
        said = json.loads(bytes(message.body))
        number = said.get("n", 1) if isinstance(said, dict) else 1
    except (ValueError, RecursionError):
        return 1
    return number if type(number) is int and 0 <= number <= MESSAGES_OF_ONE_MAX else 1
