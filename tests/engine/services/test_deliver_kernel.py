"""Delivered records made in compiled code are those of the plain way, byte for byte, or left to it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from engine.rings.encode_kernel import hidden
from engine.services.deliver_kernel import COLUMNS, Row, examine, write_delivered
from ipc.arrays import Bytes, Words
from ipc.compiled.compiler import kernel
from store.compat import LINES
from store.errors import StoreError
from store.message.delay import SCHEDULE_TOPIC
from store.message.host import Host
from store.message.record import SysFlag, decode, encode
from store.put.draft import Draft, draft_of
from store.put.policy import Facts
from store.put.request import SendRequest, received, to_log
from store.put.resend import delivered

NOW_MS = 1_700_000_000_000
NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "a", "b1", "zz", "WAIT", "RETRY_TOPIC", "BUYER_ID", "AaAa", "BBBB", "user")
RECORDS = 1500


def facts_of(compat: str) -> Facts:
    return Facts(policy=LINES[compat].put, store_host=Host("10.0.0.1", 10911))


def delivered_bytes(data: Bytes, rows: Words) -> bytes:
    """The record that is delivered of the first row, which takes the fast path."""
    target = np.zeros(rows[0, Row.LENGTH], np.uint8)
    _write(target, data, rows.reshape(-1))
    return target.tobytes()


@kernel
def _write(target: Bytes, data: Bytes, rows: Words) -> None:
    write_delivered(target, 0, data, rows, 0)


def stored_record(made: random.Random, facts: Facts) -> bytes:
    """A delayed message as the broker stores it, now and then an odd one."""
    names = made.sample(NAMES, made.randrange(len(NAMES)))
    properties = {name: "".join(made.choices("abcXYZ0189 ", k=made.randrange(1, 20))) for name in names}
    properties |= {"WAIT": made.choice(("true", "false"))} if "WAIT" in names else {}
    properties["DELAY"] = str(made.randrange(1, 20))
    if made.random() < 0.1:
        properties[made.choice(("clé", "k"))] = made.choice(("é", "漢字", "x\U0001f600"))
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    topic = made.choice(("T", "topic-of-some-length", "%RETRY%group"))
    request = SendRequest(
        topic=topic,
        body=made.randbytes(made.choice((1, 10, 300))),
        queue_id=made.randrange(8),
        properties=text,
        sys_flag=made.choice((0, int(SysFlag.COMPRESSED), int(SysFlag.MULTI_TAGS))),
        flag=made.randrange(9),
        born_timestamp_ms=NOW_MS - 5,
        reconsume_times=made.randrange(3),
        born_host=Host(made.choice(("10.1.2.3", "2001:db8::1")) if made.random() < 0.2 else "10.1.2.3", 4711),
    )
    draft = draft_of(to_log(received(request, facts, "0A000001" * 4), facts), facts)
    assert draft.topic == SCHEDULE_TOPIC
    return draft.pieces[0]


def oddly(record: bytes, made: random.Random) -> bytes:
    """The record, or one that another broker, or a damaged disk, could have left."""
    message = decode(record)
    raw, kind = message.properties_raw, made.randrange(12)
    if kind == 0:
        parts = raw.strip(b"\x02").split(b"\x02")
        made.shuffle(parts)
        raw = b"\x02".join(parts)
    elif kind == 1:
        raw += b"\x02" if not raw.endswith(b"\x02") else b"\x02\x02"
    elif kind == 2:
        raw += b"INNER_MULTI_DISPATCH\x01%LMQ%a"
    elif kind == 3:
        raw = b"\x02".join([raw.strip(b"\x02"), raw.strip(b"\x02")])
    elif kind == 4:
        raw = raw.replace(b"REAL_QID\x01", b"REAL_QID\x01+")
    elif kind == 5:
        damaged = bytearray(record)
        damaged[made.randrange(len(damaged))] ^= 1 << made.randrange(8)
        return bytes(damaged)
    else:
        return record
    return encode(
        topic=message.topic,
        body=message.body,
        queue_id=message.queue_id,
        flag=message.flag,
        properties=raw,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
    )


def examined(record: bytes, facts: Facts, before: int = 13) -> tuple[Any, Words]:
    data = np.frombuffer(bytes(before) + record, np.uint8)
    rows = np.zeros((1, COLUMNS), np.int64)
    rows[0, Row.POSITION], rows[0, Row.SIZE] = before, len(record)
    policy = facts.policy
    examine(data, rows.reshape(-1), 1, policy.map_capacity, policy.trailing_separator, facts.message_bytes_max)
    return data, rows


def plain_way(record: bytes, facts: Facts) -> Draft | None:
    try:
        return draft_of(to_log(delivered(decode(record), facts), facts), facts)
    except StoreError:
        return None


@pytest.mark.parametrize("compat", sorted(LINES))
def test_bytes_are_those_of_the_plain_way(compat: str) -> None:
    made, facts, fast = random.Random(20_14), facts_of(compat), 0
    for _ in range(RECORDS):
        record = oddly(stored_record(made, facts), made)
        data, rows = examined(record, facts)
        if not rows[0, Row.IS_FAST]:
            continue
        draft = plain_way(record, facts)
        assert draft is not None
        assert draft.is_plain
        assert delivered_bytes(data, rows) == hidden(draft.pieces[0])
        topic = data[rows[0, Row.TOPIC_AT] : rows[0, Row.TOPIC_AT] + rows[0, Row.TOPIC_BYTES]].tobytes()
        assert (topic.decode(), rows[0, Row.QUEUE_ID]) == (draft.topic, draft.queue_id)
        fast += 1
    assert fast > RECORDS // 4, "the fast path takes too few"


@pytest.mark.parametrize("compat", sorted(LINES))
def test_the_usual_message_is_compiled(compat: str) -> None:
    facts = facts_of(compat)
    properties = "UNIQ_KEY\x01AC1100000001\x02TAGS\x01a\x02DELAY\x013\x02WAIT\x01true"
    born = Host("10.1.2.3", 5)
    request = SendRequest(topic="T", body=b"x" * 100, queue_id=3, properties=properties, born_host=born)
    draft = draft_of(to_log(received(request, facts, "U"), facts), facts)
    assert examined(draft.pieces[0], facts)[1][0, Row.IS_FAST]


def test_damaged_records_are_delivered_as_the_plain_way_delivers_them_or_left_to_it() -> None:
    made, facts = random.Random(5), facts_of("5")
    for _ in range(300):
        record = bytearray(stored_record(made, facts))
        at = made.choice((0, 84, 85, 86, 87, len(record) - made.randrange(1, 60)))
        record[at] = made.randrange(256)
        data, rows = examined(bytes(record), facts, before=0)
        if rows[0, Row.IS_FAST]:
            draft = plain_way(bytes(record), facts)
            assert draft is not None
            assert delivered_bytes(data, rows) == hidden(draft.pieces[0])
