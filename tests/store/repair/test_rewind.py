"""A rewind cuts a log to the last common record, keeps what goes, and ends at the same state wherever it is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from store.message.record import identity_at
from store.names import CONSUMER_OFFSETS, CUT_JOURNAL, REWIND_JOURNAL
from store.notes import divergence, epochs
from store.notes.divergence import Divergence
from store.notes.epochs import Epochs
from store.reading.log_reader import open_log
from store.reading.summary import messages
from store.recovery.recovery import recover
from store.repair import interrupted, kept
from store.repair.kept import NoRoomToKeep
from store.repair.rewind import Rewind
from store.verify import digests
from store.verify.verification import Verification
from tests.harness.command_line import run
from tests.harness.dispatched import content, copy_of, small_store
from tests.harness.dying import DIED, ends_at_call
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog
from tests.harness.page_loss import LossyDisk

CUT_AT = 20  # a record of the first of three segments
CALLS = ("write_at", "truncate", "sync_data", "sync_file", "sync_directory", "rename", "unlink")
OFFSETS = json.dumps({"offsetTable": {"topic0@g": {0: 15}}}).encode()


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """A slave's store that was found to have diverged."""
    log = small_store(tmp_path / "store")
    root = log.root
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / CONSUMER_OFFSETS).write_bytes(OFFSETS)
    divergence.write(root, Divergence(log.records[CUT_AT].offset, log.end, "127.0.0.1:1", "", "00", "01", 1))
    both = Epochs().promoted("pair:0", log.records[3].offset, 1).promoted("pair:1", log.records[30].offset, 2)
    epochs.write(root, Epochs().following(both.entries))
    assert run("log", "digest", root).exit_code == 0
    assert len(digests.read(root)) >= 2
    return log


def diverged_copy(log: SmallLog, root: Path) -> Path:
    """Another store that has other bytes from record CUT_AT on."""
    other = SmallLog(copy_of(log, root))
    other.flip(log.records[CUT_AT].offset + 90)
    return root


def check_rewound(log: SmallLog) -> None:
    cut_at = log.records[CUT_AT].offset
    assert recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset == cut_at
    assert list(Verification(log.root).findings()) == []
    assert divergence.read(log.root) is None
    assert [one.epoch for one in epochs.read(log.root).entries] == [1]
    assert digests.read(log.root) == {}
    assert (log.root / "config" / CONSUMER_OFFSETS).read_bytes() == OFFSETS
    assert not {CUT_JOURNAL, REWIND_JOURNAL} & set(os.listdir(log.root))


