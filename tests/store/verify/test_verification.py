"""Verification finds what is wrong, says where, and finds nothing in sound stores."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from store.errors import NotAStore
from store.files.segment import file_name
from store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from store.verify.verification import Finding, Verification
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog
from tests.store.golden import STORES, unpack


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """Two and a half segments in four queues, queues complete."""
    made = SmallLog(tmp_path / "store")
    made.fill(80)
    write_queues(made)
    return made


def write_queues(log: SmallLog) -> None:
    """Every record's entry, as a dispatcher leaves them."""
    codes = {record.offset: tags_code(f"t{number}") for number, record in enumerate(log.records)}
    for record in log.records:
        path = log.directory.consumequeue / record.topic / str(record.queue_id)
        entry = struct.pack(">qiq", record.offset, record.size, codes[record.offset])
        ConsumeQueue(path, QUEUE_FILE_BYTES).append(record.queue_offset, entry)


def tags_code(text: str) -> int:
    value = 0
    for character in text:
        value = value * 31 + ord(character)
    return value


def findings(log: SmallLog, end: int | None = None, dispatched: int | None = None) -> list[Finding]:
    return list(Verification(log.root, end, dispatched).findings())


@pytest.mark.parametrize(("version", "name"), STORES)
def test_rocketmq_s_stores_are_sound(tmp_path: Path, version: str, name: str) -> None:
    verification = Verification(unpack(version, name, tmp_path))
    assert list(verification.findings()) == []
    assert verification.records >= 121
    assert verification.entries >= verification.records or version == "rocketmq-5.3.3"
    assert verification.bytes_checked == verification.bytes_total > 0


def test_a_sound_store_has_no_findings(log: SmallLog) -> None:
    verification = Verification(log.root)
    assert list(verification.findings()) == []
    assert (verification.records, verification.entries, verification.queues) == (80, 80, 4)
    assert verification.max_offset == log.end


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert list(Verification(tmp_path).findings()) == []


def test_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        Verification(tmp_path)


def test_rot_in_a_body_is_found_and_the_rest_is_checked(log: SmallLog) -> None:
    log.flip(log.records[10].offset + 88)
    verification = Verification(log.root)
    found = list(verification.findings())
    assert [finding.code for finding in found] == ["DAMAGED", "QUEUE_ENTRY"]
    assert f"at offset {log.records[10].offset}" in found[0].where
    assert f"the next sound record is at offset {log.records[11].offset}" in found[0].what
    assert "replica" in found[0].advice
    assert verification.records == 79


def test_rot_in_a_size_is_found_and_the_rest_is_checked(log: SmallLog) -> None:
    log.write(log.records[10].offset, b"\x7f\x00")
    verification = Verification(log.root)
    assert [finding.code for finding in verification.findings()] == ["DAMAGED", "QUEUE_ENTRY"]
    assert verification.records == 79


def test_a_segment_of_zeros_in_the_middle(log: SmallLog) -> None:
    (log.directory.commitlog / file_name(SEGMENT_BYTES)).write_bytes(bytes(SEGMENT_BYTES))
    found = findings(log)
    assert "the log continues in the next segment" in found[0].what
    assert {finding.code for finding in found} == {"DAMAGED", "QUEUE_ENTRY"}


def test_a_missing_segment(log: SmallLog) -> None:
    path = log.directory.commitlog / file_name(SEGMENT_BYTES)
    path.unlink()
    gap = Finding("MISSING_SEGMENT", str(path), "the log has a gap here", "restore the file from a replica")
    assert findings(log)[0] == gap


def test_a_torn_tail_is_reported_as_one(log: SmallLog) -> None:
    log.write(log.end, struct.pack(">iI", 500, 0xDAA320A7))
    (found,) = findings(log)
    assert found.code == "TORN_TAIL"
    assert "next start" in found.advice


def test_garbage_behind_the_end_is_a_torn_tail(log: SmallLog) -> None:
    log.write(log.end, b"garbage!")
    (found,) = findings(log)
    assert (found.code, "no record's magic number" in found.what) == ("TORN_TAIL", True)


def test_a_blank_record_of_a_wrong_size(log: SmallLog) -> None:
    blank_at = max(record.end for record in log.records if record.offset < SEGMENT_BYTES)
    log.write(blank_at, struct.pack(">i", 12345))
    (found,) = findings(log)
    assert found.code == "BLANK_SIZE"


@pytest.mark.parametrize("field_at", [7, 11, 19])
def test_an_entry_that_is_not_its_record_s(log: SmallLog, field_at: int) -> None:
    path = log.directory.consumequeue / "topic0" / "0" / file_name(0)
    content = bytearray(path.read_bytes())
    content[3 * ENTRY_BYTES + field_at] ^= 1
    path.write_bytes(content)
    found = findings(log)
    assert {finding.code for finding in found} == {"QUEUE_ENTRY"}
    assert "first entry 3" in found[0].what
    assert found[0].where == str(path.parent)


def test_an_entry_too_many(log: SmallLog) -> None:
    queue = ConsumeQueue.open(log.directory.consumequeue / "topic0" / "0")
    queue.append(queue.max_offset, struct.pack(">qiq", log.records[-1].offset, 100, 0))
    (found,) = findings(log)
    assert (found.code, "point to no record of this queue" in found.what) == ("QUEUE_ENTRY", True)


def test_a_queue_that_is_missing(log: SmallLog) -> None:
    (log.directory.consumequeue / "topic1" / "1" / file_name(0)).unlink()
    found = findings(log)
    assert {finding.code for finding in found} <= {"NOT_IN_QUEUE", "QUEUE_FILES"}
    assert found


def test_queues_behind_the_log_after_a_kill_are_no_finding(log: SmallLog) -> None:
    log.fill(4)
    assert {finding.code for finding in findings(log)} == {"NOT_IN_QUEUE"}
    log.directory.abort.touch()
    verification = Verification(log.root)
    assert list(verification.findings()) == []
    assert verification.not_yet_in_queues == 4


def test_a_running_broker_s_limits_end_the_check(log: SmallLog) -> None:
    end = log.end
    log.fill(4)
    log.write(log.end, b"half a record")
    verification = Verification(log.root, end=end, dispatched=end)
    assert list(verification.findings()) == []
    assert verification.records == 80
    assert Verification(log.root, end=log.end, dispatched=end).findings() is not None
    assert findings(log, log.end, end) == []


def test_a_store_whose_first_segments_were_deleted(log: SmallLog) -> None:
    (log.directory.commitlog / file_name(0)).unlink()
    assert findings(log) == []


def test_a_committed_message_without_its_half_message(log: SmallLog) -> None:
    half = log.append("half", queue_offset=0)
    log.append("topic0", sys_flag=8, prepared_transaction_offset=half.offset)
    log.append("topic0", sys_flag=8, prepared_transaction_offset=half.offset + 1)
    codes = [finding.code for finding in findings(log, dispatched=half.offset)]
    assert codes == ["HALF_MESSAGE"]


def test_a_queue_file_of_another_length(log: SmallLog) -> None:
    path = log.directory.consumequeue / "topic0" / "0"
    (path / file_name(QUEUE_FILE_BYTES)).write_bytes(bytes(30))
    codes = [finding.code for finding in findings(log)]
    assert "QUEUE_FILES" in codes
