"""A clients role that has just begun, while its front has not said yet who is there: nobody is told that nobody is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import LENGTH_BYTES, RemotingCommand, encode
from engine.remoting.clients import Clients
from engine.remoting.links import exchange
from engine.remoting.links.exchange import Kind, Pipe
from engine.remoting.processors import client_processor
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from tests.harness.clients_turns import turn_until

NUMBER = 5  # of a connection


@contextmanager
def begun(store: Path, region_dir: Path) -> Iterator[tuple[Clients, Pipe]]:
    """The role, and its front's end of the pipe."""
    config = from_mapping({"storePathRootDir": store, "regionPath": region_dir, "brokerName": "a", "listenPort": 12345})
    counters = BrokerCounters.create(region_dir / "counters")
    live_settings.publish(counters, config)
    exchange.create(region_dir, 1)
    QueueEnds.create(region_dir, {}).close()
    bells = exchange.Bells.make(1)
    server, pipe = Clients(config, counters, bells), Pipe(region_dir, 0, is_front=True, bells=bells)
    try:
        yield server, pipe
    finally:
        server.close()
        pipe.close()
        bells.close()


def heartbeat(group: str) -> bytes:
    who = {"clientID": "p", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    return encode(RemotingCommand(RequestCode.HEART_BEAT, 1, body=json.dumps(who).encode()))[LENGTH_BYTES:]


def test_a_producer_is_looked_for_once_all_who_were_there_are_known(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_processor, "REPLAY_SECONDS", 600.0)
    with begun(store_dir, region_dir) as (server, pipe):
        asked = {"g": {"group": "g"}, "none": {"group": "none"}}
        answers = {name: server.answer_question("find_producer", fields) for name, fields in asked.items()}
        client = server.answer_question("find_client", {"clientId": "p"})
        pipe.send(Kind.OPENED, NUMBER, {"ip": "127.0.0.1", "port": 1})
        pipe.send(Kind.REPLAY, NUMBER, heartbeat("g"))
        pipe.send(Kind.REPLAYED)
        futures = [*answers.values(), client]
        assert all(isinstance(future, asyncio.Future) for future in futures), "nothing is said before"
        turn_until(server, lambda: all(future.done() for future in futures if isinstance(future, asyncio.Future)))
        said = [future.result() for future in futures if isinstance(future, asyncio.Future)]
        assert said == [{"channel": NUMBER}, {"channel": None}, {"channel": NUMBER}]
        assert server.answer_question("find_producer", asked["g"]) == {"channel": NUMBER}


def test_fronts_that_say_nothing_are_waited_for_no_longer_than_a_while(store_dir: Path, region_dir: Path) -> None:
    with begun(store_dir, region_dir) as (server, _pipe):
        answer = server.answer_question("find_producer", {"group": "g"})
        assert isinstance(answer, asyncio.Future)
        turn_until(server, answer.done)
        assert answer.result() == {"channel": None}