def shown(*arguments: object) -> list[dict[str, Any]]:
    ran = run("log", "cat", *arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("way", ["to", "with"])
def test_what_is_cut_is_kept_and_read_by_log_cat(log: SmallLog, tmp_path: Path, way: str) -> None:
    cut_at, before = log.records[CUT_AT].offset, shown(log.root)
    chosen = ["--to", cut_at] if way == "to" else ["--with", diverged_copy(log, tmp_path / "other")]
    tried = content(log.root)
    ran = run("replica", "rewind", log.root, *chosen, "--dry-run")
    assert ran.stdout == f"would go: offsets {cut_at} to {log.end}, with 40 whole records\n"
    assert content(log.root) == tried
    ran = run("replica", "rewind", log.root, *chosen, "--json")
    assert ran.exit_code == 0, ran.output
    outcome = json.loads(ran.stdout)
    assert (outcome["offset"], outcome["endBefore"], outcome["records"]) == (cut_at, log.end, 40)
    assert shown(log.root) == before[:CUT_AT]
    assert shown(outcome["kept"]) == before[CUT_AT:]
    assert len(shown(outcome["kept"], "--topic", "topic1", "--limit", 3)) == 3
    check_rewound(log)


def test_a_rewind_with_discard_keeps_nothing(log: SmallLog) -> None:
    assert run("replica", "rewind", log.root, "--to", log.records[CUT_AT].offset, "--discard").exit_code == 0
    assert not list(log.root.glob("slipstream.kept*"))
    check_rewound(log)


def test_two_cuts_at_one_offset_keep_two_files(log: SmallLog) -> None:
    cut_at = log.records[CUT_AT].offset
    assert run("replica", "rewind", log.root, "--to", cut_at).exit_code == 0
    log.end = cut_at
    log.append("new", b"written since")
    assert run("replica", "rewind", log.root, "--to", cut_at).exit_code == 0
    names = sorted(path.name for path in log.root.glob("slipstream.kept*"))
    assert names == [f"slipstream.kept-{cut_at:020d}", f"slipstream.kept-{cut_at:020d}-2"]
    assert [each["topic"] for each in shown(log.root / names[1])] == ["new"]


def test_what_cannot_be_done_changes_nothing(log: SmallLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, cut_at = content(log.root), log.records[CUT_AT].offset
    shutil.rmtree(other := copy_of(log, tmp_path / "other") / "commitlog")
    SmallLog(other.parent).append("wiped", b"and new")
    refusals = {
        f"--to {cut_at + 1}": (2, "no record begins or ends"),
        "--to 99999999": (2, "OFFSET_OUT_OF_RANGE"),
        f"--with {other.parent}": (1, "NO_COMMON_HISTORY"),
        f"--to 0 --with {other.parent}": (2, "either --to OFFSET or --with OTHER"),
    }
    for arguments, (code, text) in refusals.items():
        ran = run("replica", "rewind", log.root, *arguments.split())
        assert (ran.exit_code, text in ran.stderr) == (code, True), ran.output
    monkeypatch.setattr(kept, "FREE_BYTES", 1 << 62)
    ran = run("replica", "rewind", log.root, "--to", cut_at)
    assert (ran.exit_code, NoRoomToKeep.code in ran.stderr) == (4, True), ran.output
    assert content(log.root) == before


def test_a_log_that_is_part_of_the_other_loses_its_note_only(log: SmallLog, tmp_path: Path) -> None:
    other = copy_of(log, tmp_path / "other")
    before = content(log.root, "commitlog", "consumequeue", "index")
    assert run("replica", "rewind", log.root, "--with", other).exit_code == 0
    assert content(log.root, "commitlog", "consumequeue", "index") == before
    assert divergence.read(log.root) is None
    assert "no divergence was noted" in run("replica", "forget", log.root).stdout


def test_a_rewind_to_offset_0_cuts_the_whole_log_and_keeps_it_aside(log: SmallLog) -> None:
    before = shown(log.root)
    assert run("replica", "rewind", log.root, "--to", 0).exit_code == 0
    assert recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset == 0
    assert shown(next(log.root.glob("slipstream.kept*"))) == before


def test_a_rewind_killed_at_any_call_ends_at_the_same_state(log: SmallLog, tmp_path: Path) -> None:
    cut_at = log.records[CUT_AT].offset
    before = content(log.root)
    whole = SmallLog(copy_of(log, tmp_path / "whole"))
    Rewind(whole.directory, whole.files).to(cut_at)
    after, died, begun = content(whole.root), 0, 0
    for deadly in range(1, 1000):
        one = SmallLog(copy_of(log, tmp_path / f"killed at {deadly}"))
        code = ends_at_call(lambda one=one: Rewind(one.directory, one.files).to(cut_at), CALLS, deadly)  # type: ignore[misc]
        if code != DIED:
            assert code == 0
            break
        died += 1
        names = list(one.root.glob("slipstream.kept-*[0-9]"))
        if interrupted.finish(one.directory, one.files).rewound_to is None:  # as the start of a broker does
            left = {name: data for name, data in content(one.root).items() if name in before}
            is_over = content(one.root) == after
            assert left == before or is_over, "not begun: nothing has changed, but the kept copy may be there"
        else:
            begun += 1
            assert names, "the kept copy was durable before"
            assert content(one.root) == after
        Rewind(one.directory, one.files).finish()
        if content(one.root) != after:
            Rewind(one.directory, one.files).to(cut_at)
        assert content(one.root) == after, deadly
        shutil.rmtree(one.root)
    assert died > 40 and begun > 30, (died, begun)


@pytest.mark.parametrize("seed", range(1))
def test_a_power_cut_leaves_the_old_log_or_the_cut_one_with_what_was_cut_kept(
    log: SmallLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At every sync, with any pages and names that were not synced lost."""
    cut_at, dice, ends = log.records[CUT_AT].offset, random.Random(seed), Counter[int]()
    before = [message.physical_offset for message in messages(open_log(log.root))]
    disk = LossyDisk(log.root, monkeypatch)

    def cut_power() -> None:
        disk.is_paused = True
        target = tmp_path / "after"
        disk.crash(dice, target)
        found = SmallLog(target)
        interrupted.finish(found.directory, found.files)
        end = recover(found.directory, found.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset
        ends[end] += 1
        assert end in (cut_at, log.end)
        if end == cut_at:
            kept_files = list(target.glob("slipstream.kept-*[0-9]"))
            assert [identity_at(record, 0)[0] for record in kept.records(kept_files[0])] == before[CUT_AT:]
        assert list(Verification(target).findings()) == [] or end == log.end  # ... whose digests may be gone
        Rewind(found.directory, found.files).finish()
        Rewind(found.directory, found.files).to(cut_at)
        assert [message.physical_offset for message in messages(open_log(target))] == before[:CUT_AT]
        assert divergence.read(target) is None
        shutil.rmtree(target)
        disk.is_paused = False

    disk.before_sync = cut_power
    Rewind(log.directory, log.files).to(cut_at)
    disk.close()
    assert ends[cut_at] > 10 and ends[log.end] >= 2, ends
