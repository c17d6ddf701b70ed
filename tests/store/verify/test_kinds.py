"""Damage of every kind, in stores that RocketMQ wrote and in ours: each is found, under its code, where it is."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from store.files import checkpoint
from store.index.index_file import ENTRY_BYTES as INDEX_ENTRY_BYTES
from store.index.index_file import HEADER_BYTES
from store.message import delay
from store.queues.batch_consume_queue import UNIT_BYTES as BATCH_UNIT_BYTES
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, PREFILL_SIZE
from store.queues.extension import UNIT_BYTES as EXT_UNIT_BYTES
from store.verify.verification import Verification
from tests.harness.dispatched import SLOTS, dispatch_all, small_store
from tests.harness.logs import FIRST_STORE_MS, SmallLog
from tests.store.golden import unpack

FIRST_FILE = "0" * 20


def codes(root: Path, **options: object) -> list[str]:
    return [finding.code for finding in Verification(root, **options).findings()]  # type: ignore[arg-type]


def change(path: Path, at: int, with_: bytes | None = None) -> None:
    """Other bytes at that place; without any, one flipped bit."""
    with path.open("r+b") as file:
        file.seek(at)
        if with_ is None:
            with_ = bytes((file.read(1)[0] ^ 4,))
            file.seek(at)
        file.write(with_)


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """What a 5.3.3 broker left: extensions, batch queues, multi-dispatch, property CRCs, delay levels."""
    return unpack("rocketmq-5.3.3", "features", tmp_path)


def only_index(log: SmallLog) -> list[Path]:
    return sorted(log.directory.index.iterdir())


# the index

ENTRIES_AT = HEADER_BYTES + 4 * SLOTS
INDEX_DAMAGE = {
    "a key's hash": (ENTRIES_AT + 5 * INDEX_ENTRY_BYTES + 3, "INDEX_ENTRY"),
    "an entry's offset": (ENTRIES_AT + 5 * INDEX_ENTRY_BYTES + 11, "INDEX_ENTRY"),
    "an entry's time": (ENTRIES_AT + 5 * INDEX_ENTRY_BYTES + 15, "INDEX_ENTRY"),
    "an entry's chain": (ENTRIES_AT + 5 * INDEX_ENTRY_BYTES + 19, "INDEX_ENTRY"),
    "a slot": (HEADER_BYTES + 3, "INDEX_SLOT"),
    "the first offset": (23, "INDEX_HEADER"),
    "the first time": (7, "INDEX_HEADER"),
    "the last offset": (31, "INDEX_HEADER"),
    "the last time": (15, "INDEX_HEADER"),
    "the slots in use": (35, "INDEX_HEADER"),
    "the count": (39, "INDEX_HEADER"),
    "a count without measure": (36, "INDEX_HEADER"),
}


@pytest.mark.parametrize("what", INDEX_DAMAGE)
def test_a_damaged_index_file(log: SmallLog, what: str) -> None:
    position, code = INDEX_DAMAGE[what]
    path = only_index(log)[1]
    change(path, position)
    found = list(Verification(log.root).findings())
    assert code in {finding.code for finding in found}
    told = {finding.where for finding in found}
    assert told == {str(path)} or (what == "the count" and told == set(map(str, only_index(log)[1:])))
    assert all("log rebuild index" in finding.advice for finding in found)


def test_an_index_file_of_another_length(log: SmallLog) -> None:
    with only_index(log)[1].open("ab") as file:
        file.write(b"\0")
    assert "INDEX_FILE" in codes(log.root)


def test_an_index_file_is_missing(log: SmallLog) -> None:
    only_index(log)[1].unlink()
    assert "NOT_IN_INDEX" in codes(log.root)


def test_keys_that_are_not_ascii_are_looked_at(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    for number in range(4):
        log.append("tôpic", properties={"KEYS": f"größe {number} 键", "UNIQ_KEY": f"Ü{number}", "TAGS": "täg𝄞"})
    dispatch_all(log)
    verification = Verification(log.root)
    assert (list(verification.findings()), verification.index_entries) == ([], 16)
    change(only_index(log)[0], ENTRIES_AT + 6 * INDEX_ENTRY_BYTES + 3)
    assert "INDEX_ENTRY" in codes(log.root)
    queue = log.directory.consumequeue / "tôpic" / "0" / FIRST_FILE
    change(queue, 2 * ENTRY_BYTES + 19)
    assert "QUEUE_ENTRY" in codes(log.root)


def test_index_entries_of_deleted_segments_are_no_finding(log: SmallLog) -> None:
    (log.directory.commitlog / FIRST_FILE).unlink()
    assert codes(log.root) == []


# extensions, batch queues, multi-dispatch, property CRCs, delay levels: RocketMQ's own


@pytest.mark.parametrize("at", [1, 9, 17, 19])
def test_a_damaged_extension_unit(features: Path, at: int) -> None:
    change(features / "consumequeue_ext" / "featRetry" / "0" / FIRST_FILE, at)
    assert set(codes(features)) == {"EXT_UNIT"}


def test_missing_extensions(features: Path) -> None:
    shutil.rmtree(features / "consumequeue_ext" / "featRetry")
    assert "EXT_UNIT" in codes(features)
    assert EXT_UNIT_BYTES == 20


@pytest.mark.parametrize("at", [7, 11, 19, 27, 35, 37])
def test_a_damaged_batch_unit(features: Path, at: int) -> None:
    change(features / "batchconsumequeue" / "featBcq" / "0" / FIRST_FILE, at)
    assert set(codes(features)) <= {"QUEUE_ENTRY", "NOT_IN_QUEUE"} and codes(features)


def test_a_batch_unit_of_nothing(features: Path) -> None:
    path = features / "batchconsumequeue" / "featBcq" / "0" / FIRST_FILE
    units = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, BATCH_UNIT_BYTES)
    used = int(units.any(axis=1).sum())
    change(path, used * BATCH_UNIT_BYTES, units[used - 1].tobytes())
    assert "QUEUE_ENTRY" in codes(features)


def test_multi_dispatch(features: Path) -> None:
    path = features / "consumequeue" / "%LMQ%one" / "0" / FIRST_FILE
    change(path, 7)
    assert set(codes(features)) == {"QUEUE_ENTRY"}
    shutil.rmtree(features / "consumequeue" / "%LMQ%two")
    assert "NOT_IN_QUEUE" in codes(features)


def test_a_property_crc_covers_what_no_other_does(features: Path) -> None:
    """A bit of the user's flag: nothing else in the record would tell."""
    change(features / "commitlog" / FIRST_FILE, 19)
    (found,) = [finding for finding in Verification(features).findings() if finding.code == "DAMAGED"]
    assert "__CRC32#" in found.what


