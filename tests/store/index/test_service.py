"""The index from the log: RocketMQ's own files to the byte, at every length, after every kind of end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import localtime, strftime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import IndexFileDamaged
from store.files import checkpoint, file_io
from store.files.checkpoint import Checkpoint
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.index.index_file import Geometry, IndexFile, hash_of
from store.index.service import IndexService, name_after
from store.index.sync import IndexSync
from store.manifest.index import LoadedIndex
from store.manifest.store import load
from store.message.record import decode, encode
from store.recovery.dispatch import Dispatcher
from store.recovery.index import recover_index
from store.recovery.log_end import store_timestamp_ms
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog
from tests.store.golden import STORES, unpack

NOW = 1_790_000_000_000
GOLDEN_GEOMETRY = (200, 1000)
GEOMETRY = Geometry(11, 20)


def clock() -> Callable[[], int]:
    """A millisecond a look."""
    ticks: Iterator[int] = count(NOW)
    return lambda: next(ticks)


def index_of(log: SmallLog, slots: int = 7, entries_max: int = 6) -> IndexService:
    return IndexService(log.directory.index, slots, entries_max, clock())


def builder(log: SmallLog, index: IndexService) -> Dispatcher:
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index)


def contents(index: IndexService) -> list[bytes]:
    return [path.read_bytes() for path in index.files()]


@pytest.mark.parametrize(("version", "name"), STORES)
def test_the_index_of_a_real_store_comes_out_byte_for_byte(version: str, name: str, tmp_path: Path) -> None:
    root = unpack(version, name, tmp_path)
    files = SegmentFiles(root / "commitlog", segment_bytes_of(root / "commitlog"))
    index = IndexService(tmp_path / "index", *GOLDEN_GEOMETRY, clock())
    dispatcher = Dispatcher(files, tmp_path / "queues", 4000, index=index)
    end = load(root).max_offset
    assert dispatcher.dispatch(0, end) == end
    assert contents(index) == [path.read_bytes() for path in sorted((root / "index").iterdir())]


def fill(log: SmallLog, messages: int) -> None:
    """Records with one key, several, none and such as collide in their slot."""
    for number in range(messages):
        keys = {"UNIQ_KEY": f"u{number}", "KEYS": " ".join(f"k{n}" for n in range(number % 4))}
        log.append(properties={name: text for name, text in keys.items() if text and number % 4 != 3})


def test_a_dispatch_that_begins_again_anywhere_changes_nothing(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    fill(log, 40)
    index = index_of(log)
    builder(log, index).dispatch(0, log.end)
    whole = contents(index)
    assert len(whole) > 5
    for record in [*log.records[::3], *log.records[-2:]]:
        again = index_of(log)
        again.cut(record.offset, partial(store_timestamp_ms, log.files))
        builder(log, again).dispatch(record.offset, log.end)
        assert contents(again) == whole
        builder(log, again).dispatch(record.offset, log.end)  # what is there is not put twice
        assert contents(again) == whole


text = st.text(st.sampled_from("ab #kü标😀\x01"), max_size=6)
records = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["t", "topic", "ütf"]),
            "properties": st.lists(
                st.tuples(st.sampled_from(["KEYS", "UNIQ_KEY", "KEY", "KEYSS", "TAGS"]), text), max_size=4
            ).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()),
            "sys_flag": st.sampled_from([0, 4, 8, 12, 0x80]),
            "store_timestamp_ms": st.one_of(st.integers(NOW, NOW + 10_000), st.integers(-5, 2**62)),
        }
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(made=records, slots=st.integers(1, 5), entries_max=st.integers(2, 8))
def test_every_kind_of_record_as_the_plain_codec_puts_it(
    made: list[dict[str, object]], slots: int, entries_max: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = SmallLog(tmp_path_factory.mktemp("store"), segment_bytes=1 << 16)
    expected = LoadedIndex([], Geometry(slots, entries_max))
    for fields in made:
        record = encode(body=b"", physical_offset=log.end, **fields)  # type: ignore[arg-type]
        expected.dispatch(decode(record))
        log.append_raw(record)
    index = index_of(log, slots, entries_max)
    builder(log, index).dispatch(0, log.end)
    assert contents(index) == [file.array.tobytes() for file in expected.files]


def test_java_has_no_absolute_of_the_smallest_number(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.append("t", properties={"KEYS": "7mebviu polygenelubricants"})
    index = index_of(log)
    builder(log, index).dispatch(0, log.end)
    (file,) = index.files()
    entries = IndexFile.open(file, index.geometry).entries["key_hash"]
    assert entries[1:3].tolist() == [hash_of("t", "7mebviu"), hash_of("t", "polygenelubricants")]
    assert entries[1] == 0


def test_a_query_is_answered_newest_first_and_within_the_time(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for number in range(30):
        log.append(properties={"KEYS": "k"}, store_timestamp_ms=NOW + 1000 * number)
    index = index_of(log)
    builder(log, index).dispatch(0, log.end)
    newest_first = [record.offset for record in reversed(log.records)]
    assert index.query_offset("topic", "k", 100, 0, 2**62) == newest_first
    assert index.query_offset("topic", "k", 7, 0, 2**62) == newest_first[:7]
    assert index.query_offset("topic", "k", 100, NOW + 8000, NOW + 11_000) == newest_first[18:22]
    assert index.query_offset("topic", "other", 100, 0, 2**62) == []


def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path)
    fill(log, 40)
    whole = index_of(log)
    builder(log, whole).dispatch(0, log.end)
    expected = contents(whole)
    room = iter([*[True] * 5, False])
    reserve = file_io.reserve

    def reserve_while_there_is_room(fd: int, start: int, length: int) -> None:
        if not next(room):
            raise OSError(28, "No space left on device")
        reserve(fd, start, length)

    whole.delete(whole.files())
    index = index_of(log)
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "reserve", reserve_while_there_is_room)
        with pytest.raises(OSError, match="No space"):
            builder(log, index).dispatch(0, log.end)
    again = index_of(log)
    again.cut(0, partial(store_timestamp_ms, log.files))
    builder(log, again).dispatch(0, log.end)
    assert contents(again) == expected


# recovery


def recovered(log: SmallLog, index: IndexService, noted: Checkpoint, *, clean: bool) -> list[str]:
    return recover_index(index, log.files, (0, log.end), noted, clean=clean)


@pytest.fixture
def noted(tmp_path: Path) -> tuple[SmallLog, IndexService, Checkpoint, list[bytes]]:
    """A log, its index as it was at the checkpoint and after, the checkpoint, and the whole index."""
    log = SmallLog(tmp_path / "store")
    fill(log, 40)
    index = index_of(log, *GEOMETRY)
    middle = log.records[25].offset
    dispatcher = builder(log, index)
    dispatcher.dispatch(0, middle)
    note = IndexSync(index).sync(Checkpoint(flushed_offset=middle), middle)
    dispatcher.dispatch(middle, log.end)
    whole = contents(index)
    assert len(whole) == 4
    return log, index, note, whole


Noted = tuple[SmallLog, IndexService, Checkpoint, list[bytes]]


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_is_recovered_from_the_note_of_the_checkpoint(noted: Noted, clean: bool) -> None:
    log, index, note, whole = noted
    full = max(path for path in index.files() if int(path.name) < note.index_file)
    assert note.index_msg_timestamp_ms == IndexFile.open(full, GEOMETRY).header.end_timestamp_ms
    assert recovered(log, index, note, clean=clean) == []
    assert contents(index) == whole


@pytest.mark.parametrize("seed", range(20))
def test_an_index_is_recovered_after_a_power_cut(noted: Noted, seed: int) -> None:
    """What was on disk at the checkpoint is there; of what came later any piece is, and any is not."""
    log, index, note, whole = noted
    later = {path.name: path.read_bytes() for path in index.files()}
    at_checkpoint = at_note(log, index, note)
    random = np.random.default_rng(seed)
    for name, content in later.items():
        old = at_checkpoint.get(name, bytes(len(content)))
        pieces = [slice(at, at + 8) for at in range(0, len(content), 8)]
        mixed = b"".join((content if random.random() < 0.5 else old)[piece] for piece in pieces)
        (index.directory / name).write_bytes(mixed)
        if name not in at_checkpoint and random.random() < 0.3:
            (index.directory / name).unlink()
    assert recovered(log, index, note, clean=False) == []
    assert contents(index) == whole


def at_note(log: SmallLog, index: IndexService, note: Checkpoint) -> dict[str, bytes]:
    """The files as they were at the checkpoint."""
    assert note.index_offset is not None
    index.cut(note.index_offset, partial(store_timestamp_ms, log.files))
    return {path.name: path.read_bytes() for path in index.files()}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", ["all", "last", "one of the note", "first byte", "short", "entry", "count"])
def test_what_is_missing_short_or_wrong_is_built_again(noted: Noted, lost: str, clean: bool) -> None:
    log, index, note, whole = noted
    files = index.files()
    file = next(path for path in files if int(path.name) == note.index_file)
    content = bytearray(file.read_bytes())
    if lost == "all":
        index.delete(files)
    elif lost == "last":
        index.delete(files[-1:])
    elif lost == "one of the note":
        index.delete(files[files.index(file) :])
    elif lost == "short":
        file.write_bytes(content[:100])
    else:
        entries_at = index.geometry.entries_at
        at = {"first byte": 0, "entry": entries_at + 20 * (note.index_count - 1) + 5, "count": 38}[lost]
        content[at] ^= 0x41
        file.write_bytes(content)
    findings = recovered(log, index, note, clean=clean)
    assert contents(index) == whole
    # without a word: what the dispatch from the note on makes anyway, and a header that a power cut may have torn
    assert findings or lost == "last" or (lost == "count" and not clean)


def test_index_files_later_than_the_checkpoint_are_built_again(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    fill(log, 40)
    index = index_of(log, *GEOMETRY)
    builder(log, index).dispatch(0, log.end)
    whole = contents(index)
    ends = [IndexFile.open(path, index.geometry).header.end_timestamp_ms for path in index.files()]
    findings = recovered(log, index, Checkpoint(index_msg_timestamp_ms=ends[1]), clean=False)
    assert contents(index) == whole
    assert findings == ["2 index files later than the checkpoint are rebuilt from the log"]


def test_an_index_of_another_log_goes(tmp_path: Path) -> None:
    log, other = SmallLog(tmp_path / "a"), SmallLog(tmp_path / "b")
    fill(log, 40)
    other.append(body=b"x" * 77)
    fill(other, 30)
    index = index_of(log, *GEOMETRY)
    Dispatcher(other.files, other.directory.consumequeue, QUEUE_FILE_BYTES, index=index).dispatch(0, other.end)
    findings = recovered(log, index, Checkpoint(), clean=True)
    assert "no record begins at offset" in findings[0]
    fresh = index_of(SmallLog(tmp_path / "c"), *GEOMETRY)
    builder(log, fresh).dispatch(0, log.end)
    assert contents(index) == contents(fresh)


def test_the_note_of_the_checkpoint_survives_the_file(tmp_path: Path) -> None:
    note = Checkpoint(1, 2, 3, 0, 0, 77, 5, 6, index_offset=77, index_file=20260101, index_count=9)
    checkpoint.write(tmp_path / "checkpoint", note)
    assert checkpoint.read(tmp_path / "checkpoint") == note
    content = bytearray(checkpoint.encode(note))
    content[checkpoint.INDEX_AT + 20] ^= 1
    assert checkpoint.decode(bytes(content)).index_offset is None


def test_a_file_of_another_geometry_is_refused(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    fill(log, 3)
    builder(log, index_of(log)).dispatch(0, log.end)
    with pytest.raises(IndexFileDamaged, match="maxHashSlotNum and maxIndexNum") as raised:
        index_of(log, 8).query_offset("topic", "k", 1, 0, NOW)
    assert raised.value.path == str(index_of(log).files()[-1])


@pytest.mark.parametrize(
    "last, expected",
    [
        (None, "{}000"),
        ("20000101000000000", "{}000"),
        ("99991231235959998", "99991231235959999"),
        ("30001231235959999", "30010101000000000"),
        ("99999999999999999", "100000000000000000"),
    ],
)
def test_names_are_local_times_and_only_rise(last: str | None, expected: str) -> None:
    assert name_after(last, NOW) == expected.format(strftime("%Y%m%d%H%M%S", localtime(NOW // 1000)))
