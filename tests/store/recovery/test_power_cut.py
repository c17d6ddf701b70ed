"""What recovery keeps, cuts and refuses after a power cut, and after a kill in one boot: by mark, boot, place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.errors import BitRot
from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import Checkpoint
from store.files.pointer import COUNTERS_FILE
from store.message.record import FIXED_BYTES, blank
from store.notes import flushed_mark
from store.notes.flushed_mark import FlushedMark
from store.recovery import last_run
from store.recovery.log_end import PAGE_BYTES
from store.recovery.recovery import Recovered, recover, recover_read_only
from store.verify.verification import Verification
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SmallLog, contents

SEGMENT_BYTES = 64 * 1024
BOOT_BEFORE = bytes(range(16))
ROOT = Path(__file__).resolve().parents[3]


LARGE_PAGES = """
import mmap, sys
mmap.PAGESIZE = 65536
from pathlib import Path
from tests.store.recovery import test_power_cut
test_power_cut.test_a_page_lost_within_the_properties_is_seen(test_power_cut.begun(Path(sys.argv[1])))
"""


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return begun(tmp_path / "store")


def begun(root: Path) -> SmallLog:
    """A store whose broker just began: a mark, an abort marker, our checkpoint."""
    log = SmallLog(root, SEGMENT_BYTES)
    recovered(log)
    checkpoint_file.write(log.directory.checkpoint, Checkpoint(flushed_offset=0))
    flushed_mark.begin(log.directory, 0)
    log.directory.mark_running()
    return log


def recovered(log: SmallLog, **options: bool) -> Recovered:
    return recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, **options)


def flush(log: SmallLog) -> None:
    """As the flusher does it: everything so far is on disk, and noted."""
    mark = FlushedMark(log.directory)
    mark.note(log.end)
    mark.sync()
    mark.close()


def boot_again(log: SmallLog) -> None:
    """The machine was started again since the mark was begun."""
    note = flushed_mark.read(log.directory)
    assert note is not None
    page = flushed_mark.encode(note._replace(boot=BOOT_BEFORE)).ljust(PAGE_BYTES, b"\0")
    log.directory.mark.write_bytes(page * flushed_mark.PAGES)


def lose_page(log: SmallLog, number: int) -> None:
    log.write(number * PAGE_BYTES, bytes(PAGE_BYTES))


def grow(log: SmallLog, to: int) -> None:
    while log.end < to:
        log.append(body=b"x" * 500, properties={"KEYS": f"k{len(log.records)}"})


@pytest.mark.parametrize("read_only", [False, True])
def test_holes_above_the_mark_are_cut_at_the_first_and_reported(log: SmallLog, read_only: bool) -> None:
    grow(log, 3 * PAGE_BYTES)
    flush(log)
    flushed = log.end
    grow(log, 12 * PAGE_BYTES)
    log.files.reserve(SEGMENT_BYTES)
    lose_page(log, 5)
    lose_page(log, 8)
    boot_again(log)
    expected = max(record.end for record in log.records if record.end <= 5 * PAGE_BYTES)
    behind = [record for record in log.records if record.offset > expected and not _touches(record, (5, 8))]
    if read_only:
        before = contents(log.root)
        found = recover_read_only(log.directory)
        assert found.rot is None and contents(log.root) == before
    else:
        found = recovered(log)
        assert not any(log.read(expected, SEGMENT_BYTES - expected))
    assert found.max_physical_offset == expected >= flushed
    told = " ".join(found.findings)
    assert f"offsets {expected} to {log.end}" in told
    assert f"{len(behind)} complete records" in told and f"from offset {behind[0].offset}" in told


def _touches(record: object, pages: tuple[int, ...]) -> bool:
    covered = range(record.offset // PAGE_BYTES, (record.end - 1) // PAGE_BYTES + 1)  # type: ignore[attr-defined]
    return any(page in covered for page in pages)


def test_records_in_later_segments_go_too(log: SmallLog) -> None:
    grow(log, SEGMENT_BYTES + 2 * PAGE_BYTES)
    lose_page(log, 2)
    boot_again(log)
    found = recovered(log)
    assert found.max_physical_offset <= 2 * PAGE_BYTES
    assert not any(log.read(SEGMENT_BYTES, SEGMENT_BYTES))
    assert recovered(log).findings == [], "nothing is left to be cut"


def test_damage_below_the_mark_is_bit_rot_whatever_the_boot(log: SmallLog) -> None:
    grow(log, 3 * PAGE_BYTES)
    flush(log)
    grow(log, 6 * PAGE_BYTES)
    log.flip(log.records[4].offset + 200)
    lose_page(log, 4)
    boot_again(log)
    before = contents(log.root)
    with pytest.raises(BitRot):
        recovered(log)
    assert contents(log.root) == before


def test_the_last_record_below_the_mark_is_not_cut_either(log: SmallLog) -> None:
    grow(log, PAGE_BYTES)
    flush(log)
    log.flip(log.records[-1].offset + 200)
    boot_again(log)
    with pytest.raises(BitRot, match="mark"):
        recovered(log)


def test_within_one_boot_a_hole_is_bit_rot_and_nothing_is_cut(log: SmallLog) -> None:
    grow(log, 6 * PAGE_BYTES)
    lose_page(log, 3)
    before = contents(log.root)
    with pytest.raises(BitRot):
        recovered(log)
    assert contents(log.root) == before


def test_after_a_clean_stop_a_hole_is_bit_rot(log: SmallLog) -> None:
    grow(log, 6 * PAGE_BYTES)
    log.directory.mark_stopped()
    lose_page(log, 3)
    boot_again(log)
    with pytest.raises(BitRot):
        recovered(log)


def test_a_copy_made_while_a_broker_wrote_is_cut_at_its_first_hole(log: SmallLog, tmp_path: Path) -> None:
    grow(log, 6 * PAGE_BYTES)
    shutil.copytree(log.root, tmp_path / "copy")
    copy = SmallLog(tmp_path / "copy", SEGMENT_BYTES)
    lose_page(copy, 3)
    assert recovered(copy).max_physical_offset <= 3 * PAGE_BYTES
    assert recovered(log).max_physical_offset == log.end


def torn_copy(log: SmallLog, root: Path) -> SmallLog:
    """As `cp -a` makes it while a broker runs: log files of one moment, mark and checkpoint of a later one."""
    shutil.copytree(log.root, root)
    grow(log, 6 * PAGE_BYTES)
    note_on_disk(log)
    for name in (log.directory.mark.name, log.directory.checkpoint.name):
        shutil.copy2(log.root / name, root / name)
    return SmallLog(root, SEGMENT_BYTES)


def note_on_disk(log: SmallLog) -> None:
    """As the flusher: all of the log is on disk, and its queues."""
    flushed_mark.begin(log.directory, log.end)
    checkpoint_file.write(log.directory.checkpoint, Checkpoint(FIRST_STORE_MS, FIRST_STORE_MS, flushed_offset=log.end))


@pytest.mark.parametrize("is_later_boot", [False, True])
def test_a_copy_whose_mark_claims_more_than_its_log_holds_starts(
    log: SmallLog, tmp_path: Path, is_later_boot: bool
) -> None:
    grow(log, 3 * PAGE_BYTES)
    held = log.end
    copy = torn_copy(log, tmp_path / "copy")
    if is_later_boot:
        boot_again(copy)
    assert recover_read_only(copy.directory).max_physical_offset == held
    assert "CHECKPOINT" not in [finding.code for finding in Verification(copy.root).findings()]
    assert recovered(copy).max_physical_offset == held
    flushed_mark.begin(copy.directory, held)  # as its broker does next; from here on it is no copy
    assert recovered(copy).max_physical_offset == held, "killed before it wrote a checkpoint of its own"
    assert recovered(log).max_physical_offset == log.end


def test_a_copy_is_looked_at_from_its_beginning(log: SmallLog, tmp_path: Path) -> None:
    """A segment may have been copied before the one ahead of it was full: the hole between them ends the log."""
    grow(log, 2 * SEGMENT_BYTES + 5 * PAGE_BYTES)
    note_on_disk(log)
    copy = SmallLog(tmp_path / "copy", SEGMENT_BYTES) if shutil.copytree(log.root, tmp_path / "copy") else log
    lost = next(record for record in log.records if record.offset > 10 * PAGE_BYTES)
    copy.write(lost.offset, bytes(SEGMENT_BYTES - lost.offset))
    found = recovered(copy)
    assert found.max_physical_offset == lost.offset
    assert "incomplete in this copy" in found.findings[0]
    with pytest.raises(BitRot):  # one that was lost by the store itself is not cut
        log.write(log.records[-3].offset, bytes(log.end - log.records[-3].offset))
        recovered(log)


def test_a_copy_of_a_store_at_rest_lacks_nothing(log: SmallLog, tmp_path: Path) -> None:
    grow(log, 6 * PAGE_BYTES)
    note_on_disk(log)
    log.directory.mark_stopped()
    shutil.copytree(log.root, tmp_path / "copy")
    copy = SmallLog(tmp_path / "copy", SEGMENT_BYTES)
    lose_page(copy, 3)
    with pytest.raises(BitRot):
        recovered(copy)


def test_another_boot_in_the_pointer_counts_as_well(log: SmallLog) -> None:
    grow(log, 6 * PAGE_BYTES)
    lose_page(log, 3)
    before = {"pid": 1, "start_time": 1, "boot_id": "before", "region_directory": "", "settings": {}}
    log.directory.write_pointer(before)
    assert last_run.read(log.directory).power_cut
    log.directory.mark.unlink()
    assert last_run.read(log.directory).power_cut, "a store of before there were marks"
    assert recovered(log).max_physical_offset <= 3 * PAGE_BYTES


def test_nothing_is_known_of_a_rocketmq_brokers_run(log: SmallLog) -> None:
    flushed_mark.begin(log.directory, 1000)
    assert last_run.read(log.directory).flushed_offset == 1000
    before = log.directory.checkpoint.read_bytes()
    log.directory.checkpoint.write_bytes(FIRST_STORE_MS.to_bytes(8, "big") * 3 + before[24:])
    assert last_run.read(log.directory) == last_run.LastRun()


def test_a_mark_counts_beside_no_checkpoint_or_a_rocketmq_one(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    for content in (None, FIRST_STORE_MS.to_bytes(8, "big") * 3 + bytes(4096 - 24)):
        if content is not None:
            log.directory.checkpoint.write_bytes(content)
        flushed_mark.begin(log.directory, 70)
        assert last_run.read(log.directory).flushed_offset == 70


def test_a_half_written_page_leaves_the_other_one(log: SmallLog) -> None:
    mark = FlushedMark(log.directory)
    for offset in (100, 200, 300):
        mark.note(offset)
    mark.note(250)
    mark.close()
    whole = log.directory.mark.read_bytes()
    found = flushed_mark.decode(whole)
    assert found is not None and found.flushed_offset == 300, "it never says less than before"
    for page, left in ((0, 300), (1, 200)):
        torn = bytearray(whole)
        torn[page * PAGE_BYTES + 30 : page * PAGE_BYTES + 60] = bytes(30)
        found = flushed_mark.decode(bytes(torn))
        assert found is not None and found.flushed_offset in (left, 500 - left)
    assert flushed_mark.decode(bytes(len(whole))) is None
    log.directory.mark.write_bytes(b"")
    assert flushed_mark.read(log.directory) is None


# the last byte


def nul_record(log: SmallLog) -> None:
    """As a 4.9 broker stores it: nothing behind the last property."""
    log.append(properties=b"KEYS\x01k\x02end\x01nul\0")


def test_a_record_that_ends_with_a_nul_survives_a_kill(log: SmallLog) -> None:
    log.fill(3)
    nul_record(log)
    assert recovered(log).max_physical_offset == log.end


def test_a_record_that_ends_with_a_nul_survives_a_power_cut_when_the_mark_covers_it(log: SmallLog) -> None:
    log.fill(3)
    nul_record(log)
    flush(log)
    boot_again(log)
    assert recovered(log).max_physical_offset == log.end


def test_a_record_that_ends_with_a_nul_above_the_mark_is_torn_after_a_power_cut(log: SmallLog) -> None:
    log.fill(3)
    before = log.end
    nul_record(log)
    boot_again(log)
    assert recovered(log).max_physical_offset == before


def test_a_slave_keeps_what_had_come_and_drops_what_had_not(log: SmallLog, tmp_path: Path) -> None:
    log.fill(3)
    before = log.end
    last = log.append(properties={"KEYS": "k" * 50})
    log.write(last.end - 20, bytes(20))  # these had not come yet
    assert recovered(log, is_slave=True).max_physical_offset == before
    log.end = before
    nul_record(log)
    counters = BrokerCounters.create(tmp_path / COUNTERS_FILE)
    waiting.publish(counters.max_physical_offset, log.end)
    log.directory.write_pointer({"pid": 1, "start_time": 1, "region_directory": str(tmp_path), "settings": {}})
    assert last_run.read(log.directory).written_to == log.end
    assert recovered(log, is_slave=True).max_physical_offset == log.end


def test_a_page_lost_within_the_properties_is_seen(log: SmallLog) -> None:
    log.append()
    start = log.end
    log.append(properties={"KEYS": "k" * (4 * PAGE_BYTES)})
    log.append()
    boot_again(log)
    lose_page(log, 2)
    assert recovered(log).max_physical_offset == start


def test_a_block_lost_out_of_a_larger_page_is_seen(tmp_path: Path) -> None:
    """Kernels of aarch64 may have pages of 64 KiB, which come to disk in blocks of 4 KiB."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE_PAGES, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


