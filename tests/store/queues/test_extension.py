"""Extensions of consume queues: units beside the entries, found again, never written over."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import QueueFileMismatch
from store.message.record import SysFlag, encode
from store.queues.batch_consume_queue import BATCH_DTYPE
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue
from store.queues.extension import ADDRESS_ZERO, EXT_DTYPE, QueueExt, is_address
from store.queues.queue_set import QueueKinds
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import recover
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents

BATCH_FILE_BYTES = 4 * BATCH_DTYPE.itemsize
EXT_BYTES, EXT_FILE_BYTES = EXT_DTYPE.itemsize, 100  # four units, and room that is none


def ext_builder(log: SmallLog, **options: bool) -> Dispatcher:
    kinds = QueueKinds(ext_file_bytes=EXT_FILE_BYTES)
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=kinds, **options)


def ext_of(log: SmallLog) -> QueueExt:
    return QueueExt(log.root / "consumequeue_ext" / "topic" / "0", EXT_FILE_BYTES)


def entries_of(log: SmallLog, topic: str = "topic", queue_id: int = 0) -> list[tuple[int, int, int]]:
    queue = ConsumeQueue.open(log.directory.consumequeue / topic / str(queue_id), QUEUE_FILE_BYTES)
    return [tuple(entry) for entry in queue.entries(0, queue.max_offset).tolist()]


def test_entries_point_to_units_and_files_are_closed_where_no_unit_fits(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(11):
        log.append(properties={"TAGS": f"t{number}"})
    ext_builder(log).dispatch(0, log.end)
    units = list(ext_of(log).units())
    assert [unit.position for unit in units] == [0, 20, 40, 60, 100, 120, 140, 160, 200, 220, 240]
    assert [tags for _, _, tags in entries_of(log)] == [unit.position + ADDRESS_ZERO for unit in units]
    plain = Dispatcher(log.files, tmp_path / "plain" / "consumequeue", QUEUE_FILE_BYTES)
    plain.dispatch(0, log.end)
    queue = ConsumeQueue.open(tmp_path / "plain" / "consumequeue" / "topic" / "0")
    assert [unit.tags_code for unit in units] == queue.entries(0, 11)["tags_code"].tolist()
    first = (log.root / "consumequeue_ext/topic/0" / ("0" * 20)).read_bytes()
    assert first[80:] == b"\xff\xff" + bytes(18)
    assert not is_address(-(1 << 31))


def test_dispatching_again_finds_the_same_units_from_anywhere(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(30):
        log.append(properties={"TAGS": f"t{number % 3}"}, store_timestamp_ms=1000 + number // 4)
    ext_builder(log).dispatch(0, log.end)
    before = contents(log.root)
    for record in log.records[::5]:
        ext_builder(log).dispatch(record.offset, log.end)
        assert contents(log.root) == before
    shutil.rmtree(log.directory.consumequeue)
    ext_builder(log).dispatch(0, log.end)
    assert contents(log.root) == before


def test_records_of_one_time_and_tag_have_units_of_their_own(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for _ in range(6):
        log.append(properties={"TAGS": "t"}, store_timestamp_ms=1000)
    for record in log.records:
        ext_builder(log).dispatch(record.offset, record.end)
    units = list(ext_of(log).units())
    assert [unit.position for unit in units] == [0, 20, 40, 60, 100, 120]
    assert [tags for _, _, tags in entries_of(log)] == [unit.position + ADDRESS_ZERO for unit in units]


def test_what_a_killed_dispatcher_wrote_is_found_again(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(9):
        log.append(properties={"TAGS": f"t{number}"})
    ext_builder(log).dispatch(0, log.end)
    before = contents(log.root)
    queue = ConsumeQueue(log.directory.consumequeue / "topic" / "0", QUEUE_FILE_BYTES)
    for kept in range(9):  # units are written first
        queue.truncate(kept)
        ext_builder(log).dispatch(log.records[kept].offset, log.end)
        assert contents(log.root) == before


def test_units_with_bitmaps_are_kept_and_a_record_between_two_keeps_its_tags_code(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(3):
        log.append(properties={"TAGS": f"t{number}"}, store_timestamp_ms=1000 + number)
    plain = Dispatcher(log.files, tmp_path / "plain" / "consumequeue", QUEUE_FILE_BYTES)
    plain.dispatch(0, log.end)
    codes = ConsumeQueue.open(tmp_path / "plain/consumequeue/topic/0").entries(0, 3)["tags_code"].tolist()
    path = log.root / "consumequeue_ext/topic/0" / ("0" * 20)
    path.parent.mkdir(parents=True)
    kept = b"".join(
        (
            struct.pack(">hqqh", 20, 7, 900, 0),
            struct.pack(">hqqh", 23, codes[0], 1000, 3) + b"abc",
            struct.pack(">hqqh", 22, codes[2], 1002, 2) + b"de",
        )
    )
    path.write_bytes(kept.ljust(EXT_FILE_BYTES, b"\0"))
    ext_builder(log).dispatch(0, log.end)
    assert [tags for _, _, tags in entries_of(log)] == [20 + ADDRESS_ZERO, codes[1], 43 + ADDRESS_ZERO]
    assert path.read_bytes()[: len(kept)] == kept
    log.append(properties={"TAGS": "new"}, store_timestamp_ms=1003)
    ext_builder(log).dispatch(log.records[-1].offset, log.end)
    assert entries_of(log)[-1][2] == 65 + ADDRESS_ZERO
    assert path.read_bytes()[: len(kept)] == kept


def test_a_damaged_unit_ends_its_file_and_is_named(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(6):
        log.append(properties={"TAGS": f"t{number}"})
    ext_builder(log).dispatch(0, log.end)
    path = log.root / "consumequeue_ext/topic/0" / ("0" * 20)
    path.write_bytes(path.read_bytes()[:20] + b"\x00\x05" + path.read_bytes()[22:])
    damaged = path.read_bytes()
    shutil.rmtree(log.directory.consumequeue)
    dispatcher = ext_builder(log)
    dispatcher.dispatch(0, log.end)
    assert "no unit at byte 20" in dispatcher.findings[0]
    tags = [tags for _, _, tags in entries_of(log)]
    assert [is_address(code) for code in tags] == [True, False, False, False, True, True]
    assert path.read_bytes() == damaged


def test_extension_files_of_another_length_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    directory.mkdir()
    (directory / ("0" * 20)).write_bytes(bytes(60))
    with pytest.raises(QueueFileMismatch, match="set mappedFileSizeConsumeQueueExt"):
        QueueExt(directory, EXT_FILE_BYTES)
    log = SmallLog(tmp_path / "store")
    log.append()
    ext_builder(log).dispatch(0, log.end)
    before = contents(log.root)
    with pytest.raises(QueueFileMismatch, match=r"100 bytes .* set mappedFileSizeConsumeQueueExt"):
        recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, kinds=QueueKinds(ext_file_bytes=200))
    assert contents(log.root) == before


def test_multi_dispatch_entries_have_no_units(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0", "TAGS": "t"})
    kinds = QueueKinds(ext_file_bytes=EXT_FILE_BYTES, multi_dispatch=True, lmq=True)
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=kinds).dispatch(0, log.end)
    assert is_address(entries_of(log)[0][2])
    assert entries_of(log, "%LMQ%a")[0][2] == ord("t")
    assert [path.name for path in (log.root / "consumequeue_ext").iterdir()] == ["topic"]


@settings(deadline=None)
@given(st.binary(max_size=EXT_FILE_BYTES), st.lists(st.sampled_from([20, 22, 30]), max_size=4), st.integers())
def test_any_bytes_are_read_as_units_or_end_the_reading(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, sizes: list[int], at: int
) -> None:
    """Whatever the files hold: reading ends, units lie inside and behind each other, putting gives a code for each."""
    directory = tmp_path_factory.mktemp("ext")
    heads = [struct.pack(">hqqh", size, 5, number, size - 20) for number, size in enumerate(sizes)]
    good = b"".join(head.ljust(size, b"x") for head, size in zip(heads, sizes, strict=True))
    place = at % (len(good) + 1)
    for base in (0, EXT_FILE_BYTES):
        raw = (good[:place] + content)[:EXT_FILE_BYTES].ljust(EXT_FILE_BYTES, b"\0")
        (directory / f"{base:020d}").write_bytes(raw)
    ext = QueueExt(directory, EXT_FILE_BYTES)
    ends = [0]
    for unit in ext.units():
        assert ends[-1] <= unit.position
        assert unit.size >= EXT_BYTES
        ends.append(unit.position + unit.size)
    assert ends[-1] <= 2 * EXT_FILE_BYTES
    before = {path: path.read_bytes() for path in directory.iterdir()}
    times = np.arange(3, dtype=np.int64)
    codes = ext.put(np.full(3, 5, np.int64), times)
    for code, time in zip(codes.tolist(), times.tolist(), strict=True):
        found = ext.read(code - ADDRESS_ZERO) if is_address(code) else None
        assert code == 5 or (found is not None and found[2:4] == (5, time))
    for path, raw in before.items():
        now = path.read_bytes()
        for start, end in _spans(raw):
            assert now[start:end] == raw[start:end]


def _spans(raw: bytes) -> list[tuple[int, int]]:
    """Where whole units lie in a file, from its beginning."""
    spans, at = [], 0
    while at + EXT_BYTES + 4 <= len(raw):
        size, _, _, bitmap = struct.unpack_from(">hqqh", raw, at)
        if size != EXT_BYTES + max(bitmap, 0) or at + size + 4 > len(raw):
            break
        spans.append((at, at + size))
        at += size
    return spans


def test_many_records_of_every_kind_at_once(tmp_path: Path) -> None:
    """More than one batch of rows, with and without units, in one queue."""
    count = 50_000
    record = np.frombuffer(encode(topic="topic", body=b"x", properties=b"TAGS\x01t\x02"), np.uint8)
    log = SmallLog(tmp_path, segment_bytes=16 << 20)
    with log.files.create(0) as segment:
        rows = segment.array[: count * len(record)].reshape(count, len(record))
        rows[:] = record
        number = np.arange(count)
        for at, values in ((20, number), (28, number * len(record)), (56, 1000 + number // 3)):
            rows[:, at : at + 8] = values.astype(">i8").view(np.uint8).reshape(count, 8)
    kinds = QueueKinds(ext_file_bytes=65536)
    dispatcher = Dispatcher(log.files, log.directory.consumequeue, 6_000_000, kinds=kinds)
    assert dispatcher.dispatch(0, count * len(record)) == count * len(record)
    per_file = (65536 - 4) // EXT_BYTES
    expected = ADDRESS_ZERO + (number // per_file) * 65536 + (number % per_file) * EXT_BYTES
    found = ConsumeQueue.open(log.directory.consumequeue / "topic" / "0").entries(0, count)
    assert found.dtype == CQ_DTYPE
    assert np.array_equal(found["tags_code"].astype(np.int64), expected)


sent = st.tuples(
    st.sampled_from(["plain", "batch"]),
    st.integers(0, 1),
    st.sampled_from(["t", "ü", ""]),
    st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "plain"]), max_size=2, unique=True),
    st.integers(0, 2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(sent, max_size=25), st.lists(st.integers(0, 25), max_size=5))
def test_however_a_dispatcher_dies_the_files_are_those_of_one_that_did_not(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, int, str, list[str], int]], cuts: list[int]
) -> None:
    """Every kind of queue at once: killed at some records, started again some records before."""
    log, kinds = SmallLog(tmp_path_factory.mktemp("store")), QueueKinds(EXT_FILE_BYTES, BATCH_FILE_BYTES, True, True)
    ends: dict[tuple[str, int], int] = {}
    stored_ms = 1000
    for topic, queue_id, tags, further, later_ms in made:
        properties, count = {"TAGS": tags} if tags else {}, 1
        own = topic, queue_id
        if topic == "batch":
            count = 1 + len(further)
            properties |= {"INNER_NUM": str(count), "INNER_BASE": str(ends.get(own, 0))}
        elif further:
            keys = [(name, 0 if name.startswith("%LMQ%") else queue_id) for name in further if name != topic]
            offsets = ",".join(str(ends.get(key, 0)) for key in keys)
            if keys:
                names = ",".join(name for name, _ in keys)
                properties |= {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
            ends |= {key: ends.get(key, 0) + 1 for key in keys}
        stored_ms += later_ms
        flag = int(SysFlag.INNER_BATCH) if topic == "batch" else 0
        log.append(
            topic,
            queue_id=queue_id,
            queue_offset=ends.get(own, 0),
            properties=properties,
            sys_flag=flag,
            store_timestamp_ms=stored_ms,
        )
        ends[own] = ends.get(own, 0) + count
    whole = Dispatcher(log.files, log.root / "whole" / "consumequeue", QUEUE_FILE_BYTES, kinds=kinds)
    whole.dispatch(0, log.end)
    bounds = [0, *(log.records[cut].offset for cut in cuts if cut < len(log.records)), log.end]
    reached = 0
    for start, end in zip(bounds, bounds[1:], strict=False):
        dispatcher = Dispatcher(log.files, log.root / "parts" / "consumequeue", QUEUE_FILE_BYTES, kinds=kinds)
        dispatcher.dispatch(min(start, reached), max(end, reached))
        reached = max(end, reached)
        assert dispatcher.findings == []
    assert whole.findings == []
    assert contents(log.root / "parts") == contents(log.root / "whole")
