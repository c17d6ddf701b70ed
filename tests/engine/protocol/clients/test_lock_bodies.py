"""Requests for locks between brokers, and how many of them must have given one."""

from __future__ import annotations

import json
import random

import pytest

from engine.protocol.clients import lock_bodies
from engine.protocol.remoting.places import Place
from store.errors import MalformedData

QUEUES = [Place("t", "a", number) for number in range(6)]


def test_what_one_broker_asks_another_understands() -> None:
    asked = lock_bodies.request_of(lock_bodies.request_body("g", "client", QUEUES[:3], only_this_broker=True))
    assert asked == ("g", "client", QUEUES[:3], True)
    said = lock_bodies.request_of(json.dumps({"consumerGroup": "g", "clientId": "client"}).encode())
    assert said == ("g", "client", [], False), "a client of 4.9 does not say that"


def test_an_answer_about_locked_queues_is_read_back() -> None:
    value = lock_bodies.answer_value(QUEUES)
    assert sorted(lock_bodies.locked_of(json.dumps(value).encode())) == QUEUES
    assert lock_bodies.locked_of(b"{}") == []


@pytest.mark.parametrize("body", [b"[]", b'{"lockOKMQSet":5}', b'{"lockOKMQSet":[5]}', b'{"lockOKMQSet":[{}]}', b"{"])
def test_nonsense_of_another_broker_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedData):
        lock_bodies.locked_of(body)


def test_a_queue_is_the_clients_where_enough_brokers_gave_it() -> None:
    draw = random.Random(14)
    for _case in range(300):
        own = draw.sample(QUEUES, draw.randint(0, 6))
        theirs = [[draw.choice(QUEUES) for _ in range(draw.randint(0, 9))] for _ in range(draw.randint(0, 4))]
        quorum = draw.randint(1, 5)
        counts = {queue: 1 + len([locked for locked in theirs if queue in locked]) for queue in own}
        expected = [queue for queue in own if counts[queue] >= quorum]
        assert lock_bodies.by_quorum(own, theirs, quorum) == expected
