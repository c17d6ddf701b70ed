"""Consume queues from the log: RocketMQ's own files to the byte, every kind of record, ranges repeated and cut."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import CorruptRecord, QueueGap
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message.host import Host
from store.message.properties import java_hash
from store.message.record import MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, decode, encode
from store.queues.consume_queue import CQ_DTYPE, PREFILL_SIZE, ConsumeQueue
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import recover
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SmallLog, contents

GOLDEN = Path(__file__).parent.parent.parent / "golden"
ENDS = {"rocketmq-4.9.7": 803932, "rocketmq-5.3.3": 936619}
GOLDEN_QUEUE_FILE_BYTES = 4000


def builder(log: SmallLog, **options: bool) -> Dispatcher:
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, **options)


def queue(log: SmallLog, topic: str = "topic", queue_id: int = 0) -> list[tuple[int, int, int]]:
    found = ConsumeQueue.open(log.directory.consumequeue / topic / str(queue_id), QUEUE_FILE_BYTES)
    return [tuple(entry) for entry in found.entries(0, found.max_offset).tolist()]


@pytest.mark.parametrize("version", ENDS)
def test_the_queues_of_a_real_store_come_out_byte_for_byte(version: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / version / "master-store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    files = SegmentFiles(store / "commitlog", segment_bytes_of(store / "commitlog"))
    dispatcher = Dispatcher(files, tmp_path / "built", GOLDEN_QUEUE_FILE_BYTES)
    assert dispatcher.dispatch(0, ENDS[version]) == ENDS[version]
    assert contents(tmp_path / "built") == contents(store / "consumequeue")
    assert dispatcher.findings == []


text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
messages = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b", "ütf", "SCHEDULE_TOPIC_XXXX"]),
            "queue_id": st.integers(0, 2),
            "body": st.binary(max_size=40),
            "properties": st.dictionaries(
                st.one_of(st.sampled_from(["TAGS", "DELAY", "KEYS"]), text), text, max_size=4
            ),
            "born_host": st.sampled_from([Host("10.0.0.1", 1), Host("::1", 2)]),
            "store_host": st.sampled_from([Host("10.0.0.1", 1), Host("::1", 2)]),
            "sys_flag": st.sampled_from([0, 1, 4, 8, 12]),
            "store_timestamp_ms": st.integers(1, 2**50),
        }
    ),
    max_size=30,
)
DELAYS_S = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def expected_entry(raw: bytes) -> tuple[int, int, int] | None:
    """What belongs into the queue, by the plain Python codec; None for records that do not."""
    message = decode(raw)
    if message.sys_flag & 12 in (4, 12):
        return None
    tags_code = message.tags_code
    delay = message.properties.get("DELAY", "")
    if message.topic == "SCHEDULE_TOPIC_XXXX" and delay.isascii() and delay.isdecimal() and int(delay) > 0:
        tags_code = message.store_timestamp_ms + DELAYS_S[min(int(delay), 18) - 1] * 1000
    return message.physical_offset, message.size, tags_code


@settings(max_examples=40, deadline=None)
@given(made=messages, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_every_kind_of_record_as_the_plain_codec_reads_it(
    made: list[dict[str, object]], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = SmallLog(tmp_path_factory.mktemp("store"))
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for fields in made:
        key = fields["topic"], fields["queue_id"]
        entries = expected.setdefault(key, [])  # type: ignore[arg-type]
        placed = log.append(**fields, queue_offset=len(entries))  # type: ignore[arg-type]
        entry = expected_entry(log.read(placed.offset, placed.size))
        if entry is not None:
            entries.append(entry)
    bounds = sorted({0, log.end, *(log.records[cut].offset for cut in cuts if cut < len(log.records))})
    dispatcher = builder(log)
    for start, end in zip(bounds, bounds[1:], strict=False):
        assert dispatcher.dispatch(start, end) == end
    for (topic, queue_id), entries in expected.items():
        assert queue(log, topic, queue_id) == entries


@pytest.mark.parametrize("tags", ["TagA", "größe", "标签", "😀 tag", "x" * 300, "\ufffd"])
def test_tags_codes_are_javas(tags: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append(properties={"KEYS": "TAGS", "TAGS": tags, "LAST": "1"})
    builder(log).dispatch(0, log.end)
    assert queue(log)[0][2] == java_hash(tags)


@pytest.mark.parametrize(
    "raw, expected",
    [
        (b"TAGS\x01one\x02TAGS\x01two", "two"),
        (b"TAGS\x01one\x02TAGS\x01", "one"),
        (b"TAGS\x01\x02TAGS\x01two\x02", "two"),
        (b"TAGS", ""),
        (b"\x01TAGS\x02XTAGS\x01no\x02TAGSX\x01no", ""),
        (b"TAGS\x01a\x01b", "a\x01b"),
        (b"TAGS\x01\xc3\xa4\x02TAGS\x01b", "b"),
    ],
)
def test_odd_properties(raw: bytes, expected: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append_raw(encode(topic="topic", body=b"", properties=raw))
    builder(log).dispatch(0, log.end)
    assert queue(log)[0][2] == java_hash(expected)


@pytest.mark.parametrize("level, seconds", [*enumerate(DELAYS_S, 1), (19, 7200), ("+3", 10)])
def test_a_delay_level_becomes_the_time_of_delivery(level: int | str, seconds: int, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": str(level), "TAGS": "t"})
    log.append("topic", properties={"DELAY": str(level), "TAGS": "t"})
    builder(log).dispatch(0, log.end)
    assert queue(log, "SCHEDULE_TOPIC_XXXX")[0][2] == FIRST_STORE_MS + seconds * 1000
    assert queue(log)[0][2] == java_hash("t")


def test_dispatching_again_from_anywhere_changes_nothing(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(60)
    builder(log).dispatch(0, log.end)
    before = contents(log.directory.consumequeue)
    for record in log.records[::7]:
        builder(log).dispatch(record.offset, log.end)
        assert contents(log.directory.consumequeue) == before
    again = builder(log)
    for _ in range(2):
        again.dispatch(0, log.end)
        assert contents(log.directory.consumequeue) == before


def test_what_a_killed_dispatcher_half_wrote_is_written_again(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(12, topics=1, queues=1)
    builder(log).dispatch(0, log.end)
    path = log.directory.consumequeue / "topic0" / "0" / ("0" * 20)
    whole = path.read_bytes()
    cursor = log.records[5].offset
    for kept in range(5 * 20, 10 * 20):
        path.write_bytes(whole[:kept] + bytes(len(whole) - kept))
        builder(log).dispatch(cursor, log.end)
        assert path.read_bytes() == whole, f"{kept} bytes were written"


def test_a_log_that_ends_in_part_of_a_record_is_waited_for(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(2, topics=1, queues=1)
    last = log.records[-1]
    for limit in range(last.offset, last.end):
        dispatcher = builder(log)
        assert dispatcher.dispatch(0, limit) == last.offset
        assert len(queue(log, "topic0")) == 1
        assert dispatcher.dispatch(last.offset, last.end) == last.end
        assert len(queue(log, "topic0")) == 2
        ConsumeQueue(log.directory.consumequeue / "topic0" / "0", QUEUE_FILE_BYTES).truncate(1)


def test_a_blank_record_counts_when_all_of_the_segment_is_there(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    while log.end <= log.segment_bytes:
        log.append()
    blank_at = log.records[-2].end
    dispatcher = builder(log)
    for limit in (blank_at + 3, blank_at + 8, log.segment_bytes - 1):
        assert dispatcher.dispatch(0, limit) == blank_at
    assert dispatcher.dispatch(blank_at, log.segment_bytes) == log.segment_bytes
    assert dispatcher.dispatch(log.segment_bytes, log.end) == log.end
    assert len(queue(log)) == len(log.records)


def test_a_queue_that_starts_above_0_is_prefilled_in_its_first_file(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    placed = log.append(queue_offset=23)
    builder(log).dispatch(0, log.end)
    found = ConsumeQueue.open(log.directory.consumequeue / "topic" / "0")
    assert found.bases() == [400]
    nowhere = np.zeros(3, CQ_DTYPE)
    nowhere["size"] = PREFILL_SIZE
    assert found.entries(0, 23).tobytes() == nowhere.tobytes()
    assert (found.min_offset, found.max_offset) == (23, 24)
    assert found.entries(23, 24)["physical_offset"].tolist() == [placed.offset]


def test_a_queue_with_a_gap_goes_on_at_its_end_as_rocketmq_does_it(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append()
    log.append(queue_offset=5)
    log.append(queue_offset=0)
    dispatcher = builder(log)
    dispatcher.dispatch(0, log.end)
    assert [offset for offset, _, _ in queue(log)] == [log.records[0].offset, log.records[1].offset]
    assert "message 5 follows message 0" in dispatcher.findings[0]


def test_a_gap_is_refused_before_anything_is_written_when_asked(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("other")
    log.append(queue_offset=5)
    with pytest.raises(QueueGap) as error:
        builder(log, refuse_gaps=True).dispatch(0, log.end)
    assert (error.value.end, error.value.queue_offset) == (0, 5)
    assert contents(log.directory.consumequeue) == {}


@pytest.mark.parametrize("topic", ["..", ".", "a/b", "nul\0"])
def test_a_topic_that_cannot_be_a_directory_gets_no_queue(topic: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "root")
    log.append(topic)
    log.append("fine")
    dispatcher = builder(log)
    assert dispatcher.dispatch(0, log.end) == log.end
    assert "bad name" in dispatcher.findings[0]
    assert [path.name for path in log.directory.consumequeue.iterdir()] == ["fine"]


@pytest.mark.parametrize("at, why", [(4, "no record"), (28, "physical offset"), (84, "lengths"), (2, "size")])
def test_a_damaged_record_stops_the_dispatch_and_is_named(at: int, why: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    log.flip(log.records[1].offset + at)
    dispatcher = builder(log)
    with pytest.raises(CorruptRecord, match=why) as error:
        dispatcher.dispatch(0, log.end)
    assert error.value.offset == log.records[1].offset
    assert len(queue(log, "topic0")) == 1


def test_many_records_of_several_queues_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count, queues, segment_bytes = 100_000, 8, 32 << 20
    record = np.frombuffer(encode(topic="TopicBenchm", body=b"x" * 100, properties=b"TAGS\x01TagA\x02"), np.uint8)
    log = SmallLog(tmp_path, segment_bytes=segment_bytes)
    with log.files.create(0) as segment:
        rows = segment.array[: count * len(record)].reshape(count, len(record))
        rows[:] = record
        number = np.arange(count)
        for at, code, values in (
            (QUEUE_ID_AT, ">i4", number % queues),
            (QUEUE_OFFSET_AT, ">i8", number // queues),
            (PHYSICAL_OFFSET_AT, ">i8", number * len(record)),
        ):
            field = values.astype(code).view(np.uint8).reshape(count, -1)
            rows[:, at : at + field.shape[1]] = field
    builder(log).dispatch(0, len(record))  # compiled, or loaded
    dispatcher = Dispatcher(log.files, log.root / "built", 6_000_000)
    began = time.perf_counter()
    assert dispatcher.dispatch(0, count * len(record)) == count * len(record)
    rate = count / (time.perf_counter() - began)
    for queue_id in range(queues):
        found = ConsumeQueue.open(log.root / "built" / "TopicBenchm" / str(queue_id))
        expected = number[number % queues == queue_id] * len(record)
        assert np.array_equal(found.entries(0, count)["physical_offset"][: found.max_offset], expected)
    with capsys.disabled():
        print(f" [dispatch: {rate / 1e6:.1f} M records/s of {len(record)} bytes] ", end="")


def with_topic_of(log: SmallLog, size: int) -> bytes:
    """A version 2 record whose topic is longer than our codec makes it."""
    record = bytearray(encode(topic="t" * 255, body=b"b", physical_offset=log.end, magic=MAGIC_V2, properties=b""))
    at = record.index(b"\x00\xff" + b"t" * 255)
    record[at : at + 2] = size.to_bytes(2, "big")
    record[at + 2 : at + 2] = b"t" * (size - 255)
    record[:4] = len(record).to_bytes(4, "big")
    return bytes(record)


@pytest.mark.parametrize("queue_offset", [1 << 62, (1 << 63) - 1, ((1 << 63) - 1) // 20])
def test_a_queue_offset_of_no_file_gets_no_entry_and_the_store_starts(tmp_path: Path, queue_offset: int) -> None:
    """RocketMQ multiplies it by 20 and overflows. Ours made a file that its own next start refused."""
    log = SmallLog(tmp_path)
    log.append("topic")
    log.append("far", queue_offset=queue_offset)
    log.append("topic")
    dispatcher = builder(log)
    assert dispatcher.dispatch(0, log.end) == log.end
    assert "has no place in a queue" in dispatcher.findings[0]
    dispatcher.close()
    for _start in range(2):
        assert recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset == log.end
    assert len(queue(log)) == 2 and queue(log, "far") == []
    log.append("far", queue_offset=0)
    dispatcher = builder(log)
    dispatcher.dispatch(0, log.end)
    dispatcher.close()
    assert len(queue(log, "far")) == 1


def test_a_topic_too_long_for_a_directory_gets_no_queue_and_the_store_starts(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("topic")
    log.append_raw(with_topic_of(log, 300))
    log.append("topic")
    dispatcher = builder(log)
    assert dispatcher.dispatch(0, log.end) == log.end
    assert "bad name" in dispatcher.findings[0]
    dispatcher.close()
    for _start in range(2):
        assert recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset == log.end
    assert len(queue(log)) == 2
