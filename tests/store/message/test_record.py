"""Records: round trips, what lies at a position, and bytes that are anything but records."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptRecord, InvalidMessage
from store.message.host import Host, offset_message_id, pack_host, unpack_host
from store.message.properties import format as format_properties
from store.message.record import (
    BLANK_BYTES,
    BORN_HOST_AT,
    FIXED_BYTES,
    HEADER_DTYPE,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    Inspection,
    Kind,
    SysFlag,
    blank,
    body_length_at,
    decode,
    encode,
    fixed_dtype,
    identity_at,
    inspect,
    store_host_at,
    store_timestamp_at,
    store_timestamp_of,
)

V4, V6 = Host("127.0.0.1", 10911), Host("2001:db8:0:0:0:0:0:1", 10912)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(lambda text: len(text.encode()) <= 127)
hosts = st.one_of(
    st.builds(Host, st.ip_addresses(v=4).map(str), int32),
    st.builds(Host, st.ip_addresses(v=6).filter(lambda ip: not ip.ipv4_mapped).map(lambda ip: ip.compressed), int32),
)


def record_at(offset: int, body: bytes = b"hello", topic: str = "T") -> bytes:
    """A sound record that lies at `offset`."""
    return encode(topic=topic, body=body, physical_offset=offset, born_host=V4, store_host=V4)


def as_v2(record: bytes, topic_bytes: int) -> bytes:
    """The same record with a topic length of two bytes."""
    at = body_length_at(0) + 4 + struct.unpack_from(">i", record, body_length_at(0))[0]
    grown = record[:at] + struct.pack(">H", topic_bytes) + record[at + 1 :]
    return struct.pack(">iI", len(grown), MAGIC_V2) + grown[8:]


def test_offsets_are_those_of_the_format() -> None:
    assert (QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BORN_HOST_AT, FIXED_BYTES, BLANK_BYTES) == (20, 28, 48, 91, 8)
    assert [store_timestamp_at(bits) for bits in (0, 0x10, 0x20, 0x30)] == [56, 68, 56, 68]
    assert [store_host_at(bits) for bits in (0, 0x10, 0x20, 0x30)] == [64, 76, 64, 76]
    assert [body_length_at(bits) for bits in (0, 0x10, 0x20, 0x30)] == [84, 96, 96, 108]


@given(
    topic=topics,
    body=st.binary(max_size=300),
    queue_id=int32,
    queue_offset=int64,
    physical_offset=int64,
    flag=int32,
    sys_flag=st.integers(0, 0x7FF),
    born_timestamp_ms=int64,
    born_host=hosts,
    store_timestamp_ms=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    properties=st.dictionaries(st.sampled_from(["TAGS", "KEYS", "a"]), st.sampled_from(["x", "ü", "1 2"])),
)
def test_what_is_encoded_is_decoded(**fields: object) -> None:
    pairs = fields.pop("properties")
    assert isinstance(pairs, dict)
    record = encode(properties=format_properties(pairs), **fields)  # type: ignore[arg-type]
    message = decode(memoryview(record))
    for name, value in fields.items():
        if name == "sys_flag":
            continue
        expected = unpack_host(pack_host(value)) if isinstance(value, Host) else value
        assert getattr(message, name) == expected, name
    assert message.size == len(record)
    assert message.properties == pairs
    assert message.tags == pairs.get("TAGS")
    assert message.sys_flag & ~0x30 == int(fields["sys_flag"]) & ~0x30  # type: ignore[call-overload]
    physical_offset = fields["physical_offset"]
    assert isinstance(physical_offset, int)
    assert inspect(record, 0, physical_offset, check_body_crc=True) == Inspection(Kind.MESSAGE, len(record))


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_numpy_types_read_what_the_codec_writes(born: Host, store: Host) -> None:
    record = encode(
        topic="T",
        body=b"abc",
        queue_id=3,
        physical_offset=77,
        born_host=born,
        store_host=store,
        store_timestamp_ms=5,
        reconsume_times=2,
    )
    message = decode(record)
    row = np.frombuffer(record, fixed_dtype(message.sys_flag), 1)[0]
    assert (row["queue_id"], row["physical_offset"], row["body_length"]) == (3, 77, 3)
    assert (row["store_timestamp_ms"], row["reconsume_times"], row["store_host"]["port"]) == (5, 2, store.port)
    assert np.frombuffer(record, HEADER_DTYPE, 1)[0]["magic_code"] == MAGIC_V1
    assert (message.born_host, message.store_host) == (born, store)


def test_version_2_is_read() -> None:
    record = as_v2(encode(topic="T" * 100, body=b"hello", physical_offset=9, properties=b"TAGS\x01a"), 100)
    assert inspect(record, 0, 9, check_body_crc=True) == Inspection(Kind.MESSAGE, len(record))
    message = decode(record)
    assert (message.topic, message.body, message.tags, message.magic_code) == ("T" * 100, b"hello", "a", MAGIC_V2)


def test_crc_is_java_s() -> None:
    assert decode(record_at(0)).body_crc == 0x3610A686
    assert decode(record_at(0, b"")).body_crc == 0


def test_the_queue_s_tags_code_is_java_s_hash() -> None:
    record = encode(topic="T", body=b"x", properties=b"TAGS\x01TagA\x02")
    assert decode(record).tags_code == 2598919


def test_message_id_names_the_store_host_and_the_offset() -> None:
    assert decode(record_at(0xBB)).message_id == "7F00000100002A9F00000000000000BB"
    assert offset_message_id(Host("0:0:0:0:0:0:0:1", 47735), 0).startswith("0" * 31 + "10000BA77")


def test_an_ipv4_address_in_an_ipv6_one_is_shown_as_java_shows_it() -> None:
    mapped = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]) + struct.pack(">i", 5)
    assert unpack_host(mapped) == Host("10.0.0.1", 5)
    assert offset_message_id(Host("10.0.0.1", 5), 1, is_v6=True) == "0A000001000000050000000000000001" + "0" * 24


def test_a_message_is_only_one_at_its_own_position() -> None:
    segment = bytearray(1000)
    record = record_at(5000)
    segment[100 : 100 + len(record)] = record
    assert inspect(bytes(segment), 100, 5000, check_body_crc=True).kind is Kind.MESSAGE
    moved = inspect(bytes(segment), 100, 5001, check_body_crc=True)
    assert (moved.kind, moved.reason) == (Kind.CORRUPT, "it says it lies at offset 5000")
    assert inspect(bytes(segment), 100, None, check_body_crc=True).kind is Kind.MESSAGE


def test_zeros_end_the_log_and_a_blank_record_ends_the_segment() -> None:
    segment = bytes(60) + blank(40) + bytes(32)
    assert inspect(segment, 0, 0, check_body_crc=True) == Inspection(Kind.END_OF_LOG, 0)
    assert inspect(segment, 60, 60, check_body_crc=True) == Inspection(Kind.BLANK, 40)
    assert inspect(segment + b"x", 60, 60, check_body_crc=True).reason == (
        "blank record of 40 bytes, but 41 are left in the segment"
    )
    assert inspect(segment, 96, 96, check_body_crc=True).kind is Kind.END_OF_LOG


def test_garbage_ends_the_log_with_a_reason() -> None:
    found = inspect(b"\x00\x00\x00\x60garbage" * 20, 0, 0, check_body_crc=True)
    assert (found.kind, found.reason) == (Kind.END_OF_LOG, "no record's magic number: 0x67617262")


def test_below_a_limit_a_record_can_be_incomplete() -> None:
    segment = record_at(0) + bytes(500)
    size = len(record_at(0))
    for limit in range(size):
        assert inspect(segment, 0, 0, check_body_crc=True, limit=limit).kind is Kind.INCOMPLETE
    assert inspect(segment, 0, 0, check_body_crc=True, limit=size).kind is Kind.MESSAGE


def test_a_wrong_body_is_found_only_when_asked() -> None:
    record = bytearray(record_at(0))
    record[88] ^= 1
    found = inspect(bytes(record), 0, 0, check_body_crc=True)
    assert found.kind is Kind.CORRUPT
    assert found.size == len(record)
    assert "CRC" in found.reason
    assert inspect(bytes(record), 0, 0, check_body_crc=False).kind is Kind.MESSAGE
    with pytest.raises(CorruptRecord, match="CRC"):
        decode(bytes(record))
    assert decode(bytes(record), check_body_crc=False).body == record[88:93]


@pytest.mark.parametrize("topic", ["", "T" * 128, "ü" * 64])
def test_a_topic_must_fit(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        encode(topic=topic, body=b"x")


def test_properties_must_fit() -> None:
    assert decode(encode(topic="T", body=b"x", properties=b"a" * 32767)).properties_raw == b"a" * 32767
    with pytest.raises(InvalidMessage, match="properties"):
        encode(topic="T", body=b"x", properties=b"a" * 32768)


def test_a_host_must_be_an_address() -> None:
    with pytest.raises(InvalidMessage, match="host"):
        encode(topic="T", body=b"x", born_host=Host("localhost", 1))


@given(st.binary(max_size=300), st.integers(0, 300), st.booleans())
def test_any_bytes_get_an_answer(data: bytes, position: int, check: bool) -> None:
    found = inspect(data, min(position, len(data)), position, check_body_crc=check)
    assert isinstance(found, Inspection)


@given(st.data())
def test_a_mutated_record_is_a_message_or_refused(data: st.DataObject) -> None:
    record = bytearray(
        encode(topic="Topic", body=b"body" * 10, physical_offset=3, properties=b"TAGS\x01a\x02", born_host=V6)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(record) - 1))
        record[at] = data.draw(st.integers(0, 255))
    cut = bytes(record[: data.draw(st.integers(0, len(record)))]) if data.draw(st.booleans()) else bytes(record)
    found = inspect(cut, 0, None, check_body_crc=True)
    try:
        message = decode(cut)
    except CorruptRecord:
        assert found.kind is not Kind.MESSAGE
    else:
        assert found == Inspection(Kind.MESSAGE, message.size)
        assert not len(message.body) or message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
        assert isinstance(message.message_id, str)
        assert isinstance(message.properties, dict)


def test_sys_flag_bits_are_rocketmq_s() -> None:
    assert SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD == 0x201
    assert (SysFlag.TRANSACTION_COMMIT, SysFlag.STORE_HOST_V6, SysFlag.INNER_BATCH) == (8, 32, 128)


@pytest.mark.parametrize("born", [V4, V6])
def test_a_record_alone_says_its_place_and_store_time_however_short_it_is(born: Host) -> None:
    record = encode(
        topic="t", body=b"", physical_offset=5, sys_flag=SysFlag.COMPRESSED, born_host=born, store_timestamp_ms=7
    )
    offset, sys_flag = identity_at(record, 0)
    assert (offset, sys_flag & SysFlag.COMPRESSED, store_timestamp_of(record, 0)) == (5, 1, 7)
    for end in range(len(record)):
        assert store_timestamp_of(record[:end], 0) in (None, 7)