def test_delay_levels_of_another_broker(tmp_path: Path) -> None:
    """Deliver times are compared with the levels that are given, by default RocketMQ's."""
    log = SmallLog(tmp_path / "store")
    for level in (1, 3, 18, 40):
        log.append(delay.SCHEDULE_TOPIC, properties={"DELAY": str(level), "TAGS": "t"}, queue_id=level - 1)
    dispatch_all(log)
    assert codes(log.root) == []
    assert codes(log.root, delays_ms=delay.levels_ms("1s 2s 10s")) == ["QUEUE_ENTRY"] * 4
    path = log.directory.consumequeue / delay.SCHEDULE_TOPIC / "2" / FIRST_FILE
    change(path, 19)
    assert "QUEUE_ENTRY" in codes(log.root)


# the log, its queues, and what lies around them


def test_entries_that_point_nowhere_in_the_middle(log: SmallLog) -> None:
    path = log.directory.consumequeue / "topic0" / "0" / FIRST_FILE
    change(path, 3 * ENTRY_BYTES, np.array([(0, PREFILL_SIZE, 0)], CQ_DTYPE).tobytes())
    assert "QUEUE_ENTRY" in codes(log.root)


def test_a_queue_that_begins_above_zero_is_sound(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    for queue_offset in range(7, 15):
        log.append("late", queue_offset=queue_offset)
    dispatch_all(log)
    assert codes(log.root) == []
    change(log.directory.consumequeue / "late" / "0" / FIRST_FILE, 2 * ENTRY_BYTES + 15)
    assert codes(log.root) == ["QUEUE_ENTRY"]


def test_store_times_that_fall(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    for number in (0, 5, 3, 6):
        log.append(store_timestamp_ms=FIRST_STORE_MS + number)
    dispatch_all(log)
    (found,) = Verification(log.root).findings()
    assert (found.code, f"at offset {log.records[2].offset}" in found.where) == ("STORE_TIME", True)


@pytest.mark.parametrize("at", [4010, 4040, 4050, 4070, 4095])
def test_a_damaged_checkpoint(log: SmallLog, at: int) -> None:
    checkpoint.write(log.directory.checkpoint, checkpoint.Checkpoint(1, 2, 3, flushed_offset=0, index_offset=0))
    assert codes(log.root) == []
    change(log.directory.checkpoint, at)
    assert codes(log.root) == ["CHECKPOINT"]


def test_a_checkpoint_of_more_than_the_log(log: SmallLog) -> None:
    checkpoint.write(log.directory.checkpoint, checkpoint.Checkpoint(1, 2, 3, flushed_offset=log.end + 100))
    (found,) = Verification(log.root).findings()
    assert (found.code, str(log.end + 100) in found.what) == ("CHECKPOINT", True)
    log.directory.checkpoint.write_bytes(b"short")
    assert codes(log.root) == ["CHECKPOINT"]


def test_tables_that_cannot_be_read(log: SmallLog) -> None:
    (log.directory.config / "topics.json").write_text('{"topicConfigTable":')
    (log.directory.config / "consumerOffset.json").write_text('{"offsetTable":{}}')
    (found,) = Verification(log.root).findings()
    assert (found.code, found.where.endswith("topics.json")) == ("CONFIG_FILE", True)


def test_several_threads_find_the_same_in_the_same_order(log: SmallLog) -> None:
    for number in (3, 20, 40):
        log.flip(log.records[number].offset + 90)
    log.write(log.records[30].offset, struct.pack(">i", 7))
    alone = [str(finding) for finding in Verification(log.root, threads=1).findings()]
    assert [str(finding) for finding in Verification(log.root, threads=3).findings()] == alone
    assert len(alone) >= 4


def test_a_check_that_is_given_up_leaves_no_thread(log: SmallLog) -> None:
    import threading

    log.flip(log.records[3].offset + 90)
    before = set(threading.enumerate())
    findings = Verification(log.root, threads=3).findings()
    next(findings)
    findings.close()  # type: ignore[attr-defined]
    assert not set(threading.enumerate()) - before
