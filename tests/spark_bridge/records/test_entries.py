"""Entries of consume queues are believed only where the record agrees: size, topic, queue and place in the queue."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from spark_bridge.options.rows import RowOptions
from spark_bridge.plan.inventory import find_extent, find_queues, topics_of
from spark_bridge.records.entries import QueueEntries, judged, records_named
from spark_bridge.split.splits import LogExtent, Selection, Split, plan
from store.columns.window import LogWindow
from store.errors import CorruptRecord
from store.message.record import MAGIC_V2, MAX_TOPIC_BYTES, QUEUE_OFFSET_AT, encode
from store.message.unit import LAST_ADDRESS
from store.queues.consume_queue import CQ_DTYPE
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, read_rows, unpack_golden

ENTRY = CQ_DTYPE.itemsize
NAMES = ["topic", "queueId", "queueOffset", "physicalOffset", "_error"]
PERMISSIVE = RowOptions(mode="permissive")


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """Topics a and b, thirty messages each, in one queue; all records of one size."""
    made = SmallStore(tmp_path / "store", 1 << 16)
    for number in range(60):
        made.put("ab"[number % 2], b"%04d" % number)
    made.dispatch()
    return made


def wrong(window: LogWindow, entries: QueueEntries) -> list[int]:
    """The rows of entries that name no record of their size, or another message."""
    return judged(window, entries)[1].tolist()


def queue_file(store: SmallStore, topic: str, queue_id: int = 0) -> Path:
    (path,) = (store.root / "consumequeue" / topic / str(queue_id)).iterdir()
    return path


def entry_of(store: SmallStore, topic: str, number: int) -> bytes:
    return queue_file(store, topic).read_bytes()[number * ENTRY : (number + 1) * ENTRY]


def replace_entry(store: SmallStore, topic: str, number: int, entry: bytes) -> None:
    path = queue_file(store, topic)
    content = bytearray(path.read_bytes())
    content[number * ENTRY : (number + 1) * ENTRY] = entry
    path.write_bytes(content)


def splits_of(log: LogExtent, root: str, topic: str, **more: object) -> list[Split]:
    selection = Selection(frozenset([topic]), **more)  # type: ignore[arg-type]
    return plan(log, *find_queues(root, log, selection), selection, None, 1)


def window_of(store: SmallStore) -> LogWindow:
    path = store.root / "commitlog" / f"{0:020d}"
    return LogWindow(str(path), 0, np.frombuffer(path.read_bytes(), np.uint8), store.end)


def one_entry(topic: str, number: int, position: int, size: int, queue_id: int = 0) -> QueueEntries:
    words = np.array([number], np.int64), np.array([position], np.int64)
    return QueueEntries(topic, queue_id, *words, np.array([size], np.int32))


@pytest.mark.parametrize(("other", "is_message"), [(("a", 6), "message 6"), (("b", 5), "message 5"), (("a", 4), "4")])
def test_an_entry_that_names_another_whole_record_is_reported(store, other, is_message):
    replace_entry(store, "a", 5, entry_of(store, *other))
    splits = splits_of(store.extent(), str(store.root), "a")
    told = rf"entry 5 of queue 0 of 'a' names it, but it is .*{is_message} of queue 0 of '{other[0]}'.* rebuild"
    for names in (["topic"], ["physicalOffset"], []):
        with pytest.raises(CorruptRecord, match=told):
            read_rows(splits, names)
    rows = read_rows(splits, NAMES, PERMISSIVE)
    assert sorted(row["queueOffset"] for row in rows if not row["_error"]) == [*range(5), *range(6, 30)]
    (damage,) = [row for row in rows if row["_error"]]
    assert damage["_error"].startswith("CORRUPT_RECORD: ")
    assert (damage["topic"], damage["queueId"], damage["queueOffset"]) == ("a", 0, 5)


def test_an_entry_of_another_queue_of_its_topic_is_reported(tmp_path):
    store = SmallStore(tmp_path, 1 << 16)
    for number in range(20):
        store.put("a", b"%04d" % number, number % 2)
    store.dispatch()
    other = queue_file(store, "a", 1).read_bytes()[5 * ENTRY : 6 * ENTRY]
    replace_entry(store, "a", 5, other)
    with pytest.raises(CorruptRecord, match="entry 5 of queue 0 of 'a' names it, but it is message 5 of queue 1"):
        read_rows(splits_of(store.extent(), str(store.root), "a"), ["topic"])


def test_entries_that_tags_leave_out_do_not_shift_the_others(tmp_path):
    store = SmallStore(tmp_path, 1 << 16)
    for number in range(40):
        store.put("a", b"", properties=b"TAGS\x01" + b"xy"[number % 2 : number % 2 + 1])
    store.dispatch()
    path = queue_file(store, "a")
    entries = np.frombuffer(path.read_bytes(), CQ_DTYPE).copy()
    entries["tags_code"][:40] = [ord("xy"[number % 2]) for number in range(40)]  # a letter's hash in Java
    path.write_bytes(entries.tobytes())
    assert ord("x") > LAST_ADDRESS
    splits = splits_of(store.extent(), str(store.root), "a", tags=frozenset("y"))
    assert [row["queueOffset"] for row in read_rows(splits, NAMES[:3])] == list(range(1, 40, 2))
    replace_entry(store, "a", 7, np.array([(store.offsets[9], store.records[9][1], ord("y"))], CQ_DTYPE).tobytes())
    with pytest.raises(CorruptRecord, match="entry 7 of queue 0 of 'a' names it, but it is message 9"):
        read_rows(splits, ["topic"])


def dispatched_twice(tmp_path: Path, names: bytes, offsets: bytes) -> SmallStore:
    """A message of topic a in queue 3, and the properties that say where else it belongs."""
    store = SmallStore(tmp_path, 1 << 16)
    store.put(
        "a", b"x", 3, properties=b"INNER_MULTI_DISPATCH\x01" + names + b"\x02INNER_MULTI_QUEUE_OFFSET\x01" + offsets
    )
    return store


@pytest.mark.parametrize(
    ("names", "offsets", "queue", "is_right"),
    [
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%two", 0, 7), True),
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%one", 0, 4), True),
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%two", 3, 7), True),  # without enableLmq: the message's own queue id
        (b"%LMQ%one,%LMQ%two,", b"4,7", ("%LMQ%two", 0, 7), True),
        (b"other", b"4", ("other", 3, 4), True),
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%two", 0, 4), False),
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%tw", 0, 7), False),
        (b"%LMQ%one,%LMQ%two", b"4,7", ("%LMQ%two", 1, 7), False),
        (b"%LMQ%one,%LMQ%two", b"4", ("%LMQ%one", 0, 4), False),
        (b"%LMQ%one,%LMQ%two", b"", ("%LMQ%one", 0, 0), False),
        (b"other", b"4", ("other", 0, 4), False),
        (b"other", b"no number", ("other", 3, 4), False),
    ],
)
def test_a_multi_dispatch_queue_is_believed_by_the_names_and_offsets_in_the_message(
    tmp_path, names, offsets, queue, is_right
):
    store = dispatched_twice(tmp_path, names, offsets)
    topic, queue_id, number = queue
    entries = one_entry(topic, number, 0, store.records[0][1], queue_id)
    assert (len(wrong(window_of(store), entries)) == 0) == is_right
    assert len(wrong(window_of(store), one_entry("a", 0, 0, store.records[0][1], 3))) == 0


def wide_record(topic: str, queue_offset: int) -> bytes:
    """A record of magic v2 at offset 0, whose topic's length has two bytes."""
    narrow = bytearray(encode(topic="t" * 100, body=b"x", physical_offset=0, queue_offset=queue_offset))
    at = narrow.index(b"t" * 100)
    record = narrow[: at - 1] + len(topic).to_bytes(2, "big") + topic.encode() + narrow[at + 100 :]
    struct.pack_into(">iI", record, 0, len(record), MAGIC_V2)
    return bytes(record)


