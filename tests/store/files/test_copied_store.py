"""A pointer file counts in the place it was written for: a copy of a store knows nothing of the original's broker."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ipc import waiting
from ipc.counters import Counters
from ipc.process import start_time
from store.errors import BrokerOutOfReach, NoBroker, NotAStore
from store.files import pointer
from store.files.directory import StoreDirectory, store_directory
from store.reading import extent
from store.reading.log_reader import open_log
from tests.harness.children import exit_code_of
from tests.harness.logs import SmallLog, contents

END = 4321


def claimed(log: SmallLog, regions: Path, **settings: object) -> None:
    """This process claims to be the store's broker, whose log ends at END."""
    regions.mkdir()
    counters = Counters.create(regions / "counters", 2)
    for label, offset in (("min_physical_offset", 0), ("max_physical_offset", END)):
        waiting.publish(counters.allocate(label, kind="cursor", owner="writer"), offset)
    log.directory.write_pointer(
        {
            "pid": os.getpid(),
            "start_time": start_time(os.getpid()),
            "region_directory": str(regions),
            "settings": {"brokerName": "b", "storePathCommitLog": str(log.directory.commitlog), **settings},
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    made = SmallLog(tmp_path / "store")
    made.fill(3)
    claimed(made, tmp_path / "regions")
    return made


def with_cp(original: Path, copy: Path) -> None:
    subprocess.run(["cp", "-a", str(original), str(copy)], check=True)


def with_links(original: Path, copy: Path) -> None:
    subprocess.run(["cp", "-al", str(original), str(copy)], check=True)


def with_symbolic_links(original: Path, copy: Path) -> None:
    subprocess.run(["cp", "-as", str(original), str(copy)], check=True)


def file_by_file(original: Path, copy: Path) -> None:
    shutil.copytree(original, copy)


def a_copy_of_a_copy(original: Path, copy: Path) -> None:
    between = copy.with_name("between")
    with_cp(original, between)
    with_cp(between, copy)


def to_another_device(original: Path, copy: Path) -> None:
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK) or os.stat(shared_memory).st_dev == os.stat(original).st_dev:
        pytest.skip("no second file system to write to")
    there = shared_memory / f"slipstream-test-{os.getpid()}-copy"
    with_cp(original, there)
    copy.symlink_to(there)


COPIES = [with_cp, with_links, with_symbolic_links, file_by_file, a_copy_of_a_copy, to_another_device]


@pytest.fixture(params=COPIES, ids=lambda made: made.__name__)
def copy(request: pytest.FixtureRequest, log: SmallLog, tmp_path: Path):
    target = tmp_path / "copy"
    request.param(log.root, target)
    yield target
    if target.is_symlink():
        shutil.rmtree(target.resolve())


def test_a_copy_is_a_store_without_a_broker(log: SmallLog, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "slipstream"):
        assert extent.running(copy) is None
        assert extent.running(copy) is None
    assert [record.getMessage() for record in caplog.records if str(copy) in record.getMessage()] == [
        f"{copy}/slipstream.run: ignored: it was written for {log.root}, not for this directory (a copy?);"
        " using this store's own files"
    ]
    with pytest.raises(NoBroker):
        extent.require_running(copy)
    assert extent.readable_range(copy) == extent.Range(0, log.end, "recovery")
    assert StoreDirectory(copy).read_pointer() is None
    assert extent.readable_range(log.root).source == "broker"


def test_the_log_of_a_copy_is_its_own(log: SmallLog, copy: Path) -> None:
    before = contents(log.root)
    assert store_directory(copy).commitlog == copy / "commitlog"
    reader = open_log(copy)
    assert (reader.directory.commitlog, reader.max_offset, reader.live) == (copy / "commitlog", log.end, False)
    assert contents(log.root) == before


def seen_through_a_link(root: Path, other: Path) -> None:
    other.symlink_to(root)


def moved(root: Path, other: Path) -> None:
    root.rename(other)


@pytest.mark.parametrize("make", [seen_through_a_link, moved])
def test_the_same_directory_under_another_path_is_the_same_store(
    log: SmallLog, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "other"
    make(log.root, other)
    broker = extent.require_running(other)
    assert broker.region_directory == tmp_path / "regions"
    assert broker.settings["storePathCommitLog"] == str(other / "commitlog")
    assert extent.readable_range(other) == extent.Range(0, END, "broker")
    assert open_log(other).directory.commitlog == other / "commitlog"


def test_a_file_without_a_place_is_foreign(tmp_path: Path) -> None:
    """As a broker of an older version left it, or somebody made it by hand."""
    log = SmallLog(tmp_path / "store")
    fields = {
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "region_directory": str(tmp_path),
        "settings": {"storePathCommitLog": str(tmp_path)},
    }
    log.directory.pointer.write_text(json.dumps(fields))
    assert extent.running(log.root) is None
    assert store_directory(log.root).commitlog == log.root / "commitlog"


def rewritten(log: SmallLog, **changed: object) -> None:
    """What the pointer says is changed in place: its broker still holds it."""
    fields = json.loads(log.directory.pointer.read_text())
    log.directory.pointer.write_text(json.dumps({**fields, **changed}))


def test_shared_memory_counts_where_it_names_the_same_broker(log: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    claimed(other, tmp_path / "others")
    for changed in (
        {"region_directory": str(tmp_path / "others")},
        {"region_directory": str(tmp_path / "nowhere")},
        {"region_directory": str(tmp_path / "link")},
        {"token": json.loads(other.directory.pointer.read_text())["token"]},
    ):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "regions")
        before = log.directory.pointer.read_bytes()
        rewritten(log, **changed)
        broker = extent.require_running(log.root)
        with pytest.raises(BrokerOutOfReach, match="regionPath"):
            broker.counters()
        assert extent.readable_range(log.root).source == "recovery"
        log.directory.pointer.write_bytes(before)
    assert extent.readable_range(log.root).source == "broker"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_stranger_names_only_directories_of_his_own(log: SmallLog, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    settings = {"brokerName": "b", "storePathCommitLog": str(foreign)}
    rewritten(log, settings=settings, commitlog=None)
    assert store_directory(log.root).commitlog == foreign
    os.chown(log.directory.pointer, 65534, 65534)
    assert store_directory(log.root).commitlog == log.root / "commitlog"
    os.chown(foreign, 65534, 65534)
    assert store_directory(log.root).commitlog == foreign


def test_another_directory_in_the_place_of_the_commit_log(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    apart = tmp_path / "apart"
    apart.mkdir()
    directory = StoreDirectory(log.root, apart)
    directory.write_pointer(
        {
            "pid": os.getpid(),
            "start_time": start_time(os.getpid()),
            "region_directory": str(tmp_path / "x"),
            "settings": {"storePathCommitLog": str(apart)},
        }
    )
    assert store_directory(log.root).commitlog == apart
    apart.rename(tmp_path / "before")
    apart.mkdir()
    assert store_directory(log.root).commitlog == log.root / "commitlog"


@pytest.mark.parametrize("changed", [
    {"root": 7}, {"root": {"path": "/x", "device": "1", "inode": 2}}, {"pid": "1"}, {"pid": -1}, {"pid": 1 << 70},
    {"region_directory": None}, {"region_directory": "/x\0y"}, {"settings": {"storePathCommitLog": 7}}, {"token": 7},
    {"boot_id": 7}, {"namespace": []}, {"commitlog": "x"}, {"settings": []},
])  # fmt: skip
def test_whatever_the_file_says_nothing_breaks(log: SmallLog, changed: dict[str, object]) -> None:
    rewritten(log, **changed)
    try:
        found = extent.running(log.root)
        if found is not None and found.reached is None:
            with pytest.raises(BrokerOutOfReach):
                found.counters()
    except NotAStore as error:
        assert "slipstream.run" in str(error) and "remove it" in str(error)


def test_something_else_in_the_files_place(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    os.mkfifo(log.directory.pointer)
    with pytest.raises(NotAStore, match=r"slipstream\.run"):
        extent.running(log.root)


def test_a_forked_childs_hold_does_not_count_for_its_dead_parent(tmp_path: Path) -> None:
    """The children of a killed broker hold the file a moment longer: the broker is the process that it names."""
    store = SmallLog(tmp_path / "killed")
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        claimed(store, tmp_path / "its regions")
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)  # until the test closes its end
        os._exit(0)
    exit_code_of(parent)
    left = pointer.read(store.root)
    assert left is not None and left.is_held and not left.is_alive
    assert extent.running(store.root) is None
    os.close(write_end)
    os.close(read_end)
