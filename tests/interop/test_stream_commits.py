"""A stream's offsets in a consumer group of RocketMQ's own broker, and of ours, as its own mqadmin shows them.

Over TLS, too, at RocketMQ's broker and name server that take nothing else.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode
from spark_bridge.options.views import CommitOptions
from spark_bridge.plan.stores import StoreAt
from spark_bridge.replica import name_servers
from spark_bridge.replica.name_servers import NameServersUnreachable, find_replicas, master_of
from spark_bridge.replica.remoting import NoCommonTls
from spark_bridge.replica.tls import tls_of
from spark_bridge.stream import group_commits
from spark_bridge.stream.group_commits import GroupCommits
from spark_bridge.stream.offsets import Offsets, QueueKey
from tests.harness.certificates import Authority, tls_file
from tests.harness.conditions import await_that
from tests.interop import needs, rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import MqAdmin, NameServer, RealClient, RocketMQBroker
from tests.interop.test_client_metrics import await_in_queue
from tests.interop.test_name_server import consumed
from tests.interop.test_tls import TlsBroker, both_sides, over_tls
from tools.common.local_broker import LocalBroker

QUEUES, MESSAGES, SECONDS = 4, 10, 180.0


def all_at(offset: int) -> Offsets:
    return {QueueKey("", "t", queue_id): offset for queue_id in range(QUEUES)}


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["RocketMQ's", "ours"])
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_mqadmin_shows_the_lag_of_a_stream(
    version: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.need([version])
    monkeypatch.setattr(group_commits, "ROUND_S", SECONDS)
    monkeypatch.setattr(group_commits, "SETTLED_S", SECONDS)
    monkeypatch.setattr(name_servers, "TIMEOUT_S", SECONDS)
    compat = "5" if rocketmq.is_five(version) else "4.9"
    sizes = {"mappedFileSizeCommitLog": 1 << 20, "brokerName": "broker-a"}
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(tmp_path / "names", version))
        made: LocalBroker | RocketMQBroker = (
            LocalBroker(tmp_path / "b", namesrvAddr=names.address, compat=compat, **sizes)
            if kind == "ours"
            else RocketMQBroker(tmp_path / "b", version, namesrvAddr=names.address, **sizes)
        )
        broker: LocalBroker | RocketMQBroker = stack.enter_context(made)
        mqadmin = stack.enter_context(MqAdmin(tmp_path / "admin", names))
        with Client(broker.port) as client:
            for number in range(MESSAGES * QUEUES):
                client.send("t", number % QUEUES, b"%d" % number)
            for queue_id in range(QUEUES):
                await_in_queue(client, "t", queue_id, MESSAGES)
        # Either broker is ready before it is registered, and one of RocketMQ's makes a topic without waiting for that.
        await_that(lambda: _is_known(names.address), "the name server knows the broker", seconds=SECONDS)
        commits = GroupCommits(CommitOptions("report"), (names.address,))
        commits.done(all_at(7), {"": StoreAt(str(broker.store), "broker-a")})
        commits.settle(SECONDS)
        assert commits.figures == {"queues": QUEUES, "failures": 0, "heldBack": 0}

        def total() -> bool:
            return "Diff Total: 12 " in " ".join(mqadmin.said("consumerProgress", "-g", "report").split()) + " "

        await_that(total, "the retry topic is registered", SECONDS)
        again = GroupCommits(CommitOptions("report", {"": f"127.0.0.1:{broker.port}"}), ())
        again.done({**all_at(3), QueueKey("", "t", 1): 9}, {"": StoreAt(str(broker.store), "broker-a")})
        again.settle(SECONDS)
        assert again.figures == {"queues": 1, "failures": 0, "heldBack": 3}
        for one in (commits, again):
            one.close()


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_rocketmqs_broker_and_name_server_that_enforce_tls_take_a_streams_offsets(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.need([version])
    for name in ("ROUND_S", "SETTLED_S"):
        monkeypatch.setattr(group_commits, name, SECONDS)
    monkeypatch.setattr(name_servers, "TIMEOUT_S", SECONDS)
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "somebody else")
    path = both_sides(tmp_path / "tls.properties", authority.issue("node"), authority)
    names = NameServer(tmp_path / "names", version)
    names.properties = ["-Dtls.server.mode=enforcing", f"-Dtls.config.file={path}"]
    with names:
        broker = TlsBroker(tmp_path / "b", version, namesrvAddr=names.address, brokerName="broker-a")
        client = RealClient(tmp_path / "client", names)
        broker.properties, client.properties = ["-Dtls.server.mode=enforcing", *over_tls(path)], over_tls(path)
        mine = tls_file(tmp_path / "spark.properties", client_trustCertPath=authority.certificate)
        tls = tls_of(str(mine))
        with broker, client:
            topics = map("mine-{}".format, itertools.count())  # what came before an error is in another one
            sent = await_that(lambda: _sent(client, next(topics)), "the broker is known, and takes messages", SECONDS)
            assert master_of([names.address], "broker-a", tls) == f"127.0.0.1:{broker.port}"
            roots, missing = find_replicas([names.address], tls)
            assert ([Path(root) for root in roots], missing) == ([Path(broker.store)], [])
            at = {"": StoreAt(str(broker.store), "broker-a")}
            offsets = {QueueKey("", topic, queue_id): 1 for topic, queue_id in sent}
            commits = GroupCommits(CommitOptions("report", tls_config_file=str(mine)), (names.address,))
            commits.done(offsets, at)
            commits.settle(SECONDS)
            commits.close()
            assert commits.figures == {"queues": len(offsets), "failures": 0, "heldBack": 0}
            again = GroupCommits(CommitOptions("report", tls_config_file=str(mine)), (names.address,))
            again.done(dict.fromkeys(offsets, 0), at)
            again.settle(SECONDS)
            again.close()
            assert again.figures["heldBack"] == len(offsets), "the broker remembers"
            with pytest.raises(NameServersUnreachable, match=r"if it needs TLS, give a tls\.properties"):
                find_replicas([names.address])
            wrong = tls_file(tmp_path / "wrong.properties", client_trustCertPath=stranger.certificate)
            with pytest.raises(NameServersUnreachable, match="certificate is not accepted"):
                find_replicas([names.address], tls_of(str(wrong)))
            with pytest.raises(NoCommonTls, match="certificate is not accepted"):
                name_servers.ask(f"127.0.0.1:{broker.port}", RequestCode.GET_BROKER_CONFIG, tls_of(str(wrong)))


def _is_known(names: str) -> bool:
    """Whether the name server knows the broker's master."""
    try:
        return bool(master_of([names], "broker-a"))
    except ValueError:
        return False


def _sent(client: RealClient, topic: str) -> set[tuple[str, int]]:
    """Queues that have a message each, at least; none before the broker is known and has put all into its queues."""
    client.tell("produce", topic=topic, first=0, count=20)
    lines, error = client.rest()
    if error is not None or len(lines) != 20:
        return set()
    await_that(lambda: consumed(client, topic) == 20, "all are in their queues", SECONDS)
    return {(topic, int(line["queueId"])) for line in lines}
