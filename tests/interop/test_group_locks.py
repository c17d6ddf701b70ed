"""Locks of queues with lockInStrictMode: a master asks the replicas of its group, and needs most of them.

A real 5.3.3 master and ours, each with a slave of the other kind, are asked the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.harness.conditions import await_that
from tests.interop.needs import need
from tests.interop.remoting import Client
from tests.interop.rocketmq import NameServer
from tests.interop.sides import OurSide, RealSide, Side, registered

VERSION, SECONDS, QUEUES = "5.3.3", 180, 4
STRICT = {"brokerName": "broker-a", "lockInStrictMode": "true", "totalReplicas": 2}
KINDS = {"real": partial(RealSide, enableSlaveActingMaster="true"), "ours": OurSide}


def ask(side: Side, code: int, client: str, *queues: int, only: bool = False) -> list[int]:
    """Lock or unlock these queues; those that the answer names."""
    body = {
        "consumerGroup": "g",
        "clientId": client,
        "onlyThisBroker": only,
        "mqSet": [{"brokerName": "broker-a", "topic": "t", "queueId": queue} for queue in queues],
    }
    with Client(side.port) as asking:
        header, answer = asking.exchange(code, body=json.dumps(body).encode())
    assert header["code"] == 0, header
    return [queue["queueId"] for queue in json.loads(answer)["lockOKMQSet"]] if answer else []


def granted(side: Side, client: str, *queues: int) -> list[int]:
    """What it is given once all of the group answer in time: a master waits a second for them."""
    return await_that(lambda: ask(side, 41, client, *queues), "the group answers in time", SECONDS)


def story(master: Side, slave: Side) -> Iterator[tuple[str, object]]:
    """What the master answers while its slave gives a lock to somebody else, takes it back, hangs, dies."""
    every = range(QUEUES)
    await_that(lambda: ask(master, 41, "one", 0) == [0], "the master knows its group", SECONDS)
    yield "the first of all", granted(master, "one", *every)
    yield "another one", ask(master, 41, "two", *every)
    yield "the slave's own word", ask(slave, 41, "two", *every, only=True)
    ask(master, 42, "one", 0, 1)
    # A real one says it to all of its group by requests, to itself, too, and answers before they came.
    await_that(lambda: ask(master, 41, "probe", 1, only=True) == [1], "the master gave them back", SECONDS)
    ask(master, 42, "probe", 1, only=True)
    await_that(lambda: ask(slave, 41, "two", 0, only=True) == [0], "the slave gave it back, too", SECONDS)
    yield "one that only the slave gave away", granted(master, "one", *every)
    yield "nor is it the other's", ask(master, 41, "two", 0)
    ask(slave, 42, "two", 0, only=True)
    yield "until it is given back", ask(master, 41, "two", 0, 1)
    slave.freeze()
    yield "without the slave's word", ask(master, 41, "one", 2)
    yield "the master's own", ask(master, 41, "one", 2, 3, only=True)
    slave.kill()
    yield "without the slave", ask(master, 41, "one", 3)


@pytest.mark.interop
def test_a_group_of_brokers_locks_together(tmp_path: Path) -> None:
    need([VERSION])
    seen: dict[str, dict[str, object]] = {}
    for kind, other in (("real", "ours"), ("ours", "real"), ("ours", "ours")):
        home = tmp_path / f"{kind}-{other}"
        with ExitStack() as stack:
            names = stack.enter_context(NameServer(home / "names", VERSION))
            settings = {**STRICT, "namesrvAddr": names.address}
            master: Side = KINDS[kind](home / "master", VERSION, brokerRole="ASYNC_MASTER", **settings)
            slave: Side = KINDS[other](home / "slave", VERSION, brokerRole="SLAVE", brokerId=1, **settings)
            for side in (master, slave):
                side.start()
                stack.callback(side.kill)
            await_that(lambda: len(registered(names.address)) == 2, "both are registered", SECONDS)  # noqa: B023
            seen[f"{kind} with {other}"] = dict(story(master, slave))
    real = seen.pop("real with ours")
    assert [real["the first of all"], real["another one"]] == [[2, 1, 3, 0], []] and real["without the slave"] == []
    assert seen == dict.fromkeys(seen, real)
