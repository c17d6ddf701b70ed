"""A front and whoever plays the clients role: what is handed on, pushed, told again after a death, and bounded."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.front.connections import reception
from engine.front.front import Front
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize, encode
from engine.remoting.links import exchange
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters, Serving
from engine.shared_memory.queue_ends import QueueEnds
from tests.harness import played_clients, served_front
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient as Client
from tests.harness.played_clients import PlayedClients
from tools.common.local_broker import free_port

UNKNOWN = 777  # a code that no front serves: handed on
TABLES = {"topics": {"a": {"topicName": "a"}}, "groups": {"g": {"groupName": "g"}}, "subscriptions": {}}
SECONDS = 120


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    Client.close_all()


class Stage(NamedTuple):
    """A front's surroundings."""

    directory: Path
    counters: BrokerCounters
    bells: exchange.Bells
    front: Front
    port: int

    @contextmanager
    def clients(self) -> Iterator[PlayedClients]:
        with played_clients.played(self.directory, self.bells, TABLES) as clients:
            await_that(lambda: self.front._tables.is_complete, "the tables were told")
            yield clients


@contextmanager
def staged(directory: Path, **settings: object) -> Iterator[Stage]:
    port = free_port()
    config = from_mapping(
        {
            "storePathRootDir": directory / "store",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            **settings,
        }
    )
    counters = BrokerCounters.create(directory / "counters")
    QueueEnds.create(directory, {})
    live_settings.publish(counters, config)
    exchange.create(directory, config.front_processes)
    bells = exchange.Bells.make(config.front_processes)
    with served_front.served(config, counters, bells) as front:
        yield Stage(directory, counters, bells, front, port)
    bells.close()


@pytest.fixture
def stage(region_dir: Path) -> Iterator[Stage]:
    with staged(region_dir) as one:
        yield one


def test_what_a_front_does_not_serve_is_handed_on_and_answered(stage: Stage) -> None:
    with stage.clients() as clients:
        for port in (stage.port, stage.port - 2):
            client = Client(port)
            requests = [
                RemotingCommand(UNKNOWN, number, body=bytes(number * 1000), serialize=form)
                for number in range(20)
                for form in Serialize
            ]
            client.send(*requests)
            for request in requests:
                answer = client.take()
                assert (answer.opaque, bytes(answer.body)) == (request.opaque, request.body)
        client.send(RemotingCommand(UNKNOWN, 5, flag=2))
        assert client.ask(UNKNOWN).opaque == 1, "a oneway request has no answer"
        assert len({channel for channel, _request in clients.requests}) == 2


def test_frames_cut_anywhere_and_frames_of_any_size(stage: Stage) -> None:
    with stage.clients():
        client = Client(stage.port)
        for byte in encode(RemotingCommand(UNKNOWN, 3, body=b"cut into bytes")):
            client.sock.sendall(bytes((byte,)))
        assert bytes(client.take().body) == b"cut into bytes"
        large = bytes(range(256)) * (12 << 12)  # 12 MiB: more than a ring holds
        assert bytes(client.ask(UNKNOWN, large).body) == large


def test_a_push_reaches_its_channel_and_a_client_that_is_asked_answers(stage: Stage) -> None:
    with stage.clients() as clients:
        client = Client(stage.port)
        channel = int(client.ask(UNKNOWN).remark or "")
        clients.do(
            lambda links: links.send(channel, RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 9, flag=2))
        )
        assert client.take().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        asked = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO)

        async def ask() -> RemotingCommand:
            assert clients.links is not None
            answer: RemotingCommand = await clients.links.ask(channel, asked, SECONDS)
            return answer

        waiting = clients.begin(ask())
        question = client.take()
        client.send(question.answer(0, "here I am", version=407))
        assert waiting.result(SECONDS).remark == "here I am"
        clients.do(lambda links: links.hang_up(channel))
        assert client.is_hung_up()
        await_that(lambda: clients.gone == [channel], "it is known to be gone")


def test_a_new_clients_role_hears_of_all_clients_and_their_last_heartbeats(stage: Stage) -> None:
    client, silent = Client(stage.port), Client(stage.port)
    with stage.clients():
        for number in range(3):
            client.ask(RequestCode.HEART_BEAT, json.dumps({"clientID": f"c{number}"}).encode())
        silent.ask(UNKNOWN)
    with stage.clients() as clients:
        await_that(lambda: clients.replays, "the heartbeat comes again")
        ((_channel, beat),) = clients.replays
        assert json.loads(bytes(beat.body)) == {"clientID": "c2"}
        await_that(lambda: len(clients.do(lambda links: links.channels)) == 2, "both are told")
        assert client.ask(UNKNOWN, b"goes on").body == b"goes on"
        client.ask(RequestCode.UNREGISTER_CLIENT)
    with stage.clients() as clients:
        assert silent.ask(UNKNOWN).code == 0
        await_that(lambda: len(clients.replays) == 2, "both come again")
        said = [request.code for _channel, request in clients.replays]
        assert said == [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT], "its goodbye comes after it"


def test_what_is_asked_while_nobody_answers_is_answered_by_the_next(stage: Stage) -> None:
    answers: list[object] = []
    with stage.clients() as clients:
        clients.answers_questions = False
        stage.front._loop.call_soon_threadsafe(lambda: stage.front._relay.ask("what", {"x": 1}, answers.append))
        await_that(lambda: clients.questions, "it is asked")
    with stage.clients() as clients:
        await_that(lambda: answers == [{"x": 1}], "it is asked again, and answered")


