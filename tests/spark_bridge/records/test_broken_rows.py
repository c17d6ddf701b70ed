"""Broken stores in permissive mode: each row is one of RocketMQ's, and what gives no row is inside of what was told."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from spark_bridge.options.rows import RowOptions
from spark_bridge.plan.inventory import find_extent, find_queues
from spark_bridge.split.splits import LogExtent, Selection, plan
from store.errors import QueueFileMismatch, StoreError
from tests.spark_bridge.stores import Row, golden_lines, read_rows, unpack_golden
from tests.store.broken_stores import BREAKS

GOLDEN = ("rocketmq-4.9.7", "master")
PERMISSIVE = RowOptions(mode="permissive", verify_body_crc=True, fail_on_data_loss=False)
NAMES = ["topic", "queueId", "queueOffset", "physicalOffset", "body", "_error"]
# What has no log, or none whose ends can be found.
REFUSED = {
    "short_segment", "short_last_segment", "long_segment", "missing_segment", "wrong_first_offset",
    "a_directory_as_a_segment", "a_pipe_as_a_segment", "checkpoint_as_a_directory",
    "segment_symlink_loop", "huge_segment", "huge_segment_name", "garbage_pointer",
    "pointer_of_other_types", "no_log", "log_as_a_file", "root_as_a_file", "queues_as_a_file",
}  # fmt: skip
# What has a queue of topic alphaBatch that is none: reads that do not go by it are whole.
REFUSED_QUEUE = {"short_queue_file", "huge_queue_file"}
DAMAGED = {
    "hole_in_the_middle", "renamed_segments", "two_stores_mixed", "other_segment_size", "newer_record_version",
    "enormous_record", "enormous_body", "negative_sizes",
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(unpack_golden(*GOLDEN, tmp_path_factory.mktemp("sound")))


@pytest.fixture(scope="module")
def truth() -> list[Row]:
    return golden_lines(*GOLDEN, "message")


def identity(row: Row) -> tuple[object, ...]:
    return (*(row[name] for name in NAMES[:4]), hashlib.sha256(row["body"]).hexdigest())


def told_range(row: Row) -> tuple[int, int]:
    """From the damaged place to where reading went on."""
    found = re.search(r"(?:continues at|follows below) offset ([0-9]+)$", row["_error"])
    return row["physicalOffset"], int(found[1]) if found else row["physicalOffset"] + 1


def read(root: Path, log: LogExtent, selection: Selection) -> tuple[list[Row], list[Row]]:
    splits = plan(log, *find_queues(str(root), log, selection), selection, None, 4)
    rows = read_rows(splits, NAMES, PERMISSIVE)
    return [row for row in rows if not row["_error"]], [row for row in rows if row["_error"]]


@pytest.mark.parametrize("name", BREAKS)
def test_every_row_is_true_and_what_is_missing_is_reported(sound: Path, truth: list[Row], tmp_path: Path, name: str):
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    BREAKS[name](root)
    if name in REFUSED:
        with pytest.raises((StoreError, OSError), match=re.escape(str(tmp_path))):
            read(root, find_extent(str(root), beyond_rot=True), Selection(frozenset(["alphaFour"])))
        return
    log = find_extent(str(root), beyond_rot=True)
    known = {(*(line[key] for key in NAMES[:4]), line["bodySha256"]): line["physicalOffset"] for line in truth}
    for topics in (None, frozenset(["alphaFour"]), frozenset(["alphaBatch"])):
        if topics == {"alphaBatch"} and name in REFUSED_QUEUE:
            with pytest.raises(QueueFileMismatch, match=re.escape(str(tmp_path))):
                read(root, log, Selection(topics))
            continue
        rows, errors = read(root, log, Selection(topics))
        found = [identity(row) for row in rows]
        assert len(set(found)) == len(found)
        assert set(found) <= set(known)
        ranges = [told_range(row) for row in errors]
        entries = {(row["topic"], row["queueId"], row["queueOffset"]) for row in errors}
        wanted = [key for key in known if (topics is None or key[0] in topics) and key[:3] not in entries]
        missing = [known[key] for key in wanted if key not in set(found)]
        untold = [at for at in missing if not any(first <= at < behind for first, behind in ranges)]
        assert not [at for at in untold if log.min_physical_offset <= at < log.max_physical_offset]
        if topics is None:
            assert bool(errors) == (name in DAMAGED)
