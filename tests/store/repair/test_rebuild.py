"""Queues and index built again from the log: the same bytes, nothing half-done after any crash."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store.errors import BitRot, CorruptRecord, StoreLocked
from store.files.directory import StoreDirectory
from store.index.index_file import Geometry
from store.repair.rebuild import SUFFIX, Rebuilt, locked, rebuild_index, rebuild_queues
from store.verify.verification import Verification
from tests.harness.children import exit_code_of
from tests.harness.dispatched import ENTRIES_MAX, SLOTS, content, small_store
from tests.harness.dying import ends_at_call
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents
from tests.store.golden import STORES, unpack

GEOMETRY = Geometry(SLOTS, ENTRIES_MAX)


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


def nothing(_done: int, _total: int) -> None:
    """Nobody is told."""


def queues(log: SmallLog, **chosen: object) -> Rebuilt:
    return rebuild_queues(log.directory, nothing, file_bytes=QUEUE_FILE_BYTES, **chosen)  # type: ignore[arg-type]


def test_damaged_queues_become_what_they_were(log: SmallLog) -> None:
    before = content(log.root, "consumequeue")
    for name in before:
        (log.root / name).write_bytes(bytes(len(before[name])))
    shutil.rmtree(log.directory.consumequeue / "topic0" / "1")
    assert {finding.code for finding in Verification(log.root).findings()} >= {"NOT_IN_QUEUE"}
    done = rebuild_queues(log.directory, nothing)  # the files tell their length
    assert (len(done.replaced), done.kept, done.findings) == (6, [], [])
    assert content(log.root, "consumequeue") == before
    assert not list(log.root.glob(f"*{SUFFIX}"))
    assert list(Verification(log.root).findings()) == []


def test_only_the_chosen_queue_or_topic_is_built_again(log: SmallLog) -> None:
    before = content(log.root, "consumequeue")
    shutil.rmtree(log.directory.consumequeue)
    assert queues(log, topic="topic1", queue_id=2).replaced == ["topic1/2"]
    chosen = {name for name in before if name.startswith("consumequeue/topic1/2")}
    assert set(content(log.root, "consumequeue")) == chosen
    assert queues(log, topic="topic0").replaced == ["topic0/0", "topic0/1", "topic0/2"]
    assert queues(log, topic="nobody").replaced == []


def test_queues_that_the_log_tells_nothing_of_stay(log: SmallLog) -> None:
    kept = log.directory.consumequeue / "%LMQ%mine" / "0" / ("0" * 20)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(QUEUE_FILE_BYTES))
    assert queues(log).kept == ["%LMQ%mine/0"]
    assert kept.read_bytes() == bytes(QUEUE_FILE_BYTES)


def test_a_damaged_index_is_built_again(log: SmallLog) -> None:
    for path in log.directory.index.iterdir():
        path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
    assert list(Verification(log.root).findings())
    done = rebuild_index(log.directory, nothing, GEOMETRY)
    verification = Verification(log.root)
    assert list(verification.findings()) == []
    assert verification.index_entries == 180
    assert len(done.replaced) == 3
    assert not list(log.root.glob(f"*{SUFFIX}"))


def test_a_missing_index_is_built(log: SmallLog) -> None:
    shutil.rmtree(log.directory.index)
    rebuild_index(log.directory, nothing, GEOMETRY)
    verification = Verification(log.root)
    assert (list(verification.findings()), verification.index_entries) == ([], 180)


def test_a_damaged_log_is_refused(log: SmallLog) -> None:
    before = content(log.root, "consumequeue", "index")
    log.write(log.records[30].offset, b"\x7f")
    for build in (queues, lambda log: rebuild_index(log.directory, nothing, GEOMETRY)):
        with pytest.raises((BitRot, CorruptRecord)):
            build(log)
    assert content(log.root, "consumequeue", "index") == before


def test_a_store_in_use_is_refused(log: SmallLog) -> None:
    child = os.fork()
    if not child:
        try:
            with locked(log.directory):
                os._exit(1)  # another process has it: not reached
        except StoreLocked:
            os._exit(7)
        finally:
            os._exit(2)
    assert exit_code_of(child) == 1  # free: the child could lock it
    with locked(log.directory):
        child = os.fork()
        if not child:
            try:
                with locked(type(log.directory)(log.root)):
                    os._exit(1)
            except StoreLocked:
                os._exit(7)
            finally:
                os._exit(2)
        assert exit_code_of(child) == 7


CALLS = tuple("exchange rename remove_tree sync_tree sync_directory replace_file create_sparse write_at".split())


@pytest.mark.parametrize("what", ["queue", "index"])
def test_killed_at_any_call_each_queue_is_whole(log: SmallLog, what: str) -> None:
    """A child process dies at its n-th call that changes a file, for every n: old or new, and done by the next."""
    before = content(log.root, "consumequeue")
    steps = [*range(1, 12), *range(12, 400, 9)]
    for deadly in steps:
        code = ends_at_call(lambda: _run(log, what), CALLS, deadly)
        assert code in (0, 9)
        assert list(Verification(log.root).findings()) == [], deadly
        assert content(log.root, "consumequeue") == before
        if code == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert deadly > 8
    _run(log, what)
    assert not list(log.root.glob(f"*{SUFFIX}"))


def _run(log: SmallLog, what: str) -> None:
    if what == "queue":
        queues(log)
    else:
        rebuild_index(log.directory, nothing, GEOMETRY)


@pytest.mark.parametrize("version, name", STORES)
def test_every_kind_of_queue_of_a_real_store(version: str, name: str, tmp_path: Path) -> None:
    root = unpack(version, name, tmp_path)
    before = {kind: contents(root / kind) for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext")}
    for kind in ("consumequeue", "batchconsumequeue"):
        for path in sorted((root / kind).rglob("0" * 20)):
            path.write_bytes(bytes(path.stat().st_size))
    done = rebuild_queues(StoreDirectory(root), nothing)
    assert {kind: contents(root / kind) for kind in before} == before
    assert done.findings == []
    assert not list(root.glob("*.rebuilding"))
    assert ("featBcq/0" in done.replaced) == ((version, name) == ("rocketmq-5.3.3", "features"))
    assert ("%LMQ%one/0" in done.replaced) == (name == "features")
