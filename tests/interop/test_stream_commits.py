"""A stream's offsets in a consumer group of RocketMQ's own broker, and of ours, as its own mqadmin shows them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_bridge.options.views import CommitOptions
from spark_bridge.plan.stores import StoreAt
from spark_bridge.stream import group_commits
from spark_bridge.stream.group_commits import GroupCommits
from spark_bridge.stream.offsets import Offsets, QueueKey
from tests.harness.conditions import await_that
from tests.interop import needs, rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import MqAdmin, NameServer, RocketMQBroker
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
