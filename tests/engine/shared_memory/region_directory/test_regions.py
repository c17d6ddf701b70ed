"""Region directories: of one broker, found again, removed only where they are its own; and brokers beside copies."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import StartRefused
from engine.producer import Producer
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory.region_directory import regions
from ipc.region import Region
from store.errors import NoBroker
from store.files.file_io import CREATING_SUFFIX
from store.files.place import Place
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.logs import contents
from tools.cli import run_command
from tools.common.local_broker import LocalBroker


@pytest.fixture
def config(store_dir: Path, region_dir: Path) -> BrokerConfig:
    store_dir.mkdir()
    return from_mapping({"storePathRootDir": store_dir, "regionPath": region_dir, "brokerName": "a"})


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def made(config: BrokerConfig) -> Path:
    directory = regions.create(config)
    Region.create(directory / "counters", 64, kind="counters", layout=1).close()
    (directory / "ring-000").write_bytes(b"")  # its maker was killed
    (directory / "sinks").mkdir()
    (directory / "sinks" / "note").write_text("1")
    return directory


def test_what_a_killed_broker_left_is_found_and_removed(config: BrokerConfig, region_dir: Path) -> None:
    first, second = made(config), made(config)
    assert first != second, "no name is used twice, so nobody can take it before"
    regions.remove_leftovers(config)
    assert not names(region_dir)


def test_a_moved_store_finds_what_it_left(config: BrokerConfig, region_dir: Path, tmp_path: Path) -> None:
    made(config)
    config.store_path_root_dir.rename(tmp_path / "moved")
    moved = from_mapping({"storePathRootDir": tmp_path / "moved", "regionPath": region_dir, "brokerName": "a"})
    regions.remove_leftovers(moved)
    assert not names(region_dir)


def test_another_stores_regions_stay(config: BrokerConfig, region_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = from_mapping({"storePathRootDir": tmp_path / "other", "regionPath": region_dir, "brokerName": "b"})
    theirs = made(other)
    regions.remove_leftovers(config)
    assert names(region_dir) == {theirs.name}


def test_files_that_come_and_go_while_they_are_looked_at_end_no_start(
    config: BrokerConfig, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that has just been forked makes its ring's file under another name first."""
    own, left, iterdir = made(config), made(config), Path.iterdir

    def with_one_that_went(directory: Path) -> Iterator[Path]:
        return iter([*iterdir(directory), directory / ".ring-066.5d6c100898cfa6d3"])

    with monkeypatch.context() as looking:
        looking.setattr(Path, "iterdir", with_one_that_went)
        regions.remove_leftovers(config, own)
        assert os.listdir(region_dir) == [own.name] and left != own
        regions.remove_leftovers(config, own, {"owner", "counters"})
    assert names(own) == {"owner", "counters"}
    assert left != own


def without_an_owner(directory: Path) -> None:
    (directory / "owner").unlink()


def of_another_store(directory: Path) -> None:
    fields = json.loads((directory / "owner").read_text())
    fields["root"]["inode"] += 1
    (directory / "owner").write_text(json.dumps(fields))


def of_another_broker(directory: Path) -> None:
    fields = json.loads((directory / "owner").read_text())
    (directory / "owner").write_text(json.dumps({**fields, "token": "0" * 32}))


def with_a_letter(directory: Path) -> None:
    (directory / "letter.txt").write_text("Dear reader")


def with_a_directory(directory: Path) -> None:
    (directory / "home").mkdir()


def with_a_link(directory: Path) -> None:
    (directory / "ring-001").symlink_to(directory / "counters")


def as_a_link(directory: Path) -> None:
    target = directory.with_name("elsewhere")
    directory.rename(target)
    directory.symlink_to(target)


