"""Columns: equal to what RocketMQ's own classes read, in every shape of record; damage inside a record is named."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.options.read import InvalidOption
from spark_bridge.options.rows import RowOptions
from spark_bridge.records import reader
from spark_bridge.records.columns import Asked
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.split.splits import LogExtent, Selection, plan
from store.columns.columns import COLUMNS
from store.errors import CorruptRecord
from store.files.segment_files import segment_bytes_of
from store.message.host import Host
from tests.spark_bridge.stores import (
    GOLDEN_STORES,
    Row,
    SmallStore,
    expected_host,
    golden_lines,
    read_rows,
    unpack_golden,
)


def rows_of(log: LogExtent, names: list[str] | None = None, verify: bool = False) -> list[Row]:
    return read_rows(plan(log, [], frozenset(), Selection(), None, 4), names, RowOptions(verify_body_crc=verify))


def milliseconds(row: Row, column: str) -> int:
    return round(row[column].timestamp() * 1000)


def as_manifest(row: Row) -> Row:
    """A row in the words of the manifest."""
    return {
        **{name: row[name] for name in ("topic", "queueId", "queueOffset", "physicalOffset", "flag", "sysFlag")},
        **{name: row[name] for name in ("reconsumeTimes", "tags", "keys", "bornHost", "storeHost")},
        "properties": dict(row["properties"]),
        "offsetMsgId": row["msgId"],
        "bornTimestamp": milliseconds(row, "bornTimestamp"),
        "storeTimestamp": milliseconds(row, "storeTimestamp"),
        "storedBodyLength": row["bodyLength"],
        "bodyLength": len(row["body"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
    }


def golden_rows(version: str, name: str, directory: Path) -> list[Row]:
    root = unpack_golden(version, name, directory)
    (limits,) = golden_lines(version, name, "store")
    commitlog = f"{root}/commitlog"
    log = LogExtent(commitlog, segment_bytes_of(Path(commitlog)), limits["minPhyOffset"], 0, limits["maxPhyOffset"])
    return rows_of(log, verify=True)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_every_column_is_what_rocketmq_reads(version: str, name: str, tmp_path: Path):
    rows = golden_rows(version, name, tmp_path)
    found = [as_manifest(row) for row in rows]
    expected = [
        {**line, "bornHost": expected_host(line["bornHost"]), "storeHost": expected_host(line["storeHost"])}
        for line in golden_lines(version, name, "message")
    ]
    batches = {line["physicalOffset"]: line for line in expected if line["sysFlag"] & 0x80}
    whole = [line for line in expected if line["physicalOffset"] not in batches]
    assert [{key: line[key] for key in found[0]} for line in whole] == [
        row for row in found if row["physicalOffset"] not in batches
    ]
    shared = ("topic", "queueId", "offsetMsgId", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost")
    for offset, line in batches.items():
        inner = [row for row in found if row["physicalOffset"] == offset]
        first, count = int(line["properties"]["INNER_BASE"]), int(line["properties"]["INNER_NUM"])
        assert [row["queueOffset"] for row in inner] == list(range(first, first + count))
        assert all(row[key] == line[key] for row in inner for key in shared)
        assert all(row["sysFlag"] == line["sysFlag"] & 0x30 for row in inner)
        assert all("INNER_NUM" not in row["properties"] for row in inner)
    assert [row["physicalOffset"] for row in found] == sorted(row["physicalOffset"] for row in found)
    assert len(found) == len(whole) + sum(int(line["properties"]["INNER_NUM"]) for line in batches.values())


def test_host_families_may_be_mixed_in_any_order(tmp_path):
    store = SmallStore(tmp_path)
    hosts = [Host("10.0.0.7", 1), Host("2001:db8:0:0:0:0:0:1", 2), Host("0:0:0:0:0:0:0:1", 70000), Host("1.2.3.4", -1)]
    for number in range(16):
        store.put("t", b"", born_host=hosts[number % 4], store_host=hosts[number // 4], born_timestamp_ms=number)
    rows = rows_of(store.extent())
    texts = ["10.0.0.7:1", "[2001:db8:0:0:0:0:0:1]:2", "[0:0:0:0:0:0:0:1]:70000", "1.2.3.4:-1"]
    assert [(row["bornHost"], row["storeHost"]) for row in rows] == [
        (texts[number % 4], texts[number // 4]) for number in range(16)
    ]
    assert [milliseconds(row, "bornTimestamp") for row in rows] == list(range(16))
    assert {len(row["msgId"]) for row in rows} == {32, 56}


def test_each_column_alone_is_the_same_as_among_the_others(tmp_path):
    store = SmallStore(tmp_path)
    for number in range(20):
        store.put("topic-name-above-twelve" if number % 3 else "t", bytes([number]) * number, properties=b"TAGS\x01a")
    rows = rows_of(store.extent())
    for column in COLUMNS:
        assert rows_of(store.extent(), [column.name]) == [{column.name: row[column.name]} for row in rows]


def test_a_batch_is_bounded_by_bytes_when_bodies_are_wanted_and_by_rows_otherwise(tmp_path, monkeypatch):
    store = SmallStore(tmp_path, 1 << 16)
    for number in range(50):
        store.put("t", b"x" * (5000 if number == 25 else 100))
    splits = plan(store.extent(), [], frozenset(), Selection(), None, 1)
    monkeypatch.setattr(reader, "BATCH_BYTES_MAX", 2000)
    monkeypatch.setattr(reader, "BATCH_ROWS_MAX", 20)

    def batch_rows(name: str, kind: pa.DataType) -> list[int]:
        asked = Asked.of([name], schema=pa.schema([(name, kind)]))
        return [len(batch) for split in splits for batch in reader.read_split(split, asked)]

    by_bytes = batch_rows("body", pa.binary())
    assert sum(by_bytes) == 50
    assert max(by_bytes) == 10
    assert 1 in by_bytes
    assert sum(batch_rows("queueId", pa.int32())) == 50


def test_an_empty_body_and_a_record_at_the_very_end_of_the_readable_bytes(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", b"")
    store.put("ab", b"", properties=b"K\x01v")
    rows = rows_of(store.extent())
    assert [(row["body"], row["topic"], dict(row["properties"])) for row in rows] == [
        (b"", "t", {}),
        (b"", "ab", {"K": "v"}),
    ]


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (84, b"\x00\x00\x10\x00", "its body reaches"),
        (84, b"\xff\xff\xff\xff", "its body reaches"),
        (92, b"\x7f", "its "),
    ],
)
def test_lengths_inside_a_record_must_add_up(tmp_path, at, value, told):
    store = SmallStore(tmp_path)
    store.put("first", b"body")
    offset = store.put("second", b"body")
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[offset + at : offset + at + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match=told) as caught:
        rows_of(store.extent(), ["topic"])
    assert (caught.value.offset, caught.value.path) == (offset, str(path))


def test_a_body_of_a_record_with_ipv6_hosts_cannot_reach_behind_it(tmp_path):
    store = SmallStore(tmp_path)
    host = Host("2001:db8:0:0:0:0:0:1", 2)
    offset = store.put("t", b"body", born_host=host, store_host=host)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    length_at = offset + 84 + 24
    content[length_at : length_at + 4] = (store.end - 91).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match="its body reaches"):
        rows_of(store.extent(), ["body"])


def test_verify_crc_names_the_record_whose_body_rotted(tmp_path):
    store = SmallStore(tmp_path)
    store.put("t", b"good")
    offset = store.put("t", b"good")
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[offset + 88] ^= 1
    path.write_bytes(content)
    assert len(rows_of(store.extent(), ["body"])) == 2
    with pytest.raises(CorruptRecord, match="CRC") as caught:
        rows_of(store.extent(), ["queueId"], verify=True)
    assert caught.value.offset == offset


def test_an_unknown_column_is_an_error_with_the_nearest_name():
    with pytest.raises(InvalidOption, match="did you mean 'queueOffset'"):
        schema_of(["queueoffset"])
