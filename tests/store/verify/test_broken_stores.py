"""A table of broken stores: what each reader says of each, with its exact error; none crashes, hangs or grows."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.harness.bounded import CRASHED, Ended, run_bounded
from tests.store import golden
from tests.store.broken_stores import BREAKS, SEGMENT_BYTES, locked, segments
from tests.store.verify.readers import ADDRESSES_OF_DEFAULT_INDEX_FILES, READ_ONLY_FIRST, READERS

FEW = 5
ERROR = re.compile(r"(?:^|: )([A-Z][A-Z_]{3,}): (.*)", re.MULTILINE)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that RocketMQ wrote, and in which no reader finds anything."""
    read = golden.unpack("rocketmq-4.9.7", "master", tmp_path_factory.mktemp("read"))
    for reader in READ_ONLY_FIRST:
        assert run_bounded(partial(READERS[reader], read)).code == 0, reader
    return golden.unpack("rocketmq-4.9.7", "master", tmp_path_factory.mktemp("sound"))


def said(ended: Ended, root: Path) -> str:
    """The exit code and the first error or finding: its code, and what it names below the store."""
    text = "\n".join(line for line in ended.output.splitlines() if not line.startswith('{"kind"'))
    found = ERROR.search(text)
    if found is None:
        return f"{ended.code}"
    named = re.search(rf"{re.escape(str(root))}/?([^\s:,']*)", found[2])
    place = re.sub(r"commitlog/([0-9]{20})$", _segment_number, named[1] if named else "")
    return f"{ended.code} {found[1]} {place}".rstrip()


def _segment_number(name: re.Match[str]) -> str:
    number, rest = divmod(int(name[1]), SEGMENT_BYTES)
    return name[0] if rest or number > FEW else f"log{number}"