@pytest.mark.parametrize("changed", [
    without_an_owner, of_another_store, of_another_broker, with_a_letter, with_a_directory, with_a_link, as_a_link,
])  # fmt: skip
def test_a_directory_that_may_not_be_the_brokers_is_not_removed(
    config: BrokerConfig, region_dir: Path, caplog: pytest.LogCaptureFixture, changed: object
) -> None:
    directory = made(config)
    assert callable(changed)
    changed(directory)
    before = contents(region_dir)
    regions.remove_leftovers(config)
    assert contents(region_dir) == before
    assert str(directory) in caplog.text and "was not removed" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_directory_stays(config: BrokerConfig, region_dir: Path) -> None:
    directory = made(config)
    os.chown(directory, 65534, 65534)
    regions.remove_leftovers(config)
    assert names(region_dir) == {directory.name}


def test_no_place_for_regions_is_said_in_one_line(config: BrokerConfig, tmp_path: Path) -> None:
    nowhere = from_mapping(
        {"storePathRootDir": config.store_path_root_dir, "regionPath": tmp_path / "nowhere", "brokerName": "a"}
    )
    with pytest.raises(StartRefused, match=r"nowhere.*regionPath"):
        regions.create(nowhere)


# with a broker


@pytest.fixture
def original(tmp_path: Path, region_dir: Path) -> Iterator[LocalBroker]:
    """A broker with a message in its store."""
    with LocalBroker(tmp_path / "original", regionPath=region_dir, mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(str(broker.store), timeout=60) as producer:
            producer.send("t", b"first")
        yield broker


def files_below(directory: Path) -> set[Path]:
    """By name alone: what a running broker has there may go while it is looked at. Without those being made: each
    second it writes its counts beside their place, and a role that comes makes its ring so."""
    found = {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}
    return {path for path in found if not path.name.startswith(".") and path.suffix != CREATING_SUFFIX}


def copied_if_there(source: str, target: str) -> object:
    """A file; a running broker writes some beside their places, and puts them there."""
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        return None


@contextmanager
def loaded(broker: LocalBroker) -> Iterator[None]:
    """Messages come from before its copy is begun until after its end, over more than one segment."""
    begun, enough = threading.Event(), threading.Event()

    def send() -> None:
        with Producer(str(broker.store), timeout=60) as producer:
            for number in itertools.count():
                producer.send_batch("t", [b"x" * 10_000] * 50)
                if number == 3:
                    begun.set()
                if enough.is_set():
                    return

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert begun.wait(60)
    yield
    enough.set()
    sending.join(60)
    assert not sending.is_alive()


def test_a_broker_on_a_copy_leaves_the_originals_alone(
    original: LocalBroker, tmp_path: Path, region_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy" / "store"
    copy.parent.mkdir()
    with loaded(original):
        shutil.copytree(original.store, copy, symlinks=True, copy_function=copied_if_there)
    with pytest.raises(NoBroker):
        Producer(str(copy))
    for command in (["status"], ["counters"], ["stats"], ["ha", "status"], ["produce", "--topic", "t", "--store"]):
        assert run_command([*command, str(copy)]) == 3
        assert "NO_BROKER" in capfd.readouterr().err
    before = files_below(region_dir)
    end = extent.readable_range(original.store).max_physical_offset
    with LocalBroker(tmp_path / "copy", regionPath=region_dir, mappedFileSizeCommitLog=1 << 20) as second:
        assert before <= files_below(region_dir)
        assert extent.require_running(copy).pid == second.process.pid
        with Producer(str(copy), timeout=60) as producer:
            producer.send("t", b"into the copy")
        with Producer(str(original.store), timeout=60) as producer:
            assert producer.send("t", b"second").physical_offset == end
    assert extent.require_running(original.store).pid == original.process.pid
    with Producer(str(original.store), timeout=60) as producer:
        assert producer.send("t", b"third").queue_offset is not None


def test_a_start_removes_no_directory_that_the_pointer_names(tmp_path: Path, region_dir: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter.txt").write_text("Dear reader")
    store = tmp_path / "broker" / "store"
    store.mkdir(parents=True)
    pointer = {
        "pid": 2**22 + 1, "start_time": 1, "region_directory": str(precious), "settings": {}, "token": "0" * 32,
        "root": Place.of(store).fields(),
    }  # fmt: skip
    (store / "slipstream.run").write_text(json.dumps(pointer))
    with LocalBroker(tmp_path / "broker", regionPath=region_dir):
        pass
    assert (precious / "letter.txt").read_text() == "Dear reader"
    assert not names(region_dir)


def test_names_that_others_took_before_keep_no_broker_from_its_start(tmp_path: Path, region_dir: Path) -> None:
    """Whatever lies in a regionPath that all may write to, as /dev/shm is."""
    store = tmp_path / "broker" / "store"
    store.mkdir(parents=True)
    config = from_mapping({"storePathRootDir": store, "regionPath": region_dir, "brokerName": "a"})
    taken = regions.create(config)
    shutil.rmtree(taken)
    prefix = taken.name.rpartition("-")[0]
    for name in (prefix, taken.name, "slipstream-0123456789ab"):
        (region_dir / name).mkdir(mode=0)
    (region_dir / f"{prefix}-").write_bytes(b"")
    (region_dir / f"{prefix}-{'0' * 32}").symlink_to("/nowhere")
    before = names(region_dir)
    with (
        LocalBroker(tmp_path / "broker", regionPath=region_dir) as broker,
        Producer(str(broker.store), timeout=60) as producer,
    ):
        assert producer.send("t", b"x").status.name == "PUT_OK"
    assert names(region_dir) == before


def test_a_killed_brokers_regions_go_with_the_next_start(tmp_path: Path, region_dir: Path) -> None:
    with LocalBroker(tmp_path / "broker", regionPath=region_dir) as broker:
        left = names(region_dir)
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait()
        assert extent.running(broker.store) is None
    assert names(region_dir) == left
    with LocalBroker(tmp_path / "broker", regionPath=region_dir):  # is ready, then removes what the dead one left
        await_that(lambda: not left & names(region_dir), "the dead broker's regions are removed")
        assert len(names(region_dir)) == 1
    assert not names(region_dir)


@pytest.mark.parametrize("by_link", [False, True])
def test_a_second_broker_on_one_commit_log_does_not_start(tmp_path: Path, region_dir: Path, by_link: bool) -> None:
    keys: dict[str, object] = {"regionPath": region_dir, "storePathCommitLog": tmp_path / "log"}
    with LocalBroker(tmp_path / "one", **keys) as broker:
        if by_link:
            (tmp_path / "link").symlink_to(tmp_path / "log")
            keys["storePathCommitLog"] = tmp_path / "link"
        locked = rf"STORE_LOCKED: {keys['storePathCommitLog']}: .*{broker.process.pid}"
        with pytest.raises(RuntimeError, match=locked), LocalBroker(tmp_path / "two", **keys):
            pass
        with Producer(str(broker.store), timeout=60) as producer:
            assert producer.send("t", b"x").physical_offset == 0


def test_a_broker_on_a_copy_made_of_links_changes_nothing_of_the_original(tmp_path: Path, region_dir: Path) -> None:
    keys: dict[str, object] = {
        "regionPath": region_dir, "mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 4000,
    }  # fmt: skip
    with LocalBroker(tmp_path / "one", **keys) as broker, Producer(str(broker.store), timeout=60) as producer:
        producer.send("t", b"first", keys="k")
    (tmp_path / "two").mkdir()
    subprocess.run(["cp", "-al", str(broker.store), str(tmp_path / "two" / "store")], check=True)
    before = contents(broker.store)
    with LocalBroker(tmp_path / "two", **keys) as second, Producer(str(second.store), timeout=60) as producer:
        assert producer.send("t", b"into the copy", keys="k").physical_offset > 0
    assert contents(broker.store) == before
