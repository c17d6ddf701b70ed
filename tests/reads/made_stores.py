"""Generated stores for conditions, with the rows that plain Python decodes of them.

Topics of users, of retries and of brokers; tags and keys or none; prepared, committed and rolled back messages; hosts
of both families; both magics. A store is dispatched, in part, or not at all, and may have side files.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from store.columns.window import LogWindow
from store.message.host import Host
from store.message.properties import tags_code
from store.message.record import MAGIC_V1, MAGIC_V2, NOT_FOR_QUEUES, SysFlag
from store.message.topics import is_system_topic
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue
from tests.reads.damaged import plain_row
from tests.spark_bridge.columnar.side_files import write_side_files
from tests.spark_bridge.stores import HOST, Row, SmallStore

START_MS = 1_700_000_000_000
SEGMENT_BYTES, RECORDS, GROUP_ROWS = 8192, 160, 32
TOPICS = ("orders", "orders", "returns", "order", "%RETRY%group", "grün", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
TAGS = (None, None, "a", "b", "ab", "grün", "A")
KEYS = (None, None, "k1", "k2", "k1 k2", "k10")
FLAGS = (0, 0, 0, 0, 0, int(SysFlag.COMPRESSED), int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_PREPARED),
         int(SysFlag.TRANSACTION_ROLLBACK))  # fmt: skip
HOSTS = (HOST, HOST, Host("10.0.0.8", 10911), Host("2001:db8:0:0:0:0:0:1", 10912))
NUMBERS = (0, 0, 1, 2, -1, 2**31 - 1, -(2**31))
KINDS = ("not dispatched", "dispatched", "half dispatched", "dispatched, with side files")
QUEUE_FILE_BYTES = 20 * 64


class Made(NamedTuple):
    """A store, and its visible rows by physical offset: prepared and rolled back messages are none."""

    root: Path
    kind: str
    rows: dict[int, Row]

    def visible(self, system_topics: bool) -> list[Row]:
        """The rows of a read that names no topic."""
        return [row for row in self.rows.values() if system_topics or not is_system_topic(row["topic"])]


def made_store(root: Path, seed: int, records: int = RECORDS) -> Made:
    """The store of this seed; its kind is one of KINDS, in turn."""
    chance, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    store, tags = SmallStore(root, SEGMENT_BYTES), dict[int, str | None]()
    stored_ms, hidden = START_MS, list[tuple[int, int, str, int, int]]()
    for _ in range(records):
        stored_ms += chance.choice((0, 0, 1, 2, 1000))
        fields = _fields(chance, stored_ms)
        tag = fields.pop("tag")
        tags[store.put(**fields)] = tag
        if fields["sys_flag"] & NOT_FOR_QUEUES:  # it gets no entry, and the next message has its number
            hidden.append(store.records.pop())
    if kind != KINDS[0]:
        count = len(store.records) // 2 if kind == KINDS[2] else len(store.records)
        dispatch(root, store.records[:count], tags)
    if kind == KINDS[3]:
        write_side_files(root, group_rows=GROUP_ROWS, end=store.end)
    rows = {at: plain_row(window, at - window.base_offset) for window, at in _places(store)}
    named = {"brokerName": root.name}  # as long as no broker has said its own name
    return Made(root, kind, {at: {**row, **_kafka(row), **named} for at, row in sorted(rows.items())})


def _fields(chance: random.Random, stored_ms: int) -> dict[str, Any]:
    tag, keys = chance.choice(TAGS), chance.choice(KEYS)
    pairs = {"TAGS": tag, "KEYS": keys, "UNIQ_KEY": chance.choice((None, f"U{chance.randrange(9)}"))}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value is not None)
    body, sys_flag = bytes([65 + chance.randrange(3)]) * chance.choice((0, 1, 7, 40, 90)), chance.choice(FLAGS)
    return {
        "topic": chance.choice(TOPICS), "body": zlib.compress(body) if sys_flag & SysFlag.COMPRESSED else body,
        "queue_id": chance.randrange(4), "sys_flag": sys_flag, "flag": chance.choice(NUMBERS),
        "properties": text.encode(), "tag": tag, "store_timestamp_ms": stored_ms,
        "born_timestamp_ms": stored_ms - chance.choice((0, 0, 1, 5000)), "born_host": chance.choice(HOSTS),
        "store_host": chance.choice(HOSTS), "reconsume_times": chance.choice((0, 0, 1, 16)),
        "magic": chance.choice((MAGIC_V1, MAGIC_V1, MAGIC_V2)),
    }  # fmt: skip


def dispatch(root: Path, records: Sequence[tuple[int, int, str, int, int]], tags: dict[int, str | None]) -> None:
    """Add the records' entries to their queues."""
    for offset, size, topic, queue_id, queue_offset in records:
        queue = ConsumeQueue.open(root / "consumequeue" / topic / str(queue_id), QUEUE_FILE_BYTES)
        queue.append(queue_offset, np.array([(offset, size, tags_code(tags[offset]))], CQ_DTYPE).tobytes())


def _places(store: SmallStore) -> Sequence[tuple[LogWindow, int]]:
    windows: dict[int, LogWindow] = {}
    for offset in store.offsets:
        base = offset - offset % store.segment_bytes
        if base not in windows:
            path = store.root / "commitlog" / f"{base:020d}"
            windows[base] = LogWindow(str(path), base, np.fromfile(path, np.uint8), store.end)
    return [(windows[offset - offset % store.segment_bytes], offset) for offset in store.offsets]


def _kafka(row: Row) -> Row:
    """The columns of schema=kafka that a condition may name, and those of the read itself."""
    keys = row["keys"]
    return {
        "key": None if keys is None else keys.encode(), "partition": row["queueId"], "offset": row["queueOffset"],
        "timestamp": row["bornTimestamp"], "timestampType": 0, "_replica": "in place", "_reading": None,
    }  # fmt: skip
