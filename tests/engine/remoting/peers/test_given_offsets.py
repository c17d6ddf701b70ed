"""Offsets that consumers commit at a slave while the master is away: the master hears of them when it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.protocol.broker import slave_synchronize
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.clients import Clients
from engine.remoting.peers import master_tables
from ipc.clock import monotonic_ms
from tests.harness.clients_turns import role, turn_until
from tests.harness.conditions import SECONDS
from tests.harness.served_names import Serving

KEY = ("t", "g")


class Pair:
    """A master and its slave, turned by the test; the master is away while it is not turned."""

    def __init__(self, master: Clients, slave: Clients) -> None:
        self.master, self.slave = master, slave

    def turn_until(self, done: Callable[[], bool]) -> None:
        deadline_ms = monotonic_ms() + SECONDS * 1000
        while not done():
            assert monotonic_ms() < deadline_ms, "it did not come to pass"
            for one in (self.master, self.slave):
                one.do_work(monotonic_ms())
                one.idle(5)

    def synchronize(self) -> None:
        """Until the slave has asked for all tables once more."""
        self.turn_until(lambda: "synchronize" not in self.slave._tasks)
        synchronize = self.slave._master.synchronize
        synchronize.last_ms = synchronize._due_ms = 0
        self.turn_until(lambda: bool(synchronize.last_ms))

    def offsets(self) -> tuple[dict[int, int] | None, dict[int, int] | None]:
        """What master and slave say."""
        return self.master._files.metadata.offsets.get(KEY), self.slave._files.metadata.offsets.get(KEY)


def commit(server: Clients, offset: int, queue_id: int = 0) -> None:
    fields = {"topic": "t", "consumerGroup": "g", "queueId": str(queue_id), "commitOffset": str(offset)}
    answer = server.answer_frame(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields), 1)
    if answer is not None and not isinstance(answer, RemotingCommand):
        turn_until(server, answer.done)
        answer = answer.result()
    assert answer is not None and answer.code == 0


@pytest.fixture
def pair(store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(slave_synchronize, "FIRST_MS", 0)
    monkeypatch.setattr(master_tables, "SYNCHRONIZE_SECONDS", 60.0)
    names, regions = Serving(), [region_dir / name for name in ("master", "slave")]
    for one in regions:
        one.mkdir()
    at = f"127.0.0.1:{names.port}"
    with (
        role(store_dir / "master", regions[0], at) as (master, _its),
        role(store_dir / "slave", regions[1], at, brokerRole="SLAVE", brokerId=1) as (slave, _config),
    ):
        both = Pair(master, slave)
        commit(master, 5)
        both.turn_until(lambda: both.offsets()[1] == {0: 5})
        yield both
    names.stop()


def test_the_master_hears_of_what_was_committed_while_it_was_away(pair: Pair) -> None:
    commit(pair.slave, 9)
    commit(pair.slave, 3, queue_id=1)
    pair.slave._master.synchronize._due_ms = 0
    for _ in range(3):  # nobody answers
        pair.slave.do_work(monotonic_ms())
        pair.slave.idle(5)
    assert pair.offsets() == ({0: 5}, {0: 9, 1: 3})
    pair.synchronize()
    pair.synchronize()
    assert pair.offsets() == ({0: 9, 1: 3}, {0: 9, 1: 3})
    commit(pair.master, 2)  # an administrator resets the group
    pair.synchronize()
    assert pair.offsets() == ({0: 2, 1: 3}, {0: 2, 1: 3}), "what was given once is not given again"


def test_a_master_that_is_further_is_not_set_back(pair: Pair) -> None:
    commit(pair.slave, 7)
    commit(pair.master, 11)
    pair.synchronize()
    assert pair.offsets() == ({0: 11}, {0: 11})
    pair.synchronize()
    assert pair.offsets() == ({0: 11}, {0: 11})


def test_what_the_master_does_not_take_stays_at_the_slave(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(pair.slave, 9)
    answer = pair.master.answer_frame

    def refusing(request: RemotingCommand, channel: int) -> object:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return request.answer(1, "not now", version=1)
        return answer(request, channel)

    with monkeypatch.context() as patch:
        patch.setattr(pair.master, "answer_frame", refusing)
        pair.synchronize()
        assert pair.offsets() == ({0: 5}, {0: 9})
    pair.synchronize()
    pair.synchronize()
    assert pair.offsets() == ({0: 9}, {0: 9})
