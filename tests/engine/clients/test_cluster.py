"""How a client asks name servers: the one that answers is kept."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from engine.clients.cluster import Cluster
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerUnreachable


def test_a_name_server_that_is_gone_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()

    class Answering:
        def __init__(self, address: str) -> None:
            self._address = address

        async def ask(self, *_request: object) -> RemotingCommand:
            asked[self._address] += 1
            if self._address.startswith("gone"):
                raise PeerUnreachable(self._address, "nobody listens")
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST)

    monkeypatch.setattr(Cluster, "to", lambda _self, address: Answering(address))
    cluster = Cluster("gone1:1;here:1; gone2:1", None, 1.0, None)
    assert [asyncio.run(cluster.route("t")) for _ in range(10)] == [None] * 10
    assert asked["here:1"] == 10 and asked["gone1:1"] <= 1 and asked["gone2:1"] <= 1
    assert cluster.name_servers == "gone1:1;here:1;gone2:1"


def test_clients_ask_different_name_servers_first() -> None:
    names = ";".join(f"n{number}:1" for number in range(8))
    assert len({Cluster(names, None, 1.0, None)._names[0] for _ in range(200)}) > 1