@pytest.mark.parametrize("topic", ["a" * 126, "a" * 127, "a" * 128, "b" + "a" * 126, "a" * 200, "a" * 256])
@pytest.mark.parametrize("written", ["a" * 127, "a" * 200, "a" * 383])
def test_a_topic_that_begins_or_ends_as_the_queue_s_is_another(topic, written):
    records = [wide_record(written, 7)]
    if len(written) <= MAX_TOPIC_BYTES:
        records.append(encode(topic=written, body=b"x", physical_offset=0, queue_offset=7))
    for record in records:
        window = LogWindow("log", 0, np.frombuffer(record, np.uint8), len(record))
        entry = one_entry(topic, 7, 0, len(record))
        assert (len(wrong(window, entry)) == 0) == (topic == written)
        with nullcontext() if topic == written else pytest.raises(CorruptRecord):
            assert records_named(window, entry).topic.to_pylist() == [topic]


def test_what_no_record_is_belongs_to_no_queue(store):
    window = window_of(store)
    offset, size, *_ = store.records[2]
    records_named(window, one_entry("a", 1, offset, size))
    assert len(wrong(LogWindow(window.path, 0, window.bytes, 5), one_entry("a", 1, offset, size))) == 1
    for wrong_offset, wrong_size in ((offset + 1, size), (offset, size + 1), (store.end - 20, 91), (-5, 91)):
        with pytest.raises(CorruptRecord):
            records_named(window, one_entry("a", 1, wrong_offset, wrong_size))


def test_whatever_a_record_s_lengths_are_nothing_outside_the_window_is_read(store):
    offset, size, *_ = store.records[58]  # the last of topic a
    window = window_of(store)
    for at in range(size):
        for byte in (0, 0x7F, 0x80, 0xFF):
            content = window.bytes.copy()
            content[offset + at] = byte
            wrong(LogWindow(window.path, 0, content, store.end), one_entry("a", 29, offset, size))
    content = window.bytes.copy()
    content[offset + QUEUE_OFFSET_AT + 7] ^= 1
    assert len(wrong(LogWindow(window.path, 0, content, store.end), one_entry("a", 29, offset, size))) == 1


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_every_entry_of_rocketmq_s_own_stores_names_its_message(version, name, tmp_path):
    root = unpack_golden(version, name, tmp_path)
    log = find_extent(root)
    everything = Selection(system_topics=True)
    names = topics_of(root, everything) | {path.name for path in (Path(root) / "consumequeue").iterdir()}
    for topic in names:
        splits = splits_of(log, root, topic)
        assert [row for row in read_rows(splits, NAMES, PERMISSIVE) if row["_error"]] == []
        read_rows(splits, ["physicalOffset"])
