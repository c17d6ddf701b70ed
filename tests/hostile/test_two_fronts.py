"""What the broker asks of clients, where one front has who asks and the other one has who is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.end_transaction import Decision
from engine.shared_memory.cursors import BrokerCounters
from ipc.clock import wall_ms
from tests.fuzz.attack import failures_in
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.deciding import Deciding, Place
from tests.harness.front_client import FrontClient
from tests.hostile.test_front import (
    GROUP,
    SMALL,
    TOPIC,
    answer_to,
    await_fronts,
    connected,
    counters_of,
    heartbeat,
    send,
    sent,
)
from tools.common.local_broker import LocalBroker

SETTINGS = {
    **SMALL,
    "frontProcesses": 2,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 300,
    "compat": "4.9",
    "transactionCheckMax": 1_000_000,  # on a slow machine it is asked about for long
}
STATUS = {"messageQueueTable": {json.dumps({"brokerName": "b", "queueId": 0, "topic": TOPIC}): 3}}
MOST = 64  # connections, until both fronts have one
Made = TypeVar("Made")


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def front_of(counters: BrokerCounters, client: FrontClient) -> list[int]:
    """Who has its other end; nobody before it was accepted."""
    port = client.sock.getsockname()[1]
    for number in range(2):
        for each in psutil.Process(counters.pids[f"front.{number}"].read()).net_connections():
            if each.raddr and each.raddr.port == port:
                return [number]
    return []


def on_each(counters: BrokerCounters, make: Callable[[], Made]) -> list[Made]:
    """Two of what `make` connects, one at either front: the kernel deals connections out."""
    made: dict[int, Made] = {}
    for _ in range(MOST):
        one, client = make(), FrontClient.open[-1]
        number = await_that(lambda client=client: front_of(counters, client), "it is accepted")[0]  # type: ignore[misc]
        if made.setdefault(number, one) is not one:
            FrontClient.open.pop().sock.close()
        if len(made) == 2:
            return [made[0], made[1]]
    raise AssertionError("all connections came to one front")


def pushed(client: FrontClient, code: int) -> RemotingCommand:
    """The next push of that kind."""
    while (said := client.take()).code != code or said.is_response:
        pass
    return said


def both_say(asking: FrontClient, members: list[FrontClient]) -> bool:
    """Whether a question for the status has both members' answers: a broker waits for some seconds, as RocketMQ."""
    fields = {"topic": TOPIC, "group": GROUP, "clientAddr": ""}
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    asking.send(RemotingCommand(code, 62, ext_fields=fields, version=407))
    for member in members:
        question = pushed(member, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        body = json.dumps(STATUS).encode()
        member.send(RemotingCommand(0, question.opaque, flag=1, ext_fields={}, body=body, version=407))
    while (answer := asking.take()).opaque != 62 or not answer.is_response:
        pass
    assert answer.code == ResponseCode.SUCCESS
    text = bytes(answer.body).decode()
    return '"c0"' in text and '"c1"' in text and text.count(":3") == 2


def test_a_reset_and_a_question_for_the_status_reach_members_at_either_front(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        await_fronts(broker, 2)
        counters, first = counters_of(broker), connected(broker)
        await_that(lambda: sent(first, b"x"), "it is taken")
        members = on_each(counters, lambda: connected(broker))
        for number, member in enumerate(members):
            assert answer_to(member, heartbeat(f"c{number}")).code == ResponseCode.SUCCESS
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
        answer_to(first, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, 60, ext_fields=commit, version=407))
        for asking in on_each(counters, lambda: connected(broker)):
            fields = {"topic": TOPIC, "group": GROUP, "timestamp": "1", "isForce": "true"}
            request = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 61, ext_fields=fields, version=407)
            answer = answer_to(asking, request)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            for member in members:
                reset = pushed(member, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
                assert bytes(reset.body) == bytes(answer.body) and b'"queueId":0' in bytes(reset.body)
            await_that(partial(both_say, asking, members), "both are asked, and heard in time")
        assert failures_in(broker.log) == ()


def test_a_producer_at_the_other_front_is_asked_about_a_half_message_and_ends_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        await_fronts(broker, 2)
        counters, first = counters_of(broker), connected(broker)
        await_that(lambda: sent(first, b"x"), "it is taken")
        deciding = on_each(counters, lambda: Deciding(broker.port))
        strangers = on_each(counters, lambda: connected(broker))
        FrontClient.open.remove(gone := deciding[0]._client)
        gone.sock.close()  # who is left of the group is at front 1
        half = "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01K%d\x02"
        for number, stranger in enumerate(strangers):  # a producer of the group, but not one that says so
            answer = answer_to(stranger, send(b"half %d" % number, f="4", g=str(wall_ms()), i=half % number))
            assert answer.code == ResponseCode.SUCCESS
        ended: set[Place] = set()
        while len(ended) < len(strangers):  # who is slow is asked about the first one again
            if (place := deciding[1].asked()) not in ended:
                assert deciding[1].end(place, Decision.COMMIT, is_asked=True).code == ResponseCode.SUCCESS
                ended.add(place)

        def committed() -> list[bytes]:
            everything = messages_of(broker.store, counters.max_physical_offset.read())
            return sorted(bytes(one.body) for one in everything if one.topic == TOPIC and one.body != b"x")

        await_that(lambda: committed() == [b"half 0", b"half 1"], "both are committed, once")
        assert failures_in(broker.log) == ()
