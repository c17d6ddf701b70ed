"""Kinds of records, batches inside records and property CRCs: as real brokers wrote them, and any bytes at all."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import MalformedData
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message import properties, topics
from store.message.inner_batch import BatchItem, decode_batch, messages_in
from store.message.kinds import MessageKind, destination_of, kind_of
from store.message.properties import CRC_PROPERTY_BYTES, crc_property, crc_reason, has_crc_property
from store.message.record import Kind, Message, SysFlag, decode, encode
from store.put.resend import OP_TAG
from store.reading.walk import walk
from tests.harness.batches import batch_body
from tests.store.golden import unpack
from tools.common.message_text import as_json, as_line

KINDS = {
    ("rocketmq-4.9.7", "master"): {"ORDINARY": 1005, "HALF": 101, "DELAYED": 62, "OP": 54, "COMMIT": 31, "RETRY": 4},
    ("rocketmq-5.3.3", "master"): {"ORDINARY": 1018, "HALF": 138, "DELAYED": 62, "OP": 3, "COMMIT": 38, "RETRY": 4},
    ("rocketmq-4.9.7", "features"): {"ORDINARY": 121},
    ("rocketmq-5.3.3", "features"): {"ORDINARY": 122, "INNER_BATCH": 11, "DELAYED": 6, "RETRY": 6},
}
WITH_CRC = ("rocketmq-5.3.3", "features")


def records(version: str, name: str, directory: Path) -> Iterator[memoryview]:
    commitlog = unpack(version, name, directory) / "commitlog"
    files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
    return (step.record for step in walk(files, files.base_offsets()[0]) if step.inspection.kind is Kind.MESSAGE)


def message(**fields: object) -> Message:
    return decode(encode(**{"topic": "topic", "body": b"", **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize("version, name", KINDS)
def test_every_golden_record_has_its_kind(version: str, name: str, tmp_path: Path) -> None:
    found = [decode(record) for record in records(version, name, tmp_path)]
    assert Counter(kind_of(one).name for one in found) == KINDS[version, name]
    halves = {one.physical_offset: one for one in found if kind_of(one) is MessageKind.HALF}
    half_offsets = {one.queue_offset for one in halves.values()}
    for one in found:
        if kind_of(one) is MessageKind.COMMIT:
            half = halves[one.prepared_transaction_offset]
            assert destination_of(half) == (one.topic, one.queue_id)
            assert bytes(half.body) == bytes(one.body)
        if kind_of(one) is MessageKind.OP:
            assert one.tags == OP_TAG
            done = [int(part) for part in bytes(one.body).split(b",") if part]
            assert done and half_offsets.issuperset(done)
        if kind_of(one) is MessageKind.DELAYED:
            assert destination_of(one)[0].startswith(("alpha", topics.RETRY_PREFIX))


@pytest.mark.parametrize("version, name", KINDS)
def test_property_crcs_of_golden_records(version: str, name: str, tmp_path: Path) -> None:
    for record in records(version, name, tmp_path):
        assert has_crc_property(record) == ((version, name) == WITH_CRC)
        assert crc_reason(record) == ""
        if has_crc_property(record):
            damaged = bytearray(record)
            damaged[20] ^= 1
            assert "its bytes have CRC" in crc_reason(damaged)
            assert crc_property(record[:-CRC_PROPERTY_BYTES]) == bytes(record[-CRC_PROPERTY_BYTES:])


def test_inner_batches_of_a_real_broker(tmp_path: Path) -> None:
    outer = [one for one in map(decode, records(*WITH_CRC, tmp_path)) if kind_of(one) is MessageKind.INNER_BATCH]
    offsets: dict[int, list[int]] = {0: [], 1: []}
    for one in outer:
        inner = list(messages_in(one))
        assert len(inner) == int(one.properties[properties.INNER_NUM])
        assert one.queue_offset == int(one.properties[properties.INNER_BASE])
        offsets[one.queue_id] += [each.queue_offset for each in inner]
        for each in inner:
            assert (each.tags, each.topic, each.physical_offset) == ("TagA", "featBcq", one.physical_offset)
            assert each.keys is not None and each.keys.startswith("bk")
            assert each.body_crc == zlib.crc32(each.body) & 0x7FFFFFFF
            assert list(messages_in(each)) == [each]
    assert offsets[0] == list(range(40))
    assert offsets[1] == [*range(9), *range(10, 23)]  # message 9 came alone


def test_the_golden_batch_encoding_is_reproduced(tmp_path: Path) -> None:
    for one in map(decode, records(*WITH_CRC, tmp_path)):
        if kind_of(one) is MessageKind.INNER_BATCH:
            assert batch_body(decode_batch(one.body)) == bytes(one.body)


def test_the_log_commands_show_what_is_inside(tmp_path: Path) -> None:
    one = next(one for one in map(decode, records(*WITH_CRC, tmp_path)) if one.sys_flag & SysFlag.INNER_BATCH)
    assert "<4 messages>" in as_line(one)
    assert as_line(one).count("featBcq/0#") == 5
    shown = json.loads(as_json(one))
    assert (shown["kind"], [each["queueOffset"] for each in shown["messages"]]) == ("inner batch", [0, 1, 2, 3])
    half = message(topic=topics.HALF_TOPIC, properties=properties.format({"REAL_TOPIC": "t", "REAL_QID": "5"}))
    assert json.loads(as_json(half))["destination"] == "t/5"
    broken = message(body=b"x", sys_flag=SysFlag.INNER_BATCH)
    assert json.loads(as_json(broken))["body"] == "x"


def test_kinds_by_topic_and_flag() -> None:
    assert kind_of(message()) is MessageKind.ORDINARY
    assert kind_of(message(sys_flag=SysFlag.TRANSACTION_PREPARED)) is MessageKind.PREPARED
    assert kind_of(message(sys_flag=SysFlag.TRANSACTION_ROLLBACK)) is MessageKind.ROLLBACK
    assert kind_of(message(topic="%DLQ%g")) is MessageKind.DEAD_LETTER
    assert kind_of(message(topic=topics.TIMER_TOPIC)) is MessageKind.TIMER
    assert destination_of(message(topic=topics.HALF_TOPIC, queue_id=3)) == (topics.HALF_TOPIC, 3)
    real = properties.format({"REAL_TOPIC": "t", "REAL_QID": "5"})
    assert destination_of(message(topic=topics.HALF_TOPIC, properties=real)) == ("t", 5)
    assert destination_of(message(properties=real)) == ("topic", 0)


def test_topics_by_name() -> None:
    assert all(map(topics.is_system_topic, ("SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_REVIVE_LOG_c")))
    assert not any(map(topics.is_system_topic, ("topic", "%RETRY%g", "%DLQ%g", "%LMQ%q", "")))
    assert topics.is_not_for_clients(topics.HALF_TOPIC) and not topics.is_not_for_clients("TBW102")
    assert (topics.group_of("%RETRY%g"), topics.group_of("%DLQ%g"), topics.group_of("g")) == ("g", "g", None)


items = st.builds(BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20), st.binary(max_size=20))


@given(st.lists(items, max_size=5))
def test_what_is_encoded_is_decoded_again(batch: list[BatchItem]) -> None:
    assert [(flag, bytes(body), raw) for flag, body, raw in decode_batch(batch_body(batch))] == batch


@given(st.lists(items, min_size=1, max_size=3), st.data())
def test_any_bytes_are_a_batch_or_malformed(batch: list[BatchItem], data: st.DataObject) -> None:
    raw = bytearray(batch_body(batch))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    one = message(body=cut, sys_flag=SysFlag.INNER_BATCH)
    try:
        found = list(messages_in(one))
    except MalformedData as error:
        assert "inner batch at offset 0" in str(error)
    else:
        assert sum(22 + len(each.body) + len(each.properties_raw) for each in found) == len(cut)


@given(st.binary(max_size=60), st.text("0123456789x", max_size=10))
def test_any_bytes_have_a_property_crc_or_not(record: bytes, digits: str) -> None:
    assert crc_reason(record) == ""
    assert crc_reason(record + crc_property(record)) == ""
    spoiled = record + b"__CRC32#\x01" + digits.ljust(10, "0").encode() + b"\x02"
    assert has_crc_property(spoiled) == ("x" not in digits)
    assert bool(crc_reason(spoiled)) == ("x" not in digits and spoiled != record + crc_property(record))
