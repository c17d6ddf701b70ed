"""Who is believed to be the newer master: one that knows the secret, or whose log goes on from ours; no stranger."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import StartRefused
from engine.protocol.ha.reign import Standing, Verdict
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers import fencing
from engine.remoting.sockets import log_answers
from engine.remoting.sockets.client import RemotingClient
from engine.role_change import RoleChange
from engine.settings.config import BrokerConfig, BrokerRole, from_mapping
from ipc import waiting
from store.notes import epochs, peers
from store.notes.epochs import Epochs
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog
from tests.harness.served_names import Serving

SECRET, OTHER = b"of this pair alone, and nobody else's", b"a secret that is not that of this pair"


@pytest.fixture
def names() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


def log_of(root: Path, count: int, body: bytes = b"body") -> SmallLog:
    log = SmallLog(root, SEGMENT_BYTES)
    for _ in range(count):
        log.append(body=body)
    return log


@contextmanager
def newer_master(tmp_path: Path, log: SmallLog, start: int, **settings: object) -> Iterator[ServedLog]:
    """Another broker of the name, with an epoch above all others, whose reign begins there."""
    epochs.write(log.root, Epochs().promoted("pair:2", start, 1))
    served = ServedLog(log.root, tmp_path / "regions", SEGMENT_BYTES, **settings)
    waiting.publish(served.counters.own_broker_id, 2)
    try:
        yield served
    finally:
        served.stop()


@contextmanager
def registered(names: Serving, address: str) -> Iterator[dict[str, object]]:
    """As anybody can: the name server asks for no proof. What the file of a broker then says of that name server."""
    with RemotingClient(f"127.0.0.1:{names.port}") as client:  # its end would be that of the registration
        client.ask(RequestCode.REGISTER_BROKER, {
            "clusterName": "DefaultCluster", "brokerName": "pair", "brokerId": "0", "brokerAddr": address,
            "haServerAddr": "127.0.0.1:10912",
        })  # fmt: skip
        yield {"namesrvAddr": f"127.0.0.1:{names.port}"}


def own_config(root: Path, **keys: object) -> BrokerConfig:
    return from_mapping(
        {
            "storePathRootDir": root,
            "brokerName": "pair",
            "brokerIP1": "127.0.0.1",
            "brokerRole": "SYNC_MASTER",
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            **keys,
        }
    )


def secret_file(tmp_path: Path, name: str, content: bytes | None) -> dict[str, object]:
    if content is None:
        return {}
    (tmp_path / name).write_bytes(content)
    return {"haSecretFile": tmp_path / name}


@pytest.mark.parametrize("its_log", ["ours and more", "another", "empty"])
@pytest.mark.parametrize(
    ("own", "its"), [(None, None), (None, SECRET), (SECRET, SECRET), (SECRET, OTHER), (SECRET, None)]
)
def test_a_registered_newer_master_is_believed_by_its_secret_or_by_its_log(
    tmp_path: Path, names: Serving, its_log: str, own: bytes | None, its: bytes | None
) -> None:
    mine = log_of(tmp_path / "own", 20)
    shutil.copytree(mine.root, tmp_path / "its")
    other = {
        "ours and more": lambda: log_of(tmp_path / "its", 25),
        "another": lambda: log_of(tmp_path / "alien", 25, b"x"),
        "empty": lambda: log_of(tmp_path / "nothing", 0),
    }[its_log]()
    is_believed = its == own if own else its_log == "ours and more"
    with (
        newer_master(tmp_path, other, min(mine.end, other.end), **secret_file(tmp_path, "its secret", its)) as served,
        registered(names, served.address) as at,
    ):
        keys = {**at, **secret_file(tmp_path, "own secret", own)}
        change = RoleChange(own_config(tmp_path / "own", **keys))
        role = change.config_now().broker_role
        assert (role is BrokerRole.SLAVE) == is_believed
        fence = epochs.read(tmp_path / "own").fenced_by
        assert (fence is not None) == is_believed
        (found,) = fencing.judged(change._circle(), Standing((), is_master=True, is_confirmed=True))
        assert found.verdict == (Verdict.YIELD if is_believed else Verdict.UNPROVEN)


def test_a_broker_that_it_has_met_is_asked_without_a_name_server(tmp_path: Path) -> None:
    mine = log_of(tmp_path / "own", 20)
    shutil.copytree(mine.root, tmp_path / "its")
    secret = secret_file(tmp_path, "secret", SECRET)
    with newer_master(tmp_path, log_of(tmp_path / "its", 25), mine.end, **secret) as served:
        peers.add(tmp_path / "own", ["127.0.0.1:1", served.address])
        assert RoleChange(own_config(tmp_path / "own", **secret)).config_now().broker_role is BrokerRole.SLAVE
        epochs.write(tmp_path / "own", Epochs())
        kept = RoleChange(own_config(tmp_path / "own")).config_now().broker_role
        assert kept is BrokerRole.SYNC_MASTER, "with neither a name server nor a secret, a person decides"


def test_a_broker_does_not_answer_its_own_question_when_it_is_handed_on(tmp_path: Path) -> None:
    log = log_of(tmp_path / "own", 20)
    served = ServedLog(log.root, tmp_path / "regions", SEGMENT_BYTES)
    try:
        config = own_config(tmp_path / "own")
        own_log = fencing.log_at_rest(config)
        circle = fencing.circle_of(config, None, lambda: own_log._replace(is_asked=log_answers.OWN_QUESTIONS))
        (one,) = fencing.others(circle._replace(peers=(served.address,)))
        own = Standing((), is_master=True, is_confirmed=True)
        assert not fencing.is_proved(circle, own, own, one), "the process that asks is the one that would answer"
        assert fencing.is_proved(circle._replace(log=lambda: own_log), own, own, one), "asked by somebody else"
        assert not log_answers.OWN_QUESTIONS
    finally:
        served.stop()


def test_a_stopped_slave_is_not_promoted_beside_a_living_master(tmp_path: Path, names: Serving) -> None:
    other = log_of(tmp_path / "its", 25)
    served = ServedLog(other.root, tmp_path / "regions", SEGMENT_BYTES)  # of no epoch: the master as ever
    with registered(names, served.address) as at:
        keys = {**at, "brokerRole": "SLAVE", "brokerId": 1}
        log_of(tmp_path / "own", 20)
        epochs.write(tmp_path / "own", Epochs().promoting())
        with pytest.raises(StartRefused, match=rf"its master {served.address} is running"):
            RoleChange(own_config(tmp_path / "own", **keys)).config_now()
        epochs.write(tmp_path / "own", Epochs().promoting(is_forced=True))
        assert RoleChange(own_config(tmp_path / "own", **keys)).config_now().broker_role is BrokerRole.ASYNC_MASTER
        served.stop()
    epochs.write(tmp_path / "own", Epochs().promoting())
    assert RoleChange(own_config(tmp_path / "own", **keys)).config_now().broker_role is BrokerRole.ASYNC_MASTER
