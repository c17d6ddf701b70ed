"""What a master believes: a request to step down, once the slave that it names proves it; a name server, in nothing."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.monitoring.pair import TWO_MASTERS, of_the_pair
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.peers.fencing import OwnLog
from engine.remoting.peers.log_peer import asked_extent
from engine.remoting.processors.parts import PartContext
from engine.remoting.processors.rivals import UNREACHED_MS, Rivals
from engine.remoting.sockets.client import RemotingClient
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import rival_note, role_request
from engine.shared_memory.region_directory.role_request import RoleRequest
from ipc import waiting
from ipc.clock import monotonic_ms
from store.notes import epochs, peers
from store.notes.epochs import Epochs
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog
from tests.harness.served_names import Serving

SECRETS = {"": None, "a secret": b"of this pair and nobody else", "another secret": b"what a stranger made up now"}


class Pair:
    """A master's part, and the slave that it has met, with a copy of its log unless that is another one."""

    def __init__(self, directory: Path, own: str, its: str, *, is_copy: bool = True) -> None:
        self.log = SmallLog(directory / "a", SEGMENT_BYTES)
        self.log.fill(80)
        epochs.write(self.log.root, Epochs().promoted("pair:0", 100, 1))
        other = directory / "b"
        if is_copy:
            shutil.copytree(self.log.root, other)
        else:
            SmallLog(other, SEGMENT_BYTES).append("orders", b"of a stranger")
        self.slave = ServedLog(
            other, directory / "regions", SEGMENT_BYTES, brokerRole="SLAVE", brokerId=1, **_secret(directory, its)
        )
        waiting.publish(self.slave.counters.own_broker_id, 1)
        peers.add(self.log.root, [self.slave.address])
        self.config = from_mapping(
            {
                "storePathRootDir": self.log.root,
                "mappedFileSizeCommitLog": SEGMENT_BYTES,
                "brokerName": "pair",
                "brokerIP1": "127.0.0.1",
                **_secret(directory, own),
            }
        )
        (directory / "own").mkdir()
        self.counters = BrokerCounters.create(directory / "own" / "counters")
        waiting.publish(self.counters.max_physical_offset, self.log.end)
        with RemotingClient(self.slave.address) as client:
            self.asked = {"epoch": "2", "broker": "pair:1", "master": asked_extent(client).ha_address}

    def answer(self, *, is_slave: bool = False, **others: str) -> int:
        """The code with which the master answers a request to step down."""
        fields = {name: value for name, value in {**self.asked, **others}.items() if value}
        return asyncio.run(_answered(self.config, self.counters, fields, is_slave=is_slave))

    def is_changed(self) -> bool:
        return role_request.is_there(self.counters.directory)


def _secret(directory: Path, name: str) -> dict[str, Any]:
    secret = SECRETS[name]
    if secret is None:
        return {}
    (directory / name).write_bytes(secret)
    return {"haSecretFile": directory / name}


async def _answered(config: BrokerConfig, counters: BrokerCounters, fields: dict[str, str], *, is_slave: bool) -> int:
    shared = SimpleNamespace(config=config, counters=counters, loop=asyncio.get_running_loop(), is_slave=is_slave)
    part = Rivals(cast(PartContext, shared))
    try:
        answer = part.begin(RemotingCommand(RequestCode.STEP_DOWN, ext_fields=fields), 1, 0)
        said = answer if isinstance(answer, RemotingCommand | None) else await answer
        assert said is not None
        return said.code
    finally:
        part.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Pair]]:
    """Both brokers of a pair are in this process: what one asks, the other one may answer."""
    monkeypatch.setattr("engine.remoting.processors.rivals.OwnLog", lambda files, extent, _asked: OwnLog(files, extent))
    pairs: list[Pair] = []
    yield pairs
    for one in pairs:
        one.slave.stop()


