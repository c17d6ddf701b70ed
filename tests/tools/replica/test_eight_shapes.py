"""Eight ways in which two logs do not fit: each ends in one named state and one command, after which they are one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from engine.producer import Producer
from engine.protocol.ha.wire import CloseReason
from engine.shared_memory.cursors import BrokerCounters
from store.notes import divergence
from store.reading import extent
from tests.harness.command_line import run
from tests.harness.ha_node import wait_for, wait_until
from tools.common.local_broker import LocalBroker

SEGMENT = 64 * 1024
SIZES = {
    "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 17,
    "maxMessageSize": 16_384, "brokerName": "pair", "haReconnectInterval": 200, "haSendHeartbeatInterval": 500,
}  # fmt: skip


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


def put(broker: LocalBroker, text: str, count: int) -> None:
    with Producer(str(broker.store), timeout=60.0) as producer:
        for number in range(count):
            producer.send("orders", text.encode() * 500, queue_id=number % 2)


@contextmanager
def master_of(directory: Path, **settings: object) -> Iterator[LocalBroker]:
    with LocalBroker(directory, **{**SIZES, **settings}) as broker:
        yield broker


@contextmanager
def slave_of(master: LocalBroker, directory: Path, **settings: object) -> Iterator[tuple[LocalBroker, BrokerCounters]]:
    role = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
    with LocalBroker(directory, **{**SIZES, **role, **settings}) as slave:
        yield slave, counters_of(slave)


def grown(directory: Path, base: Path | None, text: str, count: int) -> None:
    """A stopped store: that of `base`, and so many messages of this text behind it."""
    if base is not None:
        shutil.copytree(base / "store", directory / "store")
    with master_of(directory) as broker:
        put(broker, text, count)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    grown(directory, None, "base", 70)
    return directory


class Shape(NamedTuple):
    """What the master and the slave have (`None`: nothing) behind `base`; what is seen, and what `check` calls it."""

    master: tuple[bool, str, int]
    slave: tuple[bool, str, int] | None
    reason: CloseReason
    state: str
    settings: Mapping[str, Any] = MappingProxyType({})
    promoted: bool = False


SHAPES = {
    "wiped": Shape((False, "new", 5), (True, "", 0), CloseReason.AHEAD, "NO_COMMON_HISTORY"),
    "wiped and grown": Shape((False, "new", 200), (True, "", 0), CloseReason.DIVERGED, "NO_COMMON_HISTORY"),
    "shorter": Shape((True, "", 0), (True, "old", 9), CloseReason.AHEAD, "AHEAD"),
    "longer": Shape((True, "new", 9), (True, "", 0), CloseReason.NONE, "IDENTICAL"),
    "another of equal length": Shape((True, "new", 9), (True, "old", 9), CloseReason.DIVERGED, "DIVERGED"),
    "lost tail": Shape((True, "new", 60), (True, "old", 3), CloseReason.DIVERGED, "DIVERGED"),
    "old master": Shape((True, "new", 2), (True, "old", 1), CloseReason.DIVERGED, "DIVERGED", promoted=True),
    "other cluster": Shape(
        (True, "new", 9), (True, "", 0), CloseReason.OTHER_CLUSTER, "BEHIND", {"brokerClusterName": "another"}
    ),
    "other segment size": Shape(
        (True, "", 0), None, CloseReason.SEGMENT_SIZE, "OTHER_SEGMENT_SIZE", {"mappedFileSizeCommitLog": 2 * SEGMENT}
    ),
}


def make(directory: Path, base: Path, part: tuple[bool, str, int] | None) -> None:
    if part is None:
        return
    on_base, text, count = part
    if count:
        grown(directory, base if on_base else None, text, count)
    else:
        shutil.copytree(base / "store", directory / "store")


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_ends_in_one_state_and_one_command(tmp_path: Path, base: Path, name: str) -> None:
    shape = SHAPES[name]
    make(tmp_path / "m", base, shape.master)
    make(tmp_path / "s", base, shape.slave)
    store = tmp_path / "s" / "store"
    if shape.promoted:
        assert run("promote", tmp_path / "m" / "store", "--force").exit_code == 0
    with master_of(tmp_path / "m") as master:
        end = counters_of(master).max_physical_offset.read()
        with slave_of(master, tmp_path / "s", **shape.settings) as (_slave, counters):
            before = counters.max_physical_offset.read()
            if shape.reason is CloseReason.NONE:
                wait_for(counters.max_physical_offset, end)
            else:
                wait_until(counters.ha_client.reason, lambda reason: reason == shape.reason)
                assert shape.slave is None or counters.max_physical_offset.read() == before, "not a byte is taken"
        assert (divergence.read(store) is not None) == (shape.reason is CloseReason.DIVERGED)
        checked = run("replica", "check", store, "--with", f"127.0.0.1:{master.port}")
        assert checked.stdout.splitlines()[0] == shape.state, checked.output
        cure(store, master, shape, checked.stdout.splitlines()[-1])
        with slave_of(master, tmp_path / "s") as (slave, counters):
            put(master, "after", 3)
            end = counters_of(master).max_physical_offset.read()
            wait_for(counters.max_physical_offset, end)
            assert log_of(slave)[:end] == log_of(master)[:end]


def log_of(broker: LocalBroker) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((broker.store / "commitlog").glob("0*")))


def cure(store: Path, master: LocalBroker, shape: Shape, advice: str) -> None:
    """What `check` says: its command, or the other settings with which the slave is started next."""
    assert advice.startswith("next: ")
    remedies: dict[str, Callable[[], object]] = {
        "`slipstream replica rewind": lambda: rewind(store, master),
        f"`mv {store}": lambda: store.rename(store.with_suffix(".old")),
    }
    for command, act in remedies.items():
        if command in advice:
            act()
            return
    assert shape.state in ("IDENTICAL", "BEHIND"), advice


def rewind(store: Path, master: LocalBroker) -> None:
    ran = run("replica", "rewind", store, "--with", f"127.0.0.1:{master.port}")
    assert ran.exit_code == 0, ran.output
    assert divergence.read(store) is None
    (kept,) = store.glob("slipstream.kept-*")
    shown = run("log", "cat", kept)
    assert shown.exit_code == 0 and "orders" in shown.stdout, shown.output
