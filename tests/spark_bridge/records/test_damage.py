"""Damage in the middle: an error in failfast, in permissive a row that tells it, and every other record still a row."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bridge.options.rows import RowOptions
from spark_bridge.plan.inventory import find_queues
from spark_bridge.split.splits import LogExtent, QueuePiece, QueueSplit, Selection, Split, plan
from store.errors import CorruptRecord, QueueEntriesRemoved, SegmentRemoved
from store.message.record import BODY_CRC_AT, SYS_FLAG_AT, encode
from store.queues.consume_queue import CQ_DTYPE
from tests.spark_bridge.stores import Row, SmallStore, read_rows

FAILFAST, PERMISSIVE = RowOptions(), RowOptions(mode="permissive")
NAMES = ["physicalOffset", "queueOffset", "topic", "body", "_error"]
SEGMENT = 4096


def overwrite(store: SmallStore, offset: int, data: bytes) -> None:
    path = store.root / "commitlog" / f"{offset - offset % store.segment_bytes:020d}"
    content = bytearray(path.read_bytes())
    at = offset % store.segment_bytes
    content[at : at + len(data)] = data
    path.write_bytes(content)


def ranges(log: LogExtent, split_bytes: int | None = None, **selection: object) -> list[Split]:
    return plan(log, [], frozenset(), Selection(**selection), split_bytes, 4)  # type: ignore[arg-type]


def rows_and_errors(splits: list[Split], options: RowOptions = PERMISSIVE) -> tuple[list[int], list[Row]]:
    """Offsets of the rows, and the rows that tell of damage."""
    rows = read_rows(splits, NAMES, options)
    return [row["physicalOffset"] for row in rows if not row["_error"]], [row for row in rows if row["_error"]]


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path, SEGMENT)
    for number in range(90):
        made.put(("orders", "payments")[number % 2], bytes([number]) * number, number % 3, properties=b"TAGS\x01a")
    return made


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\x7f\xff\xff\xff"),  # its size: beyond the segment
        (0, b"\x00\x00\x01\x50"),  # … into the middle of another record
        (0, b"\x00\x00\x00\x00"),
        (4, b"\x00"),  # its magic code
        (35, b"\x01"),  # its own place
        (84, b"\xff\xff\xff\xff"),  # its body's length
        (84, b"\x00\x00\x00\x01"),
        (0, bytes(60)),
        (0, bytes(100)),
        (0, b"\xff" * 100),
    ],
)
def test_one_damaged_record_is_reported_and_all_others_are_rows(store, at, data):
    row = 40
    damaged = store.offsets[row]
    overwrite(store, damaged + at, data)
    others = [offset for offset in store.offsets if offset != damaged]
    for split_bytes in (None, SEGMENT, 700, 100):
        with pytest.raises(CorruptRecord):
            read_rows(ranges(store.extent(reput=0), split_bytes), ["topic"], FAILFAST)
        found, errors = rows_and_errors(ranges(store.extent(reput=0), split_bytes))
        assert found == others
        assert [error["physicalOffset"] for error in errors] == [damaged]
        segment = store.root / "commitlog" / f"{damaged - damaged % SEGMENT:020d}"
        assert errors[0]["_error"].startswith(f"CORRUPT_RECORD: {segment}: record at offset {damaged}: ")
        assert errors[0]["_error"].endswith(f"reading continues at offset {store.offsets[row + 1]}")


def test_a_size_that_skips_whole_records_hides_no_record(store):
    row = 40
    overwrite(store, store.offsets[row], struct.pack(">i", store.offsets[row + 3] - store.offsets[row]))
    found, errors = rows_and_errors(ranges(store.extent(reput=0)))
    assert found == [offset for offset in store.offsets if offset != store.offsets[row]]
    assert "do not add up" in errors[0]["_error"]


@settings(deadline=None, max_examples=60)
@given(
    damages=st.lists(st.tuples(st.integers(0, 49), st.integers(0, 90), st.binary(min_size=1, max_size=8)), max_size=6),
    split_bytes=st.sampled_from([None, 100, 700, SEGMENT]),
)
def test_whatever_is_damaged_no_other_record_is_lost_or_given_twice(tmp_path_factory, damages, split_bytes):
    store = SmallStore(tmp_path_factory.mktemp("store"), SEGMENT)
    for number in range(50):
        store.put("orders", bytes([number]) * number)
    damaged = set()
    for row, at, data in damages:
        offset, size, *_ = store.records[row]
        if at in range(SYS_FLAG_AT - 8, SYS_FLAG_AT + 4):
            continue  # another flag makes another message of it: one of a batch, of a transaction
        overwrite(store, offset + at, data[: size - at])
        damaged.add(offset)
    found, errors = rows_and_errors(ranges(store.extent(reput=0), split_bytes))
    assert len(set(found)) == len(found)
    assert set(found) >= set(store.offsets) - damaged
    told = [(error["physicalOffset"], int(error["_error"].rsplit(" ", 1)[1])) for error in errors]
    for offset in set(store.offsets) - set(found):
        assert any(first <= offset < goes_on for first, goes_on in told)


def test_a_page_of_zeros_is_reported_once(store):
    first = store.offsets[40] - store.offsets[40] % SEGMENT + 1000
    overwrite(store, first, bytes(1024))
    hit = [o for o, size, *_ in store.records if o < first + 1024 and o + size > first]
    found, errors = rows_and_errors(ranges(store.extent(reput=0)))
    body_only = [offset for offset in hit if offset in found]  # zeros in a body alone break no record
    assert found == [offset for offset in store.offsets if offset not in hit or offset in body_only]
    assert len(body_only) <= 1
    assert 1 <= len(errors) <= 2


def forging(tmp_path: Path) -> SmallStore:
    """A body that holds a sound record which names its own place, and leads to the next real one."""
    store = SmallStore(tmp_path, SEGMENT)
    store.put("real", b"before")
    forged = encode(topic="real", body=b"1" * 30, physical_offset=store.end + 88, queue_offset=1)
    tail = 1 + len("real") + 2
    store.put("real", (len(forged) + tail).to_bytes(4, "big") + forged[4:])
    store.put("real", b"behind")
    return store


@pytest.mark.parametrize(("at", "data"), [(0, b"\0\0\0\x05"), (4, b"\0\0"), (28, b"\xff" * 8), (84, b"\x7f")])
def test_a_record_forged_in_the_body_of_a_damaged_one_is_no_row(tmp_path, at, data):
    store = forging(tmp_path)
    overwrite(store, store.offsets[1] + at, data)
    found, errors = rows_and_errors(ranges(store.extent(reput=0)))
    assert found == [store.offsets[0], store.offsets[2]]
    assert [error["physicalOffset"] for error in errors] == [store.offsets[1]]


def test_where_size_and_lengths_are_lost_the_consume_queue_denies_a_forged_record(tmp_path):
    store = SmallStore(tmp_path, SEGMENT)
    store.put("real", b"before")
    body_at = store.end + 88
    store.put("real", encode(topic="real", body=b"1" * 30, physical_offset=body_at, queue_offset=1))
    store.put("real", b"behind")
    store.dispatch()
    overwrite(store, store.offsets[1], bytes(88))
    known = LogExtent(**{**store.extent().__dict__, "root": str(tmp_path)})
    found, errors = rows_and_errors(ranges(known))
    assert found == [store.offsets[0], store.offsets[2]]
    assert [error["physicalOffset"] for error in errors] == [store.offsets[1]]


def test_behind_damage_at_the_end_of_a_segment_the_next_one_is_read(store):
    last = max(offset for offset in store.offsets if offset < SEGMENT)
    overwrite(store, last, bytes(SEGMENT - last))
    found, errors = rows_and_errors(ranges(store.extent(reput=0)))
    assert found == [offset for offset in store.offsets if offset != last]
    assert errors[0]["_error"].endswith(f"no record follows below offset {SEGMENT}")


def test_a_blank_record_behind_the_damaged_one_ends_the_segment(store):
    last = max(offset for offset in store.offsets if offset < SEGMENT)
    overwrite(store, last + 4, b"\0")
    found, errors = rows_and_errors(ranges(store.extent(reput=0), 256))
    assert found == [offset for offset in store.offsets if offset != last]
    assert [error["physicalOffset"] for error in errors] == [last]


def test_the_limit_may_cut_a_record_behind_damage(store):
    overwrite(store, store.offsets[40] + 4, b"\0")
    for cut in range(store.offsets[42], store.offsets[43], 7):
        found, errors = rows_and_errors(ranges(store.extent(reput=0, end=cut)))
        assert found == [o for o, size, *_ in store.records if o + size <= cut and o != store.offsets[40]]
        assert len(errors) == 1


def test_damage_is_reported_whatever_is_selected(store):
    overwrite(store, store.offsets[40] + 4, b"\0")
    chosen = {"topics": frozenset(["payments"]), "queue_ids": frozenset([1])}
    found, errors = rows_and_errors(ranges(store.extent(reput=0), 512, **chosen))
    assert found == [offset for offset, _, topic, queue, _ in store.records if (topic, queue) == ("payments", 1)]
    assert len(errors) == 1


def queue_splits(store: SmallStore, topic: str) -> list[Split]:
    store.dispatch()
    log = store.extent()
    selection = Selection(frozenset([topic]))
    return plan(log, *find_queues(str(store.root), log, selection), selection, None, 1)


@pytest.mark.parametrize(("at", "data"), [(0, b"\x7f"), (4, b"\0"), (35, b"\1"), (84, b"\x70"), (84, b"\0\0\0\1")])
def test_through_a_queue_the_row_says_which_message_is_lost(store, at, data):
    _, _, topic, queue, queue_offset = store.records[40]
    splits = queue_splits(store, topic)
    overwrite(store, store.offsets[40] + at, data)
    with pytest.raises(CorruptRecord):
        read_rows(splits, ["topic"], FAILFAST)
    found, errors = rows_and_errors(splits)
    others = [record for record in store.records if record[2] == topic and record[0] != store.offsets[40]]
    assert sorted(found) == [record[0] for record in others]
    (error,) = errors
    assert (error["topic"], error["queueOffset"], error["physicalOffset"]) == (topic, queue_offset, store.offsets[40])
    kafka = read_rows(splits, ["topic", "partition", "offset", "_error"], RowOptions("kafka", mode="permissive"))
    (error,) = [row for row in kafka if row["_error"]]
    assert (error["partition"], error["offset"]) == (queue, queue_offset)


def test_queue_entries_that_point_outside_the_log_are_reported(store):
    splits = queue_splits(store, "orders")
    path = next((store.root / "consumequeue" / "orders" / "0").iterdir())
    content = bytearray(path.read_bytes())
    for number, entry in ((1, (1 << 62, 100, 0)), (2, (-5, -1, 0))):
        struct.pack_into(">qiq", content, number * CQ_DTYPE.itemsize, *entry)
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match=r"entry 1 of .*/orders/0 names it, outside the log"):
        read_rows(splits, ["topic"], RowOptions(fail_on_data_loss=False))  # damage is no loss
    found, errors = rows_and_errors(splits)
    assert len(found) == 45 - 2
    assert sorted((error["topic"], error["queueOffset"]) for error in errors) == [("orders", 1), ("orders", 2)]


def test_a_body_whose_crc_is_wrong_is_null_and_reported(store):
    overwrite(store, store.offsets[40] + BODY_CRC_AT, b"\x12\x34")
    splits = ranges(store.extent(reput=0))
    assert len(read_rows(splits, ["body"])) == 90
    with pytest.raises(CorruptRecord, match="CRC"):
        read_rows(splits, ["topic"], RowOptions(verify_body_crc=True))
    rows = read_rows(splits, NAMES, RowOptions(mode="permissive", verify_body_crc=True))
    assert [row["body"] is None for row in rows] == [number == 40 for number in range(90)]
    assert "CRC" in rows[40]["_error"]
    assert rows[40]["topic"] == "orders"


def test_a_removal_since_the_plan_is_an_error_or_a_row_as_the_options_say(store, caplog):
    splits = ranges(store.extent(reput=0), SEGMENT)
    (store.root / "commitlog" / f"{SEGMENT:020d}").unlink()
    kept = [offset for offset in store.offsets if not SEGMENT <= offset < 2 * SEGMENT]
    for options in (FAILFAST, PERMISSIVE):
        with pytest.raises(SegmentRemoved):
            read_rows(splits, ["topic"], options)
    found, errors = rows_and_errors(splits, RowOptions(mode="permissive", fail_on_data_loss=False))
    assert found == kept
    assert "SEGMENT_REMOVED" in errors[0]["_error"]
    with caplog.at_level(logging.WARNING):
        rows = read_rows(splits, ["physicalOffset"], RowOptions(fail_on_data_loss=False))
    assert [row["physicalOffset"] for row in rows] == kept
    assert f"{SEGMENT:020d}" in caplog.text


def test_a_segment_that_was_cut_short_is_reported(store):
    splits = ranges(store.extent(reput=0), SEGMENT)
    path = store.root / "commitlog" / f"{SEGMENT:020d}"
    path.write_bytes(path.read_bytes()[:1000])
    found, errors = rows_and_errors(splits)
    assert found == [offset for offset in store.offsets if not SEGMENT <= offset < 2 * SEGMENT]
    assert "SEGMENT_SIZE_MISMATCH" in errors[0]["_error"]


def test_entries_that_expired_since_the_plan_are_named_and_the_others_read(tmp_path):
    store = SmallStore(tmp_path, SEGMENT)
    for number in range(150):
        store.put("t", bytes([number]))
    store.dispatch()
    piece = QueuePiece(str(tmp_path / "consumequeue" / "t" / "0"), "t", 0, 10, 150)
    split = QueueSplit(store.extent(), (piece,))
    (tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}").unlink()
    for options in (FAILFAST, PERMISSIVE):
        with pytest.raises(QueueEntriesRemoved, match="entries 10 to 64"):
            read_rows([split], ["topic"], options)
    found, errors = rows_and_errors([split], RowOptions(mode="permissive", fail_on_data_loss=False))
    assert found == store.offsets[64:]
    assert (errors[0]["topic"], errors[0]["queueOffset"]) == ("t", 10)