# what broker, verify, manifest, cat and Spark say: exit code, error or first finding, what it names; logN: segment N
TABLE: dict[str, tuple[str, str, str, str, str]] = {
    "short_segment": (
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
    ),
    "short_last_segment": (
        "2 SEGMENT_SIZE_MISMATCH log3",
        "2 SEGMENT_SIZE_MISMATCH log3",
        "2 SEGMENT_SIZE_MISMATCH log3",
        "2 SEGMENT_SIZE_MISMATCH log3",
        "2 SEGMENT_SIZE_MISMATCH log3",
    ),
    "long_segment": (
        "2 SEGMENT_SIZE_MISMATCH log0",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
        "2 SEGMENT_SIZE_MISMATCH log1",
    ),
    "hole_in_the_middle": ("4 CORRUPT_RECORD log0", "1 DAMAGED log0", "0", "4 CORRUPT_RECORD log0", "0"),
    "missing_segment": (
        "4 MISSING_SEGMENT log1",
        "1 MISSING_SEGMENT log1",
        "4 MISSING_SEGMENT log1",
        "4 MISSING_SEGMENT log1",
        "4 MISSING_SEGMENT log1",
    ),
    "wrong_first_offset": (
        "4 FOREIGN_FILE commitlog/00000000000000000001",
        "1 TORN_TAIL commitlog/00000000000000000001",
        "4 FOREIGN_FILE commitlog/00000000000000000001",
        "4 FOREIGN_FILE commitlog/00000000000000000001",
        "4 FOREIGN_FILE commitlog/00000000000000000001",
    ),
    "renamed_segments": (
        "4 BIT_ROT log1",
        "1 TORN_TAIL log1",
        "4 CORRUPT_RECORD log1",
        "4 CORRUPT_RECORD log1",
        "4 BIT_ROT log1",
    ),
    "foreign_files": ("0", "0", "0", "0", "0"),
    "a_directory_as_a_segment": (
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
    ),
    "a_pipe_as_a_segment": (
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
        "4 FOREIGN_FILE log4",
    ),
    "foreign_kind_of_file": ("0 RECOVERY log3", "1 TORN_TAIL log3", "0", "0", "0"),
    "two_stores_mixed": ("4 BIT_ROT log1", "1 DAMAGED log1", "0", "4 CORRUPT_RECORD log1", "4 BIT_ROT log1"),
    "other_segment_size": (
        "2 SEGMENT_SIZE_MISMATCH log0",
        "1 DAMAGED log0",
        "0",
        "4 CORRUPT_RECORD log0",
        "4 BIT_ROT log2",
    ),
    "other_queue_file_size": (
        "0 RECOVERY consumequeue/alphaBatch/1/00000000000000000000",
        "0",
        "4 QUEUE_FILE_MISMATCH consumequeue/alphaBatch/1/00000000000000000000",
        "0",
        "0",
    ),
    "short_queue_file": (
        "0 RECOVERY consumequeue/alphaBatch/1/00000000000000000000",
        "1 QUEUE_FILES consumequeue/alphaBatch/1",
        "4 QUEUE_FILE_MISMATCH consumequeue/alphaBatch/1/00000000000000000000",
        "0",
        "0",
    ),
    "newer_record_version": ("4 CORRUPT_RECORD log0", "1 DAMAGED log0", "0", "4 CORRUPT_RECORD log0", "0"),
    "newer_checkpoint": ("0", "0", "0", "0", "0"),
    "short_checkpoint": ("0", "1 CHECKPOINT checkpoint", "0", "0", "0"),
    "garbage_checkpoint": ("0", "1 CHECKPOINT checkpoint", "0", "0", "0"),
    "huge_checkpoint": ("0", "0", "0", "0", "0"),
    "checkpoint_as_a_directory": (
        "4 FOREIGN_FILE checkpoint",
        "4 FOREIGN_FILE checkpoint",
        "4 FOREIGN_FILE checkpoint",
        "4 FOREIGN_FILE checkpoint",
        "4 FOREIGN_FILE checkpoint",
    ),
    "abort_as_a_directory": ("4 FOREIGN_FILE abort", "0", "0", "0", "0"),
    "lock_as_a_directory": ("4 FOREIGN_FILE lock", "0", "0", "0", "0"),
    "segment_symlink_loop": ("4", "4", "4", "4", "4"),
    "queue_symlink_loop": ("0", "0", "0", "0", "0"),
    "garbage_config": ("0 RECOVERY config/topics.json", "1 CONFIG_FILE config/consumerFilter.json", "0", "0", "0"),
    "config_of_other_types": ("0", "1 CONFIG_FILE config/consumerOffset.json", "0", "0", "0"),
    "deep_config": ("0", "1 CONFIG_FILE config/topics.json", "0", "0", "0"),
    "huge_config": ("0", "1 CONFIG_FILE config/topics.json", "0", "0", "0"),
    "index_of_wrong_size": (
        "0 RECOVERY index/20200101000000000",
        "1 INDEX_FILE index/20200101000000000",
        "0",
        "0",
        "0",
    ),
    "cyclic_index": ("0 RECOVERY index/20261121042225137", "1 INDEX_FILE index/20261121042115361", "0", "0", "0"),
    "wild_index": ("0 RECOVERY index/20261121042115361", "1 INDEX_FILE index/20261121042115361", "0", "0", "0"),
    "foreign_queue_names": ("0", "0", "0", "0", "0"),
    "wild_queue_entries": (
        "0 RECOVERY consumequeue/alphaBatch/1",
        "1 QUEUE_ENTRY consumequeue/alphaBatch/1",
        "0",
        "0",
        "0",
    ),
    "enormous_record": ("4 CORRUPT_RECORD log0", "1 DAMAGED log0", "0", "4 CORRUPT_RECORD log0", "0"),
    "enormous_body": ("4 CORRUPT_RECORD log0", "1 DAMAGED log0", "0", "4 CORRUPT_RECORD log0", "0"),
    "negative_sizes": ("4 CORRUPT_RECORD log0", "1 DAMAGED log0", "0", "4 CORRUPT_RECORD log0", "0"),
    "huge_segment": (
        "2 SEGMENT_SIZE_MISMATCH log0",
        "4 FOREIGN_FILE log0",
        "4 FOREIGN_FILE log0",
        "4 FOREIGN_FILE log0",
        "4 FOREIGN_FILE log0",
    ),
    "huge_segment_name": (
        "4 FOREIGN_FILE commitlog/99999999999999999999",
        "4 FOREIGN_FILE commitlog/99999999999999999999",
        "4 FOREIGN_FILE commitlog/99999999999999999999",
        "4 FOREIGN_FILE commitlog/99999999999999999999",
        "4 FOREIGN_FILE commitlog/99999999999999999999",
    ),
    "huge_queue_file": (
        "0 RECOVERY consumequeue/alphaBatch/1/00000000000000000000",
        "1 QUEUE_FILES consumequeue/alphaBatch/1",
        "4 QUEUE_FILE_MISMATCH consumequeue/alphaBatch/1/00000000000000000000",
        "0",
        "0",
    ),
    "garbage_pointer": (
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
    ),
    "pointer_of_other_types": (
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
        "2 NOT_A_STORE slipstream.run",
    ),
    "no_log": ("4 LOG_MISSING commitlog", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE"),
    "log_as_a_file": ("4 FOREIGN_FILE commitlog", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE"),
    "root_as_a_file": ("4 FOREIGN_FILE", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE", "2 NOT_A_STORE"),
    "queues_as_a_file": (
        "4 FOREIGN_FILE consumequeue",
        "4 FOREIGN_FILE consumequeue",
        "4 FOREIGN_FILE consumequeue",
        "0",
        "4 FOREIGN_FILE consumequeue",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_reader_reports_a_broken_store(sound: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    BREAKS[name](root)
    told = {}
    for reader in READ_ONLY_FIRST:
        ended = run_bounded(partial(READERS[reader], root), memory_bytes=ADDRESSES_OF_DEFAULT_INDEX_FILES)
        assert ended.code >= 0 and ended.code != CRASHED, f"{reader}: {ended.output}"
        assert "Traceback" not in ended.output, f"{reader}: {ended.output}"
        told[reader] = said(ended, root)
    assert tuple(told[reader] for reader in READERS) == TABLE[name], BREAKS[name].__doc__


def test_every_break_is_in_the_table() -> None:
    assert BREAKS.keys() == TABLE.keys()


def test_what_cannot_be_used_stays_as_it_was(sound: Path, tmp_path: Path) -> None:
    """A broker that refuses a log for what is in it has changed no byte of the log."""
    for name in (
        "renamed_segments",
        "two_stores_mixed",
        "newer_record_version",
        "hole_in_the_middle",
        "wrong_first_offset",
    ):
        root = tmp_path / name / "store"
        shutil.copytree(sound, root)
        BREAKS[name](root)
        before = {path.name: path.read_bytes() for path in segments(root)}
        assert run_bounded(partial(READERS["broker"], root)).code == 4, name
        assert {path.name: path.read_bytes() for path in segments(root)} == before, name


def test_a_locked_store_is_read_but_not_opened(sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    with locked(root) as owner:
        ended = run_bounded(partial(READERS["broker"], root))
        assert (ended.code, said(ended, root)) == (4, "4 STORE_LOCKED lock")
        assert f"process {owner}" in ended.output
        assert [run_bounded(partial(READERS[reader], root)).code for reader in ("verify", "manifest", "cat")] == [
            0,
            0,
            0,
        ]


def test_files_that_may_not_be_read_are_named(sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    last = segments(root)[-1]
    last.chmod(0)
    for reader, action in READERS.items():
        ended = run_bounded(partial(action, root), as_anybody=True)
        assert ended.code == 4, f"{reader}: {ended.output}"
        assert f"ACCESS_DENIED: {last}: " in ended.output, ended.output
        assert "Traceback" not in ended.output


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.symlink_to("store")
    for reader, action in READERS.items():
        ended = run_bounded(partial(action, root))
        assert ended.code in (2, 4) and str(root) in ended.output, f"{reader}: {ended.output}"
        assert "Traceback" not in ended.output
