"""Another Unix user: reads with its group's right alone, or is told in one line what to change."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartRefused
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from ipc import ring
from ipc.descriptors import await_readable
from ipc.errors import RegionDenied
from store.errors import AccessDenied
from store.files import access
from store.files.directory import StoreDirectory
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.walk import walk_segment
from store.upkeep import leases, snapshot_state, snapshots
from tests.harness.children import exit_code_of
from tests.harness.conditions import SECONDS
from tests.harness.logs import SmallLog
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY, READERS, OTHERS = 65534, 54321, 54322


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that every user may go through, as /var/lib is; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="slipstream-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def as_nobody(group: int, work: Callable[[], Any]) -> Any:
    """What that gives, or the error it raises, in a process of the user nobody with that group alone."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            found = work()
        except BaseException as error:
            found = type(error), str(error)
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(found, pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        assert await_readable(pipe, timeout_ms=SECONDS * 1000), "the child says nothing"
        content = pipe.read()
    exit_code_of(pid)
    return pickle.loads(content)


def bodies(root: Path) -> list[int]:
    """The sizes of the messages, read from their segments."""
    reader = open_log(root)
    assert reader.files is not None
    with reader.files.open(0) as segment:
        return [step.inspection.size for step in walk_segment(segment) if step.physical_offset < reader.max_offset]


@pytest.fixture(params=[0o022, 0o077], ids=["umask 022", "umask 077"])
def broker(request: pytest.FixtureRequest, open_dir: Path) -> Iterator[LocalBroker]:
    """A broker of root's for readers of a group, under different umasks."""
    before = os.umask(request.param)
    (open_dir / "broker").mkdir(mode=0o755)
    (open_dir / "broker").chmod(0o755)
    try:
        running = LocalBroker(open_dir / "broker", storeGroup=READERS, mappedFileSizeCommitLog=1 << 16)
    finally:
        os.umask(before)
    with running:
        with Producer(str(running.store), timeout=60) as producer:
            for _ in range(30):  # into a second segment
                producer.send("t", b"x" * 4000)
        yield running


def test_the_group_reads_a_running_broker_and_holds_leases(broker: LocalBroker) -> None:
    store = broker.store
    found = as_nobody(READERS, lambda: extent.readable_range(store))
    assert found == extent.readable_range(store) and found.source == "broker"
    assert as_nobody(READERS, lambda: bodies(store)) == bodies(store)

    def hold() -> int | None:
        os.umask(0o077)
        leases.acquire(store, 7, 10**12, owner_pid=os.getppid())
        return leases.held_from(store, 0)

    assert as_nobody(READERS, hold) == 7
    assert leases.held_from(store, 0) == 7, "the broker reads it, too"
    assert leases.held_from(store, 10**15) is None and not list(StoreDirectory(store).leases.iterdir())


def test_the_group_reads_snapshots_and_the_brokers_own_user_makes_them(broker: LocalBroker) -> None:
    store = broker.store
    end = snapshot_state.take(store, "nightly", 10**6).end_offset
    assert as_nobody(READERS, lambda: snapshots.read(store, "nightly").end_offset) == end
    assert as_nobody(READERS, lambda: list(snapshots.names(store))) == ["nightly"]
    kind, text = as_nobody(READERS, lambda: snapshot_state.take(store, "other", 10**6))
    assert kind is PermissionError and "slipstream.snapshots" in text
    for read in (lambda: snapshots.read(store, "nightly"), lambda: list(snapshots.names(store))):
        kind, text = as_nobody(OTHERS, read)
        assert kind is AccessDenied and f"group {READERS}" in text


def test_everything_is_the_groups_and_nobody_elses(broker: LocalBroker) -> None:
    regions = extent.require_running(broker.store).region_directory

    def others() -> list[tuple[Path, int, str]]:
        """What is not the group's to read; a file that is being written has its owner's rights alone until it is."""
        wrong = []
        for root in (broker.store, regions):
            for path in (root, *root.rglob("*")):
                with suppress(FileNotFoundError):  # one that took another's place meanwhile
                    found = path.lstat()
                    wanted = 0o050 if stat.S_ISDIR(found.st_mode) else 0o040
                    if found.st_gid != READERS or stat.S_IMODE(found.st_mode) & 0o057 != wanted:
                        wrong.append((path, found.st_gid, oct(found.st_mode)))
        return wrong

    deadline = time.monotonic() + SECONDS
    while wrong := others():
        assert time.monotonic() < deadline, wrong
        await_readable(timeout_ms=10)


def test_other_users_get_an_error_that_says_what_to_change(broker: LocalBroker) -> None:
    store, regions = broker.store, extent.require_running(broker.store).region_directory
    for read in (
        lambda: extent.running(store),
        lambda: extent.readable_range(store),
        lambda: open_log(store),
        lambda: StoreDirectory(store).read_pointer(),
    ):
        kind, text = as_nobody(OTHERS, read)
        assert kind is AccessDenied and "storeGroup" in text and str(store) in text and f"group {READERS}" in text
    kind, text = as_nobody(OTHERS, lambda: BrokerCounters.attach(regions))
    assert kind is RegionDenied and "storeGroup" in text


def test_putting_takes_the_brokers_own_user(broker: LocalBroker) -> None:
    kind, text = as_nobody(READERS, lambda: Producer(str(broker.store)))
    assert kind is RegionDenied and "run this as user 0" in text


def test_a_store_that_was_there_is_given_to_the_group(open_dir: Path) -> None:
    log = SmallLog(open_dir / "store")
    log.fill(3)
    for path in log.root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o600)
    (log.root / "link").symlink_to(open_dir / "elsewhere")
    (open_dir / "elsewhere").write_text("not ours")
    StoreDirectory(log.root).give_to_group(READERS)
    assert as_nobody(READERS, lambda: bodies(log.root)) == bodies(log.root)
    assert as_nobody(OTHERS, lambda: bodies(log.root))[0] is AccessDenied
    assert (open_dir / "elsewhere").stat().st_gid == os.getegid()
    log.append()
    (log.root / "late").mkdir()
    StoreDirectory(log.root).give_to_group(READERS)
    assert (log.root / "late").stat().st_gid == READERS


def test_without_a_group_the_users_own_reads(open_dir: Path) -> None:
    log = SmallLog(open_dir / "store")
    log.fill(3)
    assert as_nobody(os.getegid(), lambda: bodies(log.root)) == bodies(log.root)
    assert as_nobody(OTHERS, lambda: bodies(log.root))[0] is AccessDenied


@pytest.mark.parametrize("name", ["no-such-group", "-1", "99999999999"])
def test_an_unknown_group_stops_the_start(open_dir: Path, name: str) -> None:
    with pytest.raises(KeyError):
        access.group_id(name)
    with pytest.raises(RuntimeError, match=f"START_REFUSED: storeGroup={name}"):
        LocalBroker(open_dir / "broker", storeGroup=name).__enter__()
    assert StartRefused.code == "START_REFUSED"


def test_roots_ring_can_be_opened_by_the_brokers_user(open_dir: Path) -> None:
    """Root's producer at another user's broker: its writer has to open the ring."""
    directory = open_dir / "regions"
    directory.mkdir()
    controls = ring.create_rings(directory, 1)
    os.chown(directory, NOBODY, OTHERS)
    os.chown(directory / ring.RINGS_FILE, NOBODY, OTHERS)
    claimed = ring.ClaimedRing(directory, controls, 1 << 16)
    found = ring.ring_path(directory, claimed.number).stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, OTHERS)
    claimed.close()
    controls.close()