def test_a_front_says_when_both_ports_serve_and_when_it_knows_topics(stage: Stage) -> None:
    serving = stage.counters.fronts[0].serving
    assert serving.read() == Serving.PORTS
    for port in (stage.port, stage.port - 2):
        Client(port)
    with stage.clients():
        await_that(lambda: serving.read() == Serving.ALL, "the tables were told, and nobody looked at a clock")
    assert serving.read() == Serving.ALL, "what it knows stays"


def test_requests_wait_for_a_clients_role_that_is_not_there(stage: Stage) -> None:
    client = Client(stage.port)
    client.send(RemotingCommand(UNKNOWN, 4, body=b"early"))
    with stage.clients():
        assert bytes(client.take().body) == b"early"


def test_a_heartbeat_that_nobody_takes_is_refused_in_time(region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(region_dir, waitTimeMillsInHeartbeatQueue=2000) as stage:
        with stage.clients() as clients, monkeypatch.context() as patient:
            patient.setattr(stage.front._relay._late, "_limit_ms", SECONDS * 1000)  # one that is taken, however late
            client = Client(stage.port)
            taken = client.ask(RequestCode.HEART_BEAT, b"{}")
            assert taken.code == 0 and len(clients.requests) == 1
        client.send(*(RemotingCommand(RequestCode.HEART_BEAT, number, body=b"{}") for number in (7, 8)))
        for number in (7, 8):
            refused = client.take()
            assert (refused.opaque, refused.code) == (number, ResponseCode.SYSTEM_BUSY)
            assert (refused.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")
        with stage.clients() as clients:
            await_that(lambda: len(clients.requests) == 2, "they are heard all the same")
            assert client.take().opaque == 7


def test_a_front_that_begins_again_has_no_channels(stage: Stage) -> None:
    with stage.clients() as clients:
        channel = int(Client(stage.port).ask(UNKNOWN).remark or "")
        pipe = stage.front._relay._pipe  # its own thread writes into it
        stage.front._loop.call_soon_threadsafe(pipe.send, exchange.Kind.HELLO, 0)  # what a successor says first
        await_that(lambda: clients.gone == [channel], "its connections went with it")


def test_tables_follow_what_is_said_of_them(stage: Stage) -> None:
    tables, seen = stage.front._tables, []
    tables.follow(lambda table, name: seen.append((table, name)))
    with stage.clients() as clients:
        assert tables.topics == TABLES["topics"] and tables.groups == TABLES["groups"]
        clients.note("topics", {"a": None, "b": {"topicName": "b"}})
        await_that(lambda: ("topics", "b") in seen, "it is told")  # who follows hears of it after it is in the table
        assert tables.topics == {"b": {"topicName": "b"}} and ("topics", "a") in seen and ("topics", None) in seen


def test_what_is_no_frame_ends_that_connection_alone(stage: Stage) -> None:
    with stage.clients():
        well = Client(stage.port)
        lengths = struct.pack(">i", -1), struct.pack(">ii", 4, 1 << 20)
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", *lengths, b"\0\0\0\4junk"):
            client = Client(stage.port)
            client.sock.sendall(nonsense)
            assert client.is_hung_up()
        hello = Client(stage.port)
        hello.sock.sendall(b"\x16\x03\x01")
        assert well.ask(UNKNOWN).code == 0


def test_a_client_that_does_not_read_is_closed_and_others_do_not_notice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "WRITE_SECONDS", 1.0)
    with stage.clients():
        deaf, well = Client(stage.port), Client(stage.port)
        deaf.sock.setblocking(False)
        request = encode(RemotingCommand(UNKNOWN, 1, body=bytes(1 << 20)))
        rest = memoryview(request * 64)

        def is_ended() -> bool:
            nonlocal rest
            try:
                rest = rest[deaf.sock.send(rest) :] or memoryview(request)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return well.ask(UNKNOWN, b"x").body != b"x"

        await_that(is_ended, "it is hung up on")
        assert well.ask(UNKNOWN, b"still").body == b"still"


def test_above_the_limit_the_quietest_connection_is_closed(region_dir: Path) -> None:
    with staged(region_dir, remotingConnectionsMax=8) as stage, stage.clients():
        clients = [Client(stage.port) for _ in range(8)]
        for client in clients:
            assert client.ask(UNKNOWN).code == 0
        assert Client(stage.port).ask(UNKNOWN).code == 0
        assert clients[0].is_hung_up()
        assert clients[1].ask(UNKNOWN).code == 0


def test_several_fronts_share_a_port(region_dir: Path) -> None:
    with staged(region_dir, frontProcesses=2) as stage:
        config = stage.front._config
        with (
            served_front.served(config, stage.counters, stage.bells, 1) as other,
            played_clients.played(region_dir, stage.bells, TABLES, fronts=2) as role,
        ):
            await_that(lambda: other._reception.ports, "it listens, too")
            clients = [Client(stage.port) for _ in range(64)]
            channels = {int(client.ask(UNKNOWN).remark or "") for client in clients}
            assert len(channels) == 64 and {exchange.front_of(one)[0] for one in channels} == {0, 1}
            assert len(role.do(lambda links: links.channels)) == 64
