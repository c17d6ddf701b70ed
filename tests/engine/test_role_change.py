"""Which role a broker has: its file's, an operator's word, or what a newer epoch leaves it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import StartRefused
from engine.monitoring.finding import lines_of
from engine.monitoring.pair import epoch_of, of_the_pair
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.remoting.peers.last_offsets import raise_offsets
from engine.remoting.sockets.client import RemotingClient
from engine.role_change import RoleChange
from engine.settings import role_now
from engine.settings.config import BrokerConfig, BrokerRole, ConfigError, from_mapping
from engine.shared_memory.cursors import BrokerCounters, Reign
from engine.shared_memory.region_directory import role_request
from engine.shared_memory.region_directory.role_request import RoleRequest
from ipc import waiting
from store.compat import LINES
from store.epochs import Epoch
from store.files import file_io
from store.names import CONSUMER_OFFSETS, RESERVE
from store.notes import divergence, epochs, summed_json
from store.notes.divergence import Divergence
from store.notes.epochs import Epochs, Fence, SaidRole
from store.tables.steps import at_once
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog
from tests.harness.served_names import Serving

OF_B = Epochs().promoted("pair:2", 100, 1)


def config_of(store: Path, role: str, **keys: object) -> BrokerConfig:
    own_id = {"brokerId": 2} if role == "SLAVE" else {}
    settings = {"storePathRootDir": store, "brokerName": "pair", "brokerIP1": "127.0.0.1", "brokerRole": role}
    return from_mapping({**settings, **own_id, **keys})


@pytest.mark.parametrize(
    ("role", "known", "now"),
    [
        ("SYNC_MASTER", Epochs(), ("SYNC_MASTER", 0)),
        ("SLAVE", Epochs(), ("SLAVE", 2)),
        ("SLAVE", OF_B, ("ASYNC_MASTER", 0)),
        ("SYNC_MASTER", OF_B, ("SLAVE", 2)),
        ("SLAVE", OF_B.fenced(Fence(2, "pair:0", "h:1", 2)), ("SLAVE", 2)),
        ("SLAVE", OF_B.following([*OF_B.entries, Epoch(2, 200, "pair:0", 2)]), ("SLAVE", 2)),
        ("SYNC_MASTER", OF_B.promoted("pair:0", 200, 2), ("SYNC_MASTER", 0)),
        ("SYNC_MASTER", Epochs().demoted("h:10912"), ("SLAVE", 1)),
        ("SLAVE", Epochs().promoting(), ("ASYNC_MASTER", 0)),
    ],
)
def test_the_file_of_epochs_has_the_last_word(tmp_path: Path, role: str, known: Epochs, now: tuple[str, int]) -> None:
    config = role_now.effective(config_of(tmp_path, role), known)
    assert (config.broker_role, config.broker_id) == now


def test_epochs_decide_which_master_a_slave_follows(tmp_path: Path) -> None:
    fenced = Epochs().fenced(Fence(1, "pair:2", "10.0.0.2:10912", 1))
    alone, named = config_of(tmp_path, "ASYNC_MASTER"), config_of(tmp_path, "ASYNC_MASTER", namesrvAddr="h:9876")
    assert role_now.effective(alone, fenced).ha_master_address == ("10.0.0.2", 10912)
    assert role_now.effective(named, fenced).ha_master_address is None, "the name servers tell it"
    said = fenced.demoted("[2001:db8::1]:10912")
    assert role_now.effective(named, said).ha_master_address == ("2001:db8::1", 10912)
    slave = config_of(tmp_path, "SLAVE", haMasterAddress="old:10912")
    assert role_now.effective(slave, said).ha_master_address == ("2001:db8::1", 10912)
    careful = config_of(tmp_path, "SLAVE", promotedRole="SYNC_MASTER")
    assert role_now.effective(careful, OF_B).broker_role is BrokerRole.SYNC_MASTER
    with pytest.raises(ConfigError, match="promotedRole=SLAVE"):
        config_of(tmp_path, "SLAVE", promotedRole="SLAVE")


def test_a_copy_of_a_promoted_store_is_not_that_master(tmp_path: Path) -> None:
    own, copy = tmp_path / "own", tmp_path / "copy"
    own.mkdir()
    epochs.write(own, OF_B)
    shutil.copytree(own, copy)

    def role_at(root: Path, role: str, **keys: object) -> BrokerRole:
        return RoleChange(config_of(root, role, haMasterAddress="h:1", **keys)).config_now().broker_role

    assert role_at(own, "SLAVE") is BrokerRole.ASYNC_MASTER
    assert role_at(copy, "SLAVE") is BrokerRole.SLAVE, "as its own file says"
    (line,) = [one for one in of_the_pair(counters_at(tmp_path, 2), str(copy), "SLAVE") if one.reason == "COPY"]
    assert f"`slipstream promote {copy}`" in line.next_step
    own.rename(tmp_path / "moved")
    assert role_at(tmp_path / "moved", "SLAVE") is BrokerRole.ASYNC_MASTER, "the directory that it was, elsewhere"
    epochs.write(copy, epochs.read(copy).following(OF_B.entries))
    assert role_at(copy, "SLAVE") is BrokerRole.SLAVE, "also once it has followed the original"
    epochs.write(copy, epochs.read(copy).promoting())
    shutil.copytree(copy, tmp_path / "copy of it")
    assert role_at(copy, "SLAVE") is BrokerRole.ASYNC_MASTER, "an operator's word, said of this very store"
    assert role_at(tmp_path / "copy of it", "SLAVE") is BrokerRole.SLAVE


def test_a_copy_of_a_masters_store_with_a_masters_file_refuses_with_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    epochs.write(tmp_path / "own", OF_B.promoted("pair:0", 200, 2))
    assert RoleChange(config_of(tmp_path / "own", "SYNC_MASTER")).config_now().broker_role is BrokerRole.SYNC_MASTER
    shutil.copytree(tmp_path / "own", tmp_path / "copy")
    with pytest.raises(StartRefused, match=r"is a copy of the store .* epoch 2; .*slipstream promote "):
        RoleChange(config_of(tmp_path / "copy", "SYNC_MASTER")).config_now()


def test_epochs_of_an_earlier_version_are_believed_and_bound_to_their_place(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    epochs.write(own, OF_B)
    fields = summed_json.read(epochs.path_of(own))
    assert fields is not None
    del fields["place"]
    summed_json.write(epochs.path_of(own), fields)
    change = RoleChange(config_of(own, "SLAVE", haMasterAddress="h:1"))
    assert change.config_now().broker_role is BrokerRole.ASYNC_MASTER
    change.begin(100)
    shutil.copytree(own, tmp_path / "copy")
    copied = RoleChange(config_of(tmp_path / "copy", "SLAVE", haMasterAddress="h:1")).config_now()
    assert copied.broker_role is BrokerRole.SLAVE


def counters_at(directory: Path, own_id: int) -> BrokerCounters:
    counters = BrokerCounters.create(directory / "counters")
    waiting.publish(counters.own_broker_id, own_id)
    return counters


def test_a_promotion_without_room_on_the_disk_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, counters = RoleChange(config_of(tmp_path, "SLAVE")), BrokerCounters.create(tmp_path / "counters")
    change.config_now()
    before = sorted(path.name for path in tmp_path.iterdir())

    def refuse(_fd: int, _start: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(file_io, "reserve", refuse)
        role_request.write(tmp_path, RoleRequest(to_master=False, epoch=3, is_proved=True))
        assert change.is_asked(counters), "a newer master is obeyed"
        for to_master in (False, True):
            role_request.write(tmp_path, RoleRequest(to_master))
            assert not change.is_asked(counters), "the broker goes on"
    assert "no room" in role_request.refusal(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, role_request.REFUSAL])
    role_request.write(tmp_path, RoleRequest(to_master=True))
    assert role_request.refusal(tmp_path) == "", "that was of the request before"
    assert change.is_asked(counters)
    assert not (tmp_path / RESERVE).exists(), "the room is there for what is written now"
    assert change.take(counters) is not None


def test_a_promoted_master_takes_no_messages_before_it_has_asked_where_it_can_ask(tmp_path: Path) -> None:
    for number, (keys, asks) in enumerate([({}, False), ({"namesrvAddr": "127.0.0.1:1"}, True)]):
        root = tmp_path / str(number)
        root.mkdir()
        counters, change = (
            counters_at(root, 2),
            RoleChange(config_of(root, "SLAVE", haMasterAddress="127.0.0.1:1", **keys)),
        )
        epochs.write(root, Epochs().promoting())
        config = change.config_now()
        change.begin(0)
        change.publish(counters, config, ())
        assert (counters.reign.read() == Reign.ASKS, counters.broker_permission.read()) == (asks, 4 if asks else 6)
        again = RoleChange(change.of_file)
        again.config_now()
        again.begin(0)
        (root / "later").mkdir()
        later = counters_at(root / "later", 2)
        again.publish(later, config, ())
        assert later.reign.read() == Reign.SERVES, "a start that begins no reign"


def test_a_replaced_master_without_a_master_to_follow_refuses_with_what_to_type(tmp_path: Path) -> None:
    epochs.write(tmp_path, OF_B)
    with pytest.raises(StartRefused, match=r"may not be a master: .*slipstream demote .*slipstream promote "):
        RoleChange(config_of(tmp_path, "SYNC_MASTER")).config_now()


def test_in_the_middle_of_a_run_it_goes_on_without_a_master_and_says_what_to_type(tmp_path: Path) -> None:
    change = RoleChange(config_of(tmp_path, "SYNC_MASTER"))
    assert change.config_now().broker_role is BrokerRole.SYNC_MASTER
    counters = BrokerCounters.create(tmp_path / "counters")
    assert not change.is_asked(counters)
    waiting.publish(counters.fenced_by_epoch, 3)  # as a sender does, whose slave has proved it
    assert change.is_asked(counters)
    change.take(counters)
    assert change.config_now().broker_role is BrokerRole.SLAVE
    assert not change.is_asked(counters), "a slave that serves slaves has nothing to step down from"
    (line,) = lines_of(of_the_pair(counters, str(tmp_path), "SLAVE"))
    assert "another broker is the master of epoch 3" in line and f"slipstream demote {tmp_path} --master" in line
    divergence.write(tmp_path, Divergence(7, 9, "10.0.0.1:10912", "", "00", "01", 1))
    parted = lines_of(of_the_pair(counters, str(tmp_path), "SLAVE"))[0]
    assert f"`slipstream replica rewind {tmp_path} --with 10.0.0.1:10911`" in parted
    epochs.path_of(tmp_path).write_bytes(b"{}")
    (line,) = lines_of(of_the_pair(counters, str(tmp_path), "SLAVE"))
    assert "not a file of epochs" in line
    assert epoch_of(str(tmp_path)) == 0


def test_a_request_is_taken_once_the_role_before_has_stopped(tmp_path: Path) -> None:
    change, counters = RoleChange(config_of(tmp_path, "SLAVE")), BrokerCounters.create(tmp_path / "counters")
    assert change.config_now().broker_role is BrokerRole.SLAVE
    assert not change.is_asked(counters)
    assert change.take(counters) is None
    role_request.write(tmp_path, RoleRequest(to_master=True, tables_from="h:10911", epoch=5))
    assert change.is_asked(counters)
    assert change.take(counters) is not None
    assert epochs.read(tmp_path) == Epochs(), "nothing is said before the log is whole"
    assert change.config_now().broker_role is BrokerRole.ASYNC_MASTER
    assert change.tables_from == "h:10911"
    change.begin(4711)
    assert [(one.epoch, one.start_offset, one.broker) for one in epochs.read(tmp_path).entries] == [(5, 4711, "pair:2")]
    change.begin(5000)
    assert epochs.read(tmp_path).last_epoch == 5, "one promotion, one epoch"
    role_request.write(tmp_path, RoleRequest(to_master=False, master="h:10912", epoch=6, broker="pair:0"))
    change.take(counters)
    known = epochs.read(tmp_path)
    assert (known.role, known.is_fenced, known.next_epoch) == (SaidRole.SLAVE, True, 7)
    assert change.config_now().ha_master_address == ("h", 10912)
    (tmp_path / role_request.NAME).write_bytes(b"{}")
    assert change.take(counters) is None, "what is no request asks for nothing"


@pytest.fixture
def names() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("their_epoch", "ours", "becomes"),
    [
        (1, Epochs(), "SLAVE"),
        (0, Epochs(), "SYNC_MASTER"),
        (1, Epochs().promoted("pair:0", 50, 1), "SLAVE"),  # one epoch, two brokers: who comes second is none
        (1, OF_B.promoted("pair:0", 200, 2), "SYNC_MASTER"),
    ],
)
def test_a_master_asks_who_else_is_one_when_it_starts(
    tmp_path: Path, names: Serving, their_epoch: int, ours: Epochs, becomes: str
) -> None:
    other = SmallLog(tmp_path / "other", SEGMENT_BYTES)
    other.append("topic")
    if their_epoch:
        epochs.write(other.root, OF_B)
    served = ServedLog(other.root, tmp_path / "regions", SEGMENT_BYTES)
    waiting.publish(served.counters.own_broker_id, 2)
    who = {
        "clusterName": "DefaultCluster", "brokerName": "pair", "brokerId": "0", "brokerAddr": served.address,
        "haServerAddr": "127.0.0.1:10912",
    }  # fmt: skip
    (tmp_path / "own").mkdir()
    epochs.write(tmp_path / "own", ours)
    name_server = RemotingClient(f"127.0.0.1:{names.port}")
    try:
        name_server.ask(RequestCode.REGISTER_BROKER, who)
        change = RoleChange(config_of(tmp_path / "own", "SYNC_MASTER", namesrvAddr=f"127.0.0.1:{names.port}"))
        assert change.config_now().broker_role == becomes
        fence = epochs.read(tmp_path / "own").fenced_by
        assert (fence and fence.epoch) == (their_epoch if becomes == "SLAVE" else None)
        assert change.config_now().broker_role == becomes, "asked again, the same"
    finally:
        served.stop()
        name_server.close()
    assert RoleChange(change.of_file).config_now().broker_role == becomes, "it is remembered"


def test_offsets_that_are_taken_over_never_fall() -> None:
    identity = Identity(LINES["4.9"], "cluster", "pair", 8, True, True)
    table = {"offsetTable": {"t@g": {0: 10, 1: 20}, "t@only": {0: 3}}}
    metadata = Metadata(identity, {CONSUMER_OFFSETS: table}, 1)
    assert at_once(raise_offsets(metadata, b'{"offsetTable":{"t@g":{0:15,1:5,2:7},"u@g":{0:1}}}'))
    assert metadata.offsets == {("t", "g"): {0: 15, 1: 20, 2: 7}, ("t", "only"): {0: 3}, ("u", "g"): {0: 1}}
    assert not at_once(raise_offsets(metadata, b'{"offsetTable":{"t@g":{0:1}}}'))
