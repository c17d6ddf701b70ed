"""What the compiled reader takes of a segment: sound records with wanted tags, whose fields are those of `decode`."""

from __future__ import annotations

import numpy as np
import pytest

from engine.clients.local.mapped_message import mapped_message
from engine.clients.local.read_kernel import Look, Part, has_more, measure_units
from engine.shared_memory.queue_table import TableWord
from ipc.arrays import Words
from store.errors import CorruptRecord
from store.message.host import Host
from store.message.properties import java_hash
from store.message.record import MAGIC_V2, decode, encode, inspect
from store.message.unit import Unit

BASE, SEGMENT = 4096, 4096
HOSTS = (Host("127.0.0.1", 1), Host("::1", 2))
ALL: Words = np.zeros(0, np.int64)


def records() -> list[bytes]:
    """Records of both versions, with hosts of both families, one behind the other from BASE on."""
    made: list[bytes] = []
    for number in range(6):
        tag = "ab"[number % 2]
        made.append(
            encode(
                topic="t",
                body=f"body {number}".encode() if number else b"",
                queue_offset=number,
                physical_offset=BASE + sum(map(len, made)),
                properties=f"TAGS\x01{tag}\x02".encode(),
                born_host=HOSTS[number % 2],
                store_host=HOSTS[number // 2 % 2],
                **({"magic": MAGIC_V2} if number == 5 else {}),
            )
        )
    return made


def looked(data: bytes, units: list[tuple[int, int, int]], codes: Words = ALL) -> tuple[list[list[int]], list[int]]:
    """The rows of a look at units (offset, bytes, tags code), and its words from NEXT on."""
    array = np.frombuffer(data.ljust(SEGMENT, b"\0"), np.uint8)
    rows, look = np.zeros((len(units), len(Unit)), np.int64), np.zeros(len(Look), np.int64)
    for number, unit in enumerate(units):
        rows[number] = (*unit, number, 1)
    look[Look.COUNT], look[Look.BASE_OFFSET], look[Look.TAKES_ALL] = len(units), BASE, codes is ALL
    look[Look.LOG_BEGINS], look[Look.LOG_ENDS] = BASE, BASE + len(data)
    parts = np.zeros((len(units), len(Part)), np.int64)
    measure_units(array, rows, codes, look, parts)
    return parts[: look[Look.PARTS]].tolist(), look[Look.NEXT :].tolist()


def units_of(made: list[bytes]) -> list[tuple[int, int, int]]:
    at, units = BASE, []
    for number, one in enumerate(made):
        units.append((at, len(one), java_hash("ab"[number % 2])))
        at += len(one)
    return units


def test_each_record_is_measured_as_it_is_decoded() -> None:
    made = records()
    data = b"".join(made)
    rows, (following, count, is_corrupt) = looked(data, units_of(made))
    assert (following, count, is_corrupt) == (6, 6, 0)
    view = memoryview(data)
    for number, (queue_offset, at, body_at, body_end, sys_flag) in enumerate(rows):
        wanted = decode(view, at)
        message = mapped_message(view, queue_offset, at, view[body_at:body_end], sys_flag)
        assert (queue_offset, message.body, message.sys_flag) == (number, wanted.body, wanted.sys_flag)
        assert {name: getattr(message, name) for name in wanted.__dict__} == wanted.__dict__
        assert (message.tags, message.message_id) == (wanted.tags, wanted.message_id)
        with pytest.raises(AttributeError):
            message.colour  # noqa: B018


def test_tags_choose_by_their_hashes() -> None:
    made = records()
    rows, (following, *_) = looked(b"".join(made), units_of(made), np.array([java_hash("b")]))
    assert [row[Part.QUEUE_OFFSET] for row in rows] == [1, 3, 5] and following == 6


def test_a_record_elsewhere_ends_a_look_and_is_not_corrupt() -> None:
    made = records()
    units, data = units_of(made), b"".join(made)
    ends = BASE + SEGMENT, BASE + len(data)
    for offset, size in ((BASE - 100, 50), *((end - 10, 50) for end in ends), (BASE, 0), (0, 2**31 - 1)):
        rows, (following, count, is_corrupt) = looked(data, [*units[:2], (offset, size, 0), *units[2:]])
        assert (len(rows), following, count, is_corrupt) == (2, 2, 2, 0)


def test_no_damaged_record_is_taken_that_readers_refuse() -> None:
    data = bytearray(encode(topic="t", body=b"body", physical_offset=BASE, properties=b"TAGS\x01a\x02"))
    unit = (BASE, len(data), 0)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            rows, (following, _, is_corrupt) = looked(bytes(damaged), [unit])
            view = memoryview(bytes(damaged).ljust(SEGMENT, b"\0"))
            try:
                is_sound = inspect(view, 0, BASE, check_body_crc=True).size == decode(view).size == len(data)
            except CorruptRecord:
                is_sound = False
            assert (len(rows), following, is_corrupt) == ((1, 1, 0) if is_sound else (0, 0, 1)), (at, bit)


def test_more_is_a_new_queue_or_a_watched_end_that_moved() -> None:
    table = np.zeros(TableWord.NEXT_OFFSETS + 4, np.int64)
    table[TableWord.USED] = 3
    watch = np.array([0, 3, 0, 5, 2, 7], np.int64)
    assert not has_more(table, watch)
    table[TableWord.NEXT_OFFSETS + 1] = 100  # of a queue that nobody watches
    table[TableWord.NEXT_OFFSETS + 2] = 7
    assert not has_more(table, watch)
    table[TableWord.NEXT_OFFSETS + 2] = 8
    assert has_more(table, watch)
    assert has_more(table, np.array([0, 2], np.int64))
