"""A machine's clock that is set by an hour while clients are there: what lasts for a time lasts as long as before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.end_transaction import Decision
from store.message.record import decode
from tests.fuzz.attack import failures_in
from tests.harness.audit import messages_of
from tests.harness.conditions import SECONDS, await_that
from tests.harness.deciding import Deciding
from tests.harness.front_client import FrontClient
from tests.harness.shifted_clock import ShiftedClock
from tests.hostile.test_front import GROUP, SMALL, TOPIC, answer_to, connected, counters_of, heartbeat, send, sent
from tools.common.local_broker import LocalBroker

HOUR_S, DELAY_S = 3600, 2
SETTINGS = {
    **SMALL,
    "messageDelayLevel": f"1h {DELAY_S}s",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 300,
    "brokerFastFailureEnable": "true",
    "osPageCacheBusyTimeOutMills": 60_000,
    "waitTimeMillsInSendQueue": 60_000,
    "transactionCheckMax": 1_000_000,  # on a slow machine it is asked about for long
}
WAITS, WAITS_AN_HOUR = "DELAY\x012\x02", "DELAY\x011\x02"
QUEUE = {"topic": TOPIC, "brokerName": "b", "queueId": 0}


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def locked(client: FrontClient, name: str) -> bool:
    """Whether the queue is this client's."""
    body = json.dumps({"consumerGroup": GROUP, "clientId": name, "mqSet": [QUEUE]}).encode()
    answer = answer_to(client, RemotingCommand(RequestCode.LOCK_BATCH_MQ, 50, ext_fields={}, body=body, version=407))
    assert answer.code == ResponseCode.SUCCESS
    return bool(json.loads(bytes(answer.body))["lockOKMQSet"])


def hold(client: FrontClient, offset: int) -> None:
    """A pull of what is not there yet."""
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "600000", "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    client.send(RemotingCommand(RequestCode.PULL_MESSAGE, 51, ext_fields=fields, version=407))


def first_of_pull(client: FrontClient) -> bytes:
    """The body of the first message that a held pull is answered with."""
    client.sock.settimeout(SECONDS)
    while (answer := client.take()).opaque != 51 or not answer.is_response:
        pass
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return bytes(decode(answer.body, 0).body)


def members(client: FrontClient) -> set[str]:
    request = RemotingCommand(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, 52, ext_fields={"consumerGroup": GROUP}, version=407
    )
    return set(json.loads(bytes(answer_to(client, request).body))["consumerIdList"])


@pytest.mark.parametrize(("compat", "shift_s"), [("4.9", -HOUR_S), ("5", -HOUR_S), ("5", HOUR_S)])
def test_locks_members_held_pulls_delays_and_checks_last_as_long_as_ever(
    tmp_path: Path, compat: str, shift_s: int
) -> None:
    clock = ShiftedClock(tmp_path)
    with LocalBroker(tmp_path / "b", inside=clock.command, compat=compat, **SETTINGS) as broker:
        clients, counters = [connected(broker), connected(broker)], counters_of(broker)
        for number, client in enumerate(clients):
            await_that(lambda client=client: sent(client, b"first"), "it is taken")  # type: ignore[misc]
            answer_to(client, heartbeat(f"c{number}"))
        assert locked(clients[0], "c0")
        puller, producer = connected(broker), Deciding(broker.port)
        await_that(
            lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched"
        )
        end = len(messages_of(broker.store, counters.max_physical_offset.read()))
        hold(puller, end)
        assert answer_to(clients[0], send(b"in an hour", i=WAITS_AN_HOUR)).code == ResponseCode.SUCCESS
        producer.half("Halves")
        clock.set(shift_s)
        assert not locked(clients[1], "c1") and locked(clients[0], "c0")
        answer_to(clients[0], heartbeat("c0"))
        assert producer.end(producer.asked(), Decision.ROLLBACK, is_asked=True).code == ResponseCode.SUCCESS
        began, delivered = time.monotonic(), counters.delay.delivered.read()
        assert answer_to(clients[0], send(b"delayed", i=WAITS)).code == ResponseCode.SUCCESS
        came = first_of_pull(puller)
        if shift_s > 0:
            assert came == b"in an hour", "it is an hour later by the clock that entries speak of"
        else:
            assert came == b"delayed" and time.monotonic() - began >= DELAY_S
            await_that(lambda: counters.delay.delivered.read() > delivered, "it is counted behind that")
            assert counters.delay.delivered.read() == delivered + 1, "of an hour nothing is over"
        assert all(sent(clients[0], b"after") for _ in range(50))
        assert members(clients[1]) == {"c0", "c1"}, "nobody was silent for two minutes"
        assert failures_in(broker.log) == ()
        assert not [name for name, count in counters.restarts.items() if count.read()]
