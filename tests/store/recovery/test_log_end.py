"""The compiled walk and the plain one agree about where a log ends, whatever happened to its bytes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.segment_files import SegmentFiles
from store.message.host import Host
from store.message.record import Kind, blank
from store.reading.walk import walk
from store.recovery.log_end import find_end, first_base_to_walk, first_record_to_walk, not_zero, store_timestamp_ms
from tests.harness.logs import FIRST_STORE_MS, SEGMENT_BYTES, SmallLog

WRITER = """
import sys
import numpy as np
array = np.memmap(sys.argv[1], np.uint8, "r+")
print("writing", flush=True)
while True:
    array[::2] = 0
    array[::2] = 1
"""
HOSTS = [Host("10.0.0.1", 10911), Host("::1", 10911)]


def plain_end(log: SmallLog) -> int:
    """The end by the codec in Python."""
    end = 0
    for step in walk(log.files, 0, check_body_crc=True):
        if step.inspection.kind not in (Kind.MESSAGE, Kind.BLANK):
            return step.physical_offset
        end = step.physical_offset + step.inspection.size
    return end


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), damages=st.integers(0, 3))
def test_the_compiled_walk_ends_where_the_plain_one_does(
    seed: int, damages: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dice = random.Random(seed)
    log = SmallLog(tmp_path_factory.mktemp("store"))
    for number in range(dice.randrange(1, 30)):
        log.append(
            f"topic{number % 3}",
            dice.randbytes(dice.randrange(500)),
            properties={"TAGS": "t", "KEYS": f"k{number}"},
            born_host=dice.choice(HOSTS),
            store_host=dice.choice(HOSTS),
            sys_flag=dice.choice([0, 1, 4, 8, 12]),
        )
    for _ in range(damages):
        at = dice.randrange(log.end)
        kind = dice.randrange(3)
        rest = min(log.end - at, SEGMENT_BYTES - at % SEGMENT_BYTES)
        log.write(at, bytes(min(rest, 50)) if kind == 0 else dice.randbytes(min(rest, dice.choice([1, 4, 40]))))
    found = find_end(log.files, log.files.base_offsets(), 0, check_crc=True, whole_to=log.end)
    assert found.offset == plain_end(log)
    if found.sound_behind is not None:
        assert found.offset < found.sound_behind < log.end
        assert any(record.offset == found.sound_behind for record in log.records)


def test_the_checkpoint_decides_where_the_walk_begins(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = SmallLog(tmp_path_factory.mktemp("store"))
    while log.end < 5 * SEGMENT_BYTES + 100:
        log.append(body=b"x" * 300, store_timestamp_ms=FIRST_STORE_MS + 1000 * len(log.records))
    bases = log.files.base_offsets()
    log.files.reserve(bases[-1] + SEGMENT_BYTES)  # reserved ahead, nothing in it
    bases = log.files.base_offsets()

    def begins(clean: bool, **fields: int) -> int:
        return first_base_to_walk(log.files, bases, Checkpoint(**fields), clean) // SEGMENT_BYTES

    assert begins(True) == len(bases) - 3
    assert begins(False) == 0
    assert begins(False, flushed_offset=3 * SEGMENT_BYTES + 5) == 3
    assert begins(True, flushed_offset=log.end) == 5
    assert begins(False, flushed_offset=bases[-1] + SEGMENT_BYTES) == len(bases) - 1
    assert begins(False, flushed_offset=bases[-1] + SEGMENT_BYTES + 1) == 0, "of another log: not believed"
    first_of_segment_2 = next(record for record in log.records if record.offset >= 2 * SEGMENT_BYTES)
    stored_ms = store_timestamp_ms(log.files, first_of_segment_2.offset)
    assert stored_ms == FIRST_STORE_MS + 1000 * log.records.index(first_of_segment_2)
    assert begins(False, physic_msg_timestamp_ms=stored_ms + 3000, logics_msg_timestamp_ms=stored_ms + 3000) == 2
    assert store_timestamp_ms(log.files, bases[-1]) is None


def test_the_walk_looks_back_only_so_far_behind_what_was_on_disk(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.recovery.log_end.LOOK_BACK_BYTES", 1000)
    log = SmallLog(tmp_path_factory.mktemp("store"))
    log.fill(25)
    starts = [record.offset for record in log.records]
    for floor in (*starts, log.end):
        found = first_record_to_walk(log.files, 0, floor)
        assert found == min(start for start in starts if start >= floor - 1000)
        assert find_end(log.files, [0], found, check_crc=True, whole_to=floor).offset == log.end
    log.flip(starts[-3] + 90)
    end = find_end(log.files, [0], first_record_to_walk(log.files, 0, log.end), check_crc=True, whole_to=log.end)
    assert end.offset == starts[-3], "damage near the end is still seen"


def test_reserved_blocks_behind_the_end_are_not_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = SmallLog(tmp_path_factory.mktemp("store"), 64 << 20)
    log.fill(30)
    log.write(log.end, bytes(4 << 20))  # the pages that the writer had made ready
    log.files.reserve(64 << 20)
    for base in log.files.base_offsets():
        with log.files.open(base) as segment:
            file_io.sync_data(segment.fd)
            file_io.drop_cached(segment.fd, 0, 64 << 20)
    assert find_end(log.files, log.files.base_offsets(), 0, check_crc=True).offset == log.end
    for base in log.files.base_offsets():  # what was read lies in the page cache, and counts as data from then on
        with log.files.open(base) as segment:
            assert sum(high - low for low, high in file_io.data_ranges(segment.fd, 0, 64 << 20)) <= 32 << 20


def test_a_blank_record_of_another_segment_size_ends_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = SmallLog(tmp_path_factory.mktemp("store"))
    log.fill(4)
    for size in (8, SEGMENT_BYTES // 2 - log.end, SEGMENT_BYTES - log.end - 1, SEGMENT_BYTES - log.end + 1):
        log.write(log.end, blank(size))
        assert find_end(log.files, [0], 0, check_crc=True).offset == log.end, size
    log.write(log.end, blank(SEGMENT_BYTES - log.end))
    assert find_end(log.files, [0], 0, check_crc=True).offset == SEGMENT_BYTES


def test_a_file_that_another_process_writes_is_looked_at(tmp_path: Path) -> None:
    size, files = 1 << 20, SegmentFiles(tmp_path, 1 << 20)
    with files.create(0) as segment:
        segment.array[:] = 1
        command = [sys.executable, "-c", WRITER, str(next(tmp_path.iterdir()))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            try:
                assert writer.stdout.readline() == b"writing\n"
                for _ in range(300):
                    assert list(not_zero(segment, 0)) in ([(0, size)], [(1, size)])
            finally:
                writer.kill()
