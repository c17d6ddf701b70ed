"""Before a slave takes its master's place: histories are compared, not numbers; a stopped one asks who lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.epochs import Epoch
from store.notes import epochs, peers
from store.notes.epochs import Epochs, SaidRole
from store.reading.extent import Running
from tests.harness.command_line import run
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog
from tools.replica import succession
from tools.replica.succession import RoleRefused, Slave

E1, OTHER_E1 = Epoch(1, 0, "pair:0", 1), Epoch(1, 0, "pair:7", 1)


def log_of(root: Path, *parts: tuple[bytes, int]) -> SmallLog:
    log = SmallLog(root, SEGMENT_BYTES)
    for body, count in parts:
        for _ in range(count):
            log.append("orders", body)
    return log


def slave_of(tmp_path: Path, log: SmallLog) -> Slave:
    """As the command sees a running slave on that log."""
    counters = BrokerCounters.create(tmp_path / "counters")
    waiting.publish(counters.max_physical_offset, log.end)
    settings = {
        "storePathCommitLog": str(log.directory.commitlog), "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "brokerClusterName": "DefaultCluster", "brokerName": "pair", "storeHost": "127.0.0.1:1",
    }  # fmt: skip
    return Slave(log.root, Running(log.root, settings, os.getpid(), 0, "", tmp_path, str(tmp_path)), counters)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[SmallLog], ServedLog]]:
    begun: list[ServedLog] = []

    def serve(log: SmallLog) -> ServedLog:
        begun.append(ServedLog(log.root, tmp_path / "regions", SEGMENT_BYTES))
        return begun[-1]

    yield serve
    for one in begun:
        one.stop()


@pytest.mark.parametrize(
    ("own", "its", "own_epochs", "refused"),
    [
        ([(b"one", 50)], [(b"one", 50)], (E1,), ""),
        ([(b"one", 40)], [(b"one", 50)], (E1,), ""),
        ([], [(b"one", 50)], (), ""),
        ([(b"one", 51)], [(b"one", 50)], (E1,), "AHEAD: it has"),
        ([(b"one", 40), (b"old", 9)], [(b"one", 40), (b"new", 20)], (E1,), "DIVERGED: "),
        ([(b"old", 1), (b"one", 40)], [(b"new", 1), (b"one", 60)], (E1,), "DIVERGED: "),
        ([(b"one", 40)], [(b"one", 50)], (OTHER_E1,), "DIVERGED: "),
    ],
)
def test_a_switch_compares_histories(
    tmp_path: Path,
    served: Callable[[SmallLog], ServedLog],
    own: list[tuple[bytes, int]],
    its: list[tuple[bytes, int]],
    own_epochs: tuple[Epoch, ...],
    refused: str,
) -> None:
    mine, other = log_of(tmp_path / "own", *own), log_of(tmp_path / "its", *its)
    epochs.write(mine.root, Epochs(own_epochs))
    epochs.write(other.root, Epochs((E1,)))
    slave, master = slave_of(tmp_path, mine), served(other)
    old = succession.master_of(slave, master.address)
    assert old is not None
    if not refused:
        succession.require_same_history(slave, old)
        return
    with pytest.raises(RoleRefused, match=refused) as raised:
        succession.require_same_history(slave, old)
    assert f"slipstream replica check {mine.root} --with {master.address}" in str(raised.value)


def test_a_master_is_found_where_it_said_that_it_answers_and_believed_by_its_log(
    tmp_path: Path, served: Callable[[SmallLog], ServedLog]
) -> None:
    mine = log_of(tmp_path / "own", (b"one", 40))
    slave, master = slave_of(tmp_path, mine), served(log_of(tmp_path / "its", (b"one", 50)))
    assert succession.master_of(slave, None) is None
    peers.add(mine.root, [master.address])
    old = succession.master_of(slave, None)
    assert old is not None and old.address == master.address
    with pytest.raises(RoleRefused, match=rf"its master {master.address} is running"):
        succession.refuse_beside_master(slave, None)
    stranger = slave_of(tmp_path / "own", log_of(tmp_path / "own", (b"two", 40)))
    assert succession.master_of(stranger, None) is None, "another log: nobody is asked for offsets, or to step down"


def test_a_stopped_store_is_not_promoted_while_one_that_it_has_met_is_the_master(
    tmp_path: Path, served: Callable[[SmallLog], ServedLog]
) -> None:
    mine = log_of(tmp_path / "own", (b"one", 40))
    master = served(log_of(tmp_path / "its", (b"one", 50)))
    given = run("promote", mine.root, "--master", master.address)
    assert (given.exit_code, "ROLE_REFUSED" in given.stderr) == (1, True), given.output
    peers.add(mine.root, ["127.0.0.1:1", master.address])
    met = run("promote", mine.root)
    assert (met.exit_code, f"at {master.address} is running" in met.stderr) == (1, True), met.output
    assert epochs.read(mine.root).role is SaidRole.NONE
    assert run("promote", mine.root, "--force").exit_code == 0
    assert epochs.read(mine.root).role is SaidRole.FORCED