@pytest.mark.parametrize("secret", ["", "a secret"])
def test_a_master_steps_down_for_the_slave_that_says_itself_that_it_takes_over(
    tmp_path: Path, made: list[Pair], secret: str
) -> None:
    pair = Pair(tmp_path, secret, secret)
    made.append(pair)
    assert pair.answer() == ResponseCode.NO_PERMISSION, "forged: no slave takes over"
    with role_request.claiming(pair.slave.counters.directory, 2, 60):
        wrong: dict[str, str] = {"epoch": "3", "broker": "pair:2", "master": "10.0.0.2:10912"}
        for name, value in wrong.items():
            assert pair.answer(**{name: value}) == ResponseCode.NO_PERMISSION, f"forged: another {name}"
        for impossible in ({"epoch": "1"}, {"epoch": "x"}, {"broker": "other:1"}, {"master": "a\nb"}, {"broker": ""}):
            assert pair.answer(**impossible), impossible
        assert pair.answer(is_slave=True) == ResponseCode.NO_PERMISSION, "a slave has nothing to step down from"
        assert not pair.is_changed()
        assert pair.answer() == ResponseCode.SUCCESS
    wanted = RoleRequest(to_master=False, master=pair.asked["master"], epoch=2, broker="pair:1")
    assert role_request.read(pair.counters.directory) == wanted
    assert pair.answer() == ResponseCode.NO_PERMISSION, "the claim went with the command"


@pytest.mark.parametrize(
    ("own", "its", "is_copy"), [("a secret", "", True), ("a secret", "another secret", True), ("", "", False)]
)
def test_a_stranger_who_says_that_he_takes_over_proves_nothing(
    tmp_path: Path, made: list[Pair], own: str, its: str, is_copy: bool
) -> None:
    pair = Pair(tmp_path, own, its, is_copy=is_copy)
    made.append(pair)
    with role_request.claiming(pair.slave.counters.directory, 2, 60):
        assert pair.answer() == ResponseCode.NO_PERMISSION
    assert not pair.is_changed()


def test_a_claim_ends_with_its_time_where_its_command_was_killed(tmp_path: Path) -> None:
    with role_request.claiming(tmp_path, 2, 0):
        assert role_request.claimed(tmp_path) == 0
    with role_request.claiming(tmp_path, 2, 60):
        assert role_request.claimed(tmp_path) == 2
    assert role_request.claimed(tmp_path) == 0


def test_a_master_that_only_a_name_server_sees_is_told_and_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, counters = Serving(), BrokerCounters.create(tmp_path / "counters")
    server, shift_ms, brokers = f"127.0.0.1:{names.port}", 0, list[RemotingClient]()
    config = from_mapping({"storePathRootDir": tmp_path, "brokerName": "pair", "brokerIP1": "127.0.0.1",
                           "listenPort": 4711, "namesrvAddr": server})  # fmt: skip
    monkeypatch.setattr("engine.remoting.processors.rivals.monotonic_ms", lambda: monotonic_ms() + shift_ms)

    def register(address: str) -> None:
        who = {"clusterName": "DefaultCluster", "brokerName": "pair", "brokerId": "0", "brokerAddr": address}
        brokers.append(RemotingClient(server))  # a name server forgets a broker whose connection ends
        brokers[-1].ask(RequestCode.REGISTER_BROKER, {**who, "haServerAddr": "127.0.0.1:10912"})

    async def looked(known_at: tuple[str, ...]) -> list[list[str]]:
        """What two looks find, one while the other master is listed, one while this one is."""
        registrar = SimpleNamespace(known_at=lambda: known_at, hurry=lambda: None, relay=lambda texts: None)
        loop, told = asyncio.get_running_loop(), []
        shared = SimpleNamespace(config=config, counters=counters, loop=loop, is_slave=False, registrar=registrar)
        part = Rivals(cast(PartContext, shared))
        nonlocal shift_ms
        for address, later_ms in ((nobody, 0), ("127.0.0.1:4711", UNREACHED_MS // 2), ("", UNREACHED_MS)):
            shift_ms += later_ms
            if address:
                register(address)
            part.turn(monotonic_ms() + shift_ms)
            assert part.asking is not None
            await part.asking
            told.append(
                [one.what for one in of_the_pair(counters, str(tmp_path), "ASYNC_MASTER") if one.reason == TWO_MASTERS]
            )
        part.close()
        return told

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        first, second, last = asyncio.run(looked((server,)))
        assert len(first) == 1 and f"calls {nobody} the master" in first[0] and "NOT FENCED" in first[0]
        assert (second, last) == (first, []), "the two take turns at the name server; one that is gone is forgotten"
        assert not role_request.is_there(tmp_path) and rival_note.read(tmp_path) == []
        assert asyncio.run(looked(())) == [[], [], []], "before its own registration it may be the one before us"
    for one in brokers:
        one.close()
    names.stop()