def test_a_page_that_came_to_disk_in_part_is_seen_too(log: SmallLog) -> None:
    log.append()
    start = log.end
    log.append(properties={"KEYS": "k" * (4 * PAGE_BYTES)})
    log.append()
    boot_again(log)
    log.write(3 * PAGE_BYTES - 1, b"\0")
    assert recovered(log).max_physical_offset == start


@pytest.mark.parametrize("is_last_of_segment", [False, True])
@pytest.mark.parametrize("rest", [1, 2, 3])
def test_a_page_lost_up_to_the_zeros_that_begin_the_next_record_is_seen(
    log: SmallLog, rest: int, is_last_of_segment: bool
) -> None:
    log.append()
    start = log.end
    log.append("topic", b"body", properties=b"k" * (2 * PAGE_BYTES - rest - start - FIXED_BYTES - len("topicbody")))
    assert log.end == 2 * PAGE_BYTES - rest
    if is_last_of_segment:
        log.append_raw(blank(SEGMENT_BYTES - log.end))
    log.append()
    assert not any(log.read(2 * PAGE_BYTES - rest, min(rest, 2))), "the first bytes of a size"
    boot_again(log)
    lose_page(log, 1)
    assert recovered(log).max_physical_offset == start


def test_a_text_that_ends_with_a_nul_is_whole_when_more_lies_behind_in_its_page(log: SmallLog) -> None:
    nul_record(log)
    log.append()
    boot_again(log)
    assert recovered(log).max_physical_offset == log.end


def test_zeros_of_lengths_at_a_pages_end_are_no_loss(log: SmallLog) -> None:
    for record_end in range(PAGE_BYTES - 6, PAGE_BYTES + 3):
        scratch = SmallLog(log.root.parent / str(record_end), SEGMENT_BYTES)
        flushed_mark.begin(scratch.directory, 0)
        scratch.directory.mark_running()
        scratch.append(body=b"b")
        scratch.append(body=b"b" * (record_end - 2 * scratch.end + 1))
        assert scratch.end == record_end
        scratch.append(properties={"KEYS": "k"})
        boot_again(scratch)
        assert recovered(scratch).max_physical_offset == scratch.end, record_end
