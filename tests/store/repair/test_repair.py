"""A damaged log is repaired from a replica: byte for byte, only from the same log, and whole after any crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from store.errors import NotAStore
from store.files.segment import file_name
from store.names import REPAIR_JOURNAL
from store.notes import flushed_mark
from store.reading.log_reader import open_log
from store.repair import interrupted
from store.repair.repair import Outcome, Repair
from store.verify import digests
from store.verify.verification import Verification
from tests.harness.dispatched import content, copy_of, small_store
from tests.harness.dying import ends_at_call
from tests.harness.logs import SEGMENT_BYTES, SmallLog


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


@pytest.fixture
def replica(log: SmallLog, tmp_path: Path) -> Path:
    return copy_of(log, tmp_path / "replica")


def repair(log: SmallLog, other: Path, *, dry_run: bool = False) -> list[Outcome]:
    interrupted.finish(log.directory, log.files)
    work = Repair(log.directory, log.files, open_log(other))
    return list(work.run(dry_run=dry_run, on_progress=lambda _done, _total: None))


def of_segment(log: SmallLog, base: int) -> Path:
    return log.directory.commitlog / file_name(base)


def first_of_second_segment(log: SmallLog) -> int:
    return next(record.offset for record in log.records if record.offset >= SEGMENT_BYTES)


DAMAGE: dict[str, Callable[[SmallLog], object]] = {
    "a byte of a body": lambda log: log.flip(log.records[10].offset + 90),
    "a size": lambda log: log.write(log.records[10].offset, b"\x7f\x00"),
    "a physical offset": lambda log: log.flip(log.records[10].offset + 35),
    "a magic number": lambda log: log.flip(log.records[10].offset + 4),
    "the first record": lambda log: log.flip(log.records[0].offset + 4),
    "three records in a row": lambda log: log.write(log.records[4].offset, bytes(log.records[7].offset - 40)),
    "two places": lambda log: [log.flip(log.records[number].offset + 90) for number in (3, 20)],
    "the first record of a segment": lambda log: log.flip(first_of_second_segment(log) + 90),
    "a segment of zeros": lambda log: of_segment(log, SEGMENT_BYTES).write_bytes(bytes(SEGMENT_BYTES)),
    "a missing segment": lambda log: of_segment(log, SEGMENT_BYTES).unlink(),
    "a blank record's size": lambda log: log.write(
        max(record.end for record in log.records if record.offset < SEGMENT_BYTES), b"\x00\x00\x30\x39"
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_becomes_the_original(log: SmallLog, replica: Path, kind: str) -> None:
    before = content(log.root, "commitlog")
    DAMAGE[kind](log)
    assert content(log.root, "commitlog") != before
    damaged = content(log.root, "commitlog")
    planned = repair(log, replica, dry_run=True)
    assert content(log.root, "commitlog") == damaged
    outcomes = repair(log, replica)
    assert outcomes == planned
    assert outcomes
    assert not any(outcome.refused for outcome in outcomes)
    assert content(log.root, "commitlog") == before
    assert list(Verification(log.root).findings()) == []
    assert repair(log, replica) == []


def test_a_sound_log_is_left_alone(log: SmallLog, replica: Path) -> None:
    before = content(log.root)
    assert repair(log, replica) == []
    assert content(log.root) == before


def test_damage_on_both_sides_is_refused(log: SmallLog, replica: Path) -> None:
    offset = log.records[10].offset
    other = SmallLog(replica)
    log.flip(offset + 90)
    other.flip(offset + 91)
    (outcome,) = repair(log, replica)
    assert "also damaged there" in outcome.refused


def test_another_log_is_refused(log: SmallLog, tmp_path: Path) -> None:
    """Same sizes everywhere, other bodies: its records verify, but it is not this log."""
    other = SmallLog(tmp_path / "other")
    for number in range(60):
        texts = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} all", "UNIQ_KEY": f"U{number:04d}"}
        other.append(f"topic{number % 2}", b"BODY %d" % number, queue_id=number % 3, properties=texts)
    assert other.end == log.end
    log.flip(log.records[10].offset + 90)
    before = content(log.root, "commitlog")
    (outcome,) = repair(log, other.root)
    assert "another log" in outcome.refused
    assert content(log.root, "commitlog") == before


def test_a_replica_that_is_too_short_is_refused(log: SmallLog, tmp_path: Path) -> None:
    short = small_store(tmp_path / "short", 5)
    log.flip(log.records[10].offset + 90)
    (outcome,) = repair(log, short.root)
    assert f"holds only offsets 0 to {short.end}" in outcome.refused


def test_other_segment_sizes_are_refused(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other", segment_bytes=2 * SEGMENT_BYTES)
    other.fill(4)
    with pytest.raises(NotAStore, match="so offsets differ"):
        Repair(log.directory, log.files, open_log(other.root))


def test_a_torn_tail_is_no_damage(log: SmallLog, replica: Path) -> None:
    log.write(log.end, b"\x00\x00\x01\x00\xda\xa3\x20\xa7")
    assert repair(log, replica) == []


PAGE = 4096


@pytest.mark.parametrize("page", range(12))
def test_any_lost_page_is_repaired_where_a_neighbour_is_equal(tmp_path: Path, page: int) -> None:
    """Also one that took the last bytes of a sound record, which no CRC covers, and the last ones of the log."""
    log = SmallLog(tmp_path / "store", segment_bytes=4 * PAGE)
    while log.end < 12 * PAGE - 1500:
        number = len(log.records)
        texts = {"KEYS": f"k{number}", "long": "p" * (1 + number % 7 * 250)}
        log.append(body=b"x" * (number % 5 * 300), properties=texts)
    flushed_mark.begin(log.directory, log.end)
    copy_of(log, tmp_path / "replica")
    before = content(log.root, "commitlog")
    log.write(page * PAGE, bytes(PAGE))
    (outcome,) = repair(log, tmp_path / "replica")
    assert outcome.refused == ""
    assert content(log.root, "commitlog") == before


def test_lost_files_at_the_end_of_the_log_come_back(log: SmallLog, replica: Path) -> None:
    flushed_mark.begin(log.directory, log.end)
    before = content(log.root, "commitlog")
    for base in log.files.base_offsets()[-2:]:
        log.files.remove(base)
    assert [outcome.refused for outcome in repair(log, replica)] == ["", ""]
    assert content(log.root, "commitlog") == before


def test_bytes_that_no_crc_covers_are_repaired_by_their_digest(log: SmallLog, replica: Path) -> None:
    before = content(log.root, "commitlog")
    with log.files.open(0) as segment:
        digests.write(log.root, {0: digests.digest_of(segment, lambda _done: None)})
    log.flip(log.records[3].offset + 16)  # the user's flag
    assert [finding.code for finding in Verification(log.root).findings()] == ["DIGEST"]
    (outcome,) = repair(log, replica)
    assert (outcome.refused, outcome.damaged.start) == ("", log.records[3].offset + 16)
    assert content(log.root, "commitlog") == before
    SmallLog(replica).flip(log.records[3].offset + 16)
    log.flip(log.records[3].offset + 17)
    assert "does not match that digest either" in repair(log, replica)[0].refused


CALLS = ("replace_file", "write_at", "sync_data", "unlink", "sync_directory", "rename", "reserve")


@pytest.mark.parametrize("kind", ["three records in a row", "a missing segment"])
def test_a_repair_killed_at_any_call_is_finished_by_the_next(log: SmallLog, replica: Path, kind: str) -> None:
    """A child process dies at its n-th call that changes a file, for every n; what it left is finished."""
    before = content(log.root, "commitlog")
    for deadly in range(1, 60):
        DAMAGE[kind](log)
        code = ends_at_call(lambda: repair(log, replica), CALLS, deadly)
        assert code in (0, 9)
        if code == 0:
            break
        outcomes = repair(log, replica)
        assert not any(outcome.refused for outcome in outcomes)
        assert content(log.root, "commitlog") == before, deadly
        assert not (log.root / REPAIR_JOURNAL).exists()
        assert list(Verification(log.root).findings()) == []
    else:
        pytest.fail("it never came to its end")
    assert deadly > 5
