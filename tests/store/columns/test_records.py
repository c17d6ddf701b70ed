"""Records of which some were chosen, or that were joined, say what they say when they are read alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_bridge.records.columns import Asked
from store.columns.columns import COLUMNS, arrow_schema
from store.columns.records import Records, faults
from store.columns.window import LogWindow
from store.errors import CorruptRecord
from store.message.host import Host
from store.message.record import MAGIC_V1, MAGIC_V2, SYS_FLAG_AT, encode

V4, V6 = Host("127.0.0.1", 10911), Host("2001:db8:0:0:0:0:0:1", 10912)
SHAPES = [(V4, V4, MAGIC_V1), (V6, V4, MAGIC_V1), (V4, V6, MAGIC_V2), (V6, V6, MAGIC_V2), (V4, V4, MAGIC_V2)]
ASKED = Asked(COLUMNS, arrow_schema(COLUMNS))


def window_of(records: list[bytes]) -> tuple[LogWindow, np.ndarray]:
    """The records one behind the other, and where each begins."""
    ends = np.cumsum([len(record) for record in records])
    array = np.frombuffer(b"".join(records), np.uint8)
    return LogWindow("a segment", 0, array, len(array)), ends - [len(record) for record in records]


def some_records(shapes: list[tuple[Host, Host, int]]) -> list[bytes]:
    return [
        encode(
            topic="t" * (1 + number % 5),
            body=b"b" * (number % 20),
            properties=b"TAGS\x01" + b"p" * (number % 3),
            queue_id=number % 4,
            queue_offset=10 * number,
            physical_offset=number,
            flag=-number,
            store_timestamp_ms=1000 + number,
            born_timestamp_ms=number,
            reconsume_times=number,
            born_host=shapes[number % len(shapes)][0],
            store_host=shapes[number % len(shapes)][1],
            magic=shapes[number % len(shapes)][2],
        )
        for number in range(40)
    ]


def rows(records: Records) -> list[dict[str, object]]:
    return ASKED.batch_of(records).to_pylist()


@pytest.mark.parametrize("shapes", [SHAPES[:1], SHAPES])
@pytest.mark.parametrize("asked_before", [True, False])
def test_chosen_and_joined_records_are_those_that_are_read_alone(shapes, asked_before):
    window, starts = window_of(some_records(shapes))
    alone = [rows(Records(window, starts[at : at + 1]))[0] for at in range(len(starts))]
    assert [row["reconsumeTimes"] for row in alone] == list(range(40))
    assert [row["queueOffset"] for row in alone] == list(range(0, 400, 10))
    records = Records(window, starts)
    if asked_before:
        assert records.sizes.sum() == window.length
    mask = np.arange(40) % 3 == 1
    assert rows(records.meeting(mask)) == alone[1::3]
    assert rows(records.chosen(np.array([7, 2, 39]))) == [alone[7], alone[2], alone[39]]
    parts = [records.chosen(slice(0, 11)), records.meeting(mask), Records(window, starts[20:])]
    assert rows(Records.joined(parts)) == alone[:11] + alone[1::3] + alone[20:]
    assert rows(records.meeting(np.zeros(40, np.bool_))) == []
    assert records.meeting(np.ones(40, np.bool_)) is records


@pytest.mark.parametrize("width", [1, 12, 13, 127])
def test_texts_of_one_length_are_what_they_are_among_others(width):
    topics = [chr(ord("a") + number) * width for number in range(20)]
    encoded = [encode(topic=topic, body=b"", properties=b"") for topic in topics]
    window, starts = window_of(encoded)
    assert Records(window, starts).topic.to_pylist() == topics  # the last one's end is the window's, but for two bytes
    mixed, places = window_of([encode(topic="another length", body=b"", properties=b""), *encoded])
    assert Records(mixed, places).topic.to_pylist() == ["another length", *topics]
    assert Records(mixed, places).chosen(slice(1, None)).topic.equals(Records(window, starts).topic)


def test_texts_of_one_length_that_are_no_utf_8_are_read_as_java_reads_them():
    records = [encode(topic=topic, body=b"", properties=b"") for topic in ("good", "evil")]
    window, starts = window_of([record.replace(b"evil", b"\xff\xfe-x") for record in records])
    assert Records(window, starts).topic.to_pylist() == ["good", "\ufffd\ufffd-x"]


def test_a_size_of_less_than_a_record_is_reported_as_wrong():
    record = bytearray(encode(topic="t", body=b"b", properties=b""))
    record[3] = 20
    window, starts = window_of([bytes(record)])
    assert len(faults(Records(window, starts))) == 1
    record[SYS_FLAG_AT + 3] = 0x30
    assert len(faults(Records(*window_of([bytes(record)])))) == 1


@pytest.mark.parametrize("name", ["msgId", "storeHost", "reconsumeTimes", "bodyLength", "topic"])
def test_hosts_that_do_not_fit_into_their_record_are_an_error(name):
    record = bytearray(encode(topic="t", body=b"", properties=b""))
    record[SYS_FLAG_AT + 3] = 0x30
    window, starts = window_of([bytes(record)])
    column = next(column for column in COLUMNS if column.name == name)
    with pytest.raises(CorruptRecord, match="its body reaches beyond its end"):
        column.build(Records(window, starts))


def test_bytes_across_fields_are_read_where_they_are_asked_for():
    window, starts = window_of(some_records(SHAPES))
    records = Records(window, starts)
    assert records.int32_at(6).tolist() == [int(window.view(">i4")[at + 6]) for at in starts]
    assert records.int64_at(6).tolist() == [int(window.view(">i8")[at + 6]) for at in starts]
    assert pa.array(records.int32_at(6)).type == pa.int32()
