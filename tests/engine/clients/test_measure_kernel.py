"""What the compiled reader takes of a segment: sound records with wanted tags, whose fields are those of `decode`."""

from __future__ import annotations

import numpy as np
import pytest

from engine.clients.blocks import Chosen, Origin, blocks_of, chosen, mapped_message
from engine.clients.measure_kernel import Look, Part, measure_units
from store.errors import CorruptRecord
from store.message.host import Host
from store.message.properties import java_hash
from store.message.record import MAGIC_V2, decode, encode, inspect
from store.message.unit import Unit

BASE, SEGMENT = 4096, 4096
HOSTS = (Host("127.0.0.1", 1), Host("::1", 2))
ALL = chosen(None)


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


def looked(data: bytes, units: list[tuple[int, int, int]], wanted: Chosen = ALL) -> tuple[list[list[int]], list[int]]:
    """The rows of a look at units (offset, bytes, tags code), and its words from NEXT to IS_CORRUPT."""
    array = np.frombuffer(data.ljust(SEGMENT, b"\0"), np.uint8)
    rows, look = np.zeros((len(units), len(Unit)), np.int64), np.zeros(len(Look), np.int64)
    for number, unit in enumerate(units):
        rows[number] = (*unit, number, 1)
    look[Look.COUNT], look[Look.BASE_OFFSET] = len(units), BASE
    look[Look.LOG_BEGINS], look[Look.LOG_ENDS] = BASE, BASE + len(data)
    parts = np.zeros((len(units), len(Part)), np.int64)
    measure_units(array, rows, wanted.codes, wanted.tags, look, parts)
    return parts[: look[Look.PARTS]].tolist(), look[Look.NEXT : Look.IS_CORRUPT + 1].tolist()


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
    origin = Origin(np.frombuffer(data, np.uint8), view, "b")
    for number, row in enumerate(rows):
        wanted, message = decode(view, row[Part.POSITION]), mapped_message(origin, row)
        queue_offset = row[Part.QUEUE_OFFSET]
        assert (queue_offset, message.body, message.sys_flag) == (number, wanted.body, wanted.sys_flag)
        assert {name: getattr(message, name) for name in wanted.__dict__} == wanted.__dict__
        assert (message.tags, message.message_id) == (wanted.tags, wanted.message_id)
        with pytest.raises(AttributeError):
            message.colour  # noqa: B018


def test_tags_choose() -> None:
    made = records()
    rows, (following, *_) = looked(b"".join(made), units_of(made), chosen(frozenset("b")))
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


def test_an_answer_is_judged_record_by_record() -> None:
    made = records()
    frame = b"".join(made)
    [block] = blocks_of(frame, chosen(frozenset("b")).tags, 2, "broker")
    assert [message.queue_offset for message in block.take(9)] == [3, 5], "with its tags, from the offset on"
    assert not blocks_of(b"", ALL.tags, 0, "") and not blocks_of(frame, ALL.tags, 6, "")
    twice = blocks_of(frame + frame, ALL.tags, 0, "")
    assert [len(one) for one in twice] == [6], "what comes twice is taken once"
    damaged = bytearray(frame)
    damaged[len(made[0]) + len(made[1]) - len(b"TAGS?b?") - 10] ^= 1
    for data in (bytes(damaged), frame[:-1], frame + b"\0", frame + made[0][:50]):
        with pytest.raises(CorruptRecord):
            blocks_of(data, ALL.tags, 0, "")
