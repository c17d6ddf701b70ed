"""A record's lengths: plain Python, the kernel and a reader's records say the same of each, sound or damaged."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.columns.records import Records, faults
from store.columns.window import LogWindow
from store.message import rows_kernel
from store.message.host import Host
from store.message.measure import Spans, measure
from store.message.measure_kernel import measure as compiled
from store.message.record import (
    BLANK_BYTES,
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_AT,
    Kind,
    body_length_at,
    encode,
    inspect,
)

HOSTS = (Host("127.0.0.1", 10911), Host("2001:db8:0:0:0:0:0:1", 10912))
LENGTHS = st.one_of(st.integers(-3, 300), st.sampled_from([-(2**31), -(2**15), -128, 127, 128, 2**15 - 1, 2**31 - 1]))
SHAPES = st.tuples(
    st.integers(0, 40),
    st.integers(1, 127),
    st.integers(0, 40),
    st.sampled_from(HOSTS),
    st.sampled_from(HOSTS),
    st.sampled_from([MAGIC_V1, MAGIC_V2]),
)


def record_of(shape: tuple[int, int, int, Host, Host, int]) -> bytes:
    body, topic, properties, born, store, magic = shape
    return encode(
        topic="t" * topic, body=b"b" * body, properties=b"p" * properties, born_host=born, store_host=store, magic=magic
    )


def by_hand(data: bytes) -> Spans | None:
    """The format's sentence, written out once more: five numbers read one behind the other."""
    (size, magic), (sys_flag,) = struct.unpack_from(">iI", data), struct.unpack_from(">i", data, SYS_FLAG_AT)
    at = 84 + 12 * bool(sys_flag & 0x10) + 12 * bool(sys_flag & 0x20)
    places = []
    for form in (">i", ">b" if magic == MAGIC_V1 else ">h", ">h"):
        if at + struct.calcsize(form) > size:
            return None
        (length,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        if length < 0 or at + length > size:
            return None
        places += [at, at + length]
        at += length
    return Spans(places[0], places[1], places[2], places[3], places[4], at) if at == size else None


def said(data: bytes, position: int = 0) -> list[Spans | None]:
    """What each of the three says of the record at `position`, as if it lay at 0; its size is less than `data`."""
    size, magic, sys_flag = (struct.unpack_from(">I", data, position + at)[0] for at in (0, 4, SYS_FLAG_AT))
    body_at = position + body_length_at(sys_flag) + 4
    plain = measure(data, position, position + size, body_at, magic == MAGIC_V2)
    kernel = compiled(np.frombuffer(data, np.uint8), position, size)
    array = np.frombuffer(data, np.uint8)
    records = Records(LogWindow("a segment", 0, array, len(array)), np.array([position], np.int64))
    spans: list[Spans | None] = [None if isinstance(plain, str) else plain, kernel if kernel.body_at >= 0 else None]
    spans.append(None if faults(records) else _spans_of(records))
    return [found and Spans(*(int(at) - position for at in found)) for found in spans]


def _spans_of(records: Records) -> Spans:
    parts = ((records.body_at, records.body_length), records.topic_span, records.properties_span)
    return Spans(*(int(place) for at, length in parts for place in (at[0], at[0] + length[0])))


def with_length(record: bytes, which: int, length: int) -> bytes:
    """The record with another length of its body (0), topic (1), properties (2), or another size (3)."""
    spans = by_hand(record)
    assert spans is not None
    wide = spans.topic_at - spans.body_end == 2
    at = (spans.body_at - 4, spans.body_end, spans.topic_end, 0)[which]
    form = (">I", ">H" if wide else ">B", ">H", ">I")[which]
    data = bytearray(record)
    struct.pack_into(form, data, at, length & (256 ** struct.calcsize(form) - 1))
    return bytes(data)


@settings(deadline=None)  # the first call compiles
@given(shape=SHAPES, before=st.integers(0, 9))
def test_sound_records_are_measured_alike(shape: tuple[int, int, int, Host, Host, int], before: int) -> None:
    record = record_of(shape)
    body, topic, properties, *_ = shape
    spans = by_hand(record)
    assert spans is not None
    assert (spans.body_end - spans.body_at, spans.topic_end - spans.topic_at) == (body, topic)
    assert spans.end - spans.properties_at == properties
    assert said(b"\xff" * before + record + b"\xff" * 5, before) == [spans] * 3


@settings(deadline=None)  # the first call compiles
@given(shape=SHAPES, which=st.integers(0, 2), length=LENGTHS)
def test_damaged_lengths_are_measured_alike(
    shape: tuple[int, int, int, Host, Host, int], which: int, length: int
) -> None:
    damaged = with_length(record_of(shape), which, length)
    assert said(damaged) == [by_hand(damaged)] * 3


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("born", HOSTS)
@pytest.mark.parametrize("store", HOSTS)
def test_a_record_is_measured_alike_at_every_cut(magic: int, born: Host, store: Host) -> None:
    record = record_of((9, 5, 7, born, store, magic))
    for size in range(FIXED_BYTES, len(record) + 1):
        cut = with_length(record, 3, size)[:size]
        assert said(cut) == [by_hand(cut)] * 3, size


def test_a_topic_length_of_two_bytes_is_signed() -> None:
    """As Java reads it: 40,000 is no topic of 40,000 bytes, even where such a record would add up."""
    topic = 40_000
    record = bytearray(record_of((3, 1, 0, HOSTS[0], HOSTS[0], MAGIC_V2)))
    record[-3:] = b"t" * topic + bytes(2)
    struct.pack_into(">H", record, 88 + 3, topic)
    struct.pack_into(">i", record, 0, len(record))
    data = bytes(record)
    assert said(data) == [None] * 3
    assert inspect(data, 0, 0, check_body_crc=False).kind is Kind.CORRUPT


def test_rows_findings_and_faults_agree_on_logs_with_changed_bytes() -> None:
    """The judges above the lengths: `inspect`, the scan of recovery and dispatch, and Spark's faults."""
    source, rows = random.Random(9), np.zeros((1, len(rows_kernel.Row)), np.int64)
    refused = 0
    for _ in range(400):
        shape = (
            source.randrange(30),
            source.randrange(1, 30),
            source.randrange(30),
            source.choice(HOSTS),
            source.choice(HOSTS),
            source.choice([MAGIC_V1, MAGIC_V2]),
        )
        data = bytearray(record_of(shape) + bytes(BLANK_BYTES))
        for at in (0, 1, 2)[: source.randrange(3)]:
            where = source.choice([SYS_FLAG_AT + 3, *range(84, len(data) - BLANK_BYTES)])
            data[where] = source.choice([at, 0xFF, source.randrange(256)])
        array = np.frombuffer(bytes(data), np.uint8)
        is_record = inspect(bytes(data), 0, 0, check_body_crc=False).kind is Kind.MESSAGE
        assert (rows_kernel.scan(array, 0, len(array), 0, rows)[1] == 1) is is_record
        window = LogWindow("a segment", 0, array, len(array))
        assert (not faults(Records(window, np.zeros(1, np.int64)))) is is_record
        refused += not is_record
    assert 40 < refused < 360
