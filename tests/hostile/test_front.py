"""Clients that mean no good at a running broker: names that are paths, no descriptors, killed fronts and brokers."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.fuzz.attack import failures_in
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20,
         "maxMessageSize": 65536, "brokerFastFailureEnable": "false",
         "osPageCacheBusyTimeOutMills": 1 << 30}  # fmt: skip
TOPIC, GROUP = "Hostile", "G"
PATHS = ("../../../../../../tmp/slipstream-evil/x", "a/b", "..", "/etc", "a\\b")
SPARE_DESCRIPTORS, FLOOD, CLIENTS = 6, 64, 24


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def connected(broker: LocalBroker) -> FrontClient:
    """A connection, once the port is there."""

    def connect() -> FrontClient | None:
        with suppress(OSError):
            return FrontClient(broker.port)
        return None

    client: FrontClient = await_that(connect, "the front listens")  # type: ignore[assignment]
    return client


def await_fronts(broker: LocalBroker, count: int) -> None:
    """Until each of them listens: the first one's port alone belongs to a broker's readiness."""
    counters = counters_of(broker)

    def listens(number: int) -> bool:
        pid = counters.pids[f"front.{number}"].read()
        sockets = psutil.Process(pid).net_connections("tcp") if pid else ()
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == broker.port for one in sockets)

    await_that(lambda: all(map(listens, range(count))), f"{count} fronts listen")


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory)


def send(body: bytes, **changed: str) -> RemotingCommand:
    fields = {"a": "g", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", **changed}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, 77, ext_fields=fields, body=body, version=407)


def answer_to(client: FrontClient, request: RemotingCommand) -> RemotingCommand:
    """The answer, whatever is pushed before it."""
    client.send(request)
    while (said := client.take()).opaque != request.opaque or not said.is_response:
        pass
    return said


def sent(client: FrontClient, body: bytes) -> bool:
    """Whether it was taken, tried again while the broker begins."""
    said = answer_to(client, send(body))
    assert said.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY), said
    return said.code == ResponseCode.SUCCESS


def heartbeat(name: str, group: str = GROUP) -> RemotingCommand:
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [],
    }  # fmt: skip
    body = json.dumps({"clientID": name, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    return RemotingCommand(RequestCode.HEART_BEAT, 78, ext_fields={}, body=body, version=407)


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_names_that_are_paths_lead_nowhere(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", compat=compat, **SMALL) as broker:
        client, counters = connected(broker), counters_of(broker)
        await_that(lambda: sent(client, b"x"), "a message is taken")
        for group in PATHS:
            answer_to(client, heartbeat("c", group))
            for level, most in (("0", "16"), ("-1", "0"), ("1", "16")):
                back = {
                    "offset": "0", "group": group, "delayLevel": level, "originMsgId": "x", "originTopic": TOPIC,
                    "unitMode": "false", "maxReconsumeTimes": most,
                }  # fmt: skip
                answer_to(client, RemotingCommand(36, 79, ext_fields=back, version=407))
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE):
                fields = {"b": group, "topic": group, "consumerGroup": group, "queueId": "0", "queueOffset": "0"}
                more = {"maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
                asked = {**(send(b"x").ext_fields or {}), **fields, **more, "subVersion": "0", "subscription": "*"}
                answer_to(client, RemotingCommand(code, 80, ext_fields=asked, body=b"x", version=407))
        await_that(
            lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched"
        )
        assert sent(client, b"still")
        assert failures_in(broker.log) == ()
        for kind in ("consumequeue", "batchconsumequeue", "config"):
            below = broker.store / kind
            names = [path.relative_to(below).parts for path in below.rglob("*")] if below.exists() else []
            assert all(len(parts) <= 3 and ".." not in parts for parts in names)
        assert {path.name for path in tmp_path.iterdir()} == {"b"}
        assert not Path("/tmp/slipstream-evil").exists()


def test_without_descriptors_nobody_new_comes_and_who_is_there_goes_on(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL) as broker:
        client, counters = connected(broker), counters_of(broker)
        await_that(lambda: sent(client, b"first"), "a message is taken")
        front = counters.pids["front.0"].read()
        used, (soft, hard) = psutil.Process(front).num_fds(), resource.prlimit(front, resource.RLIMIT_NOFILE)
        resource.prlimit(front, resource.RLIMIT_NOFILE, (used + SPARE_DESCRIPTORS, hard))
        flood = [socket.create_connection(("127.0.0.1", broker.port), 20) for _ in range(FLOOD)]
        await_that(lambda: "cannot be accepted" in broker.log.read_text(), "it says why nobody comes")
        for number in range(200):
            assert sent(client, b"%d" % number)
        for one in flood:
            one.close()
        resource.prlimit(front, resource.RLIMIT_NOFILE, (soft, hard))
        newcomer = connected(broker)
        assert sent(newcomer, b"last") and counters.restarts["front.0"].read() == 0


def test_one_of_two_fronts_may_die_and_its_neighbours_clients_notice_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", frontProcesses=2, **SMALL) as broker:
        counters, clients = counters_of(broker), [connected(broker)]
        await_fronts(broker, 2)
        clients += [connected(broker) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            assert await_that(lambda client=client: sent(client, b"before"), "it is taken")  # type: ignore[misc]
            answer_to(client, heartbeat(f"c{number}"))
        sockets = psutil.Process(counters.pids["front.1"].read()).net_connections()
        of_other = {each.raddr.port for each in sockets if each.raddr}
        ports = {client.sock.getsockname()[1]: client for client in clients}
        theirs = [client for port, client in ports.items() if port in of_other]
        ours = [client for port, client in ports.items() if port not in of_other]
        assert theirs and ours, "the kernel deals connections out"
        last = clients[-1]
        for client in {ours[0], theirs[0]} - {last}:  # each of another front than the last to come, perhaps
            while client.take().code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
        os.kill(counters.pids["front.1"].read(), signal.SIGKILL)
        for client in ours:
            assert sent(client, b"meanwhile")
        for client in theirs:
            with suppress(ConnectionResetError):
                while client.sock.recv(1 << 16):  # what was pushed to it, and then the end: its front is gone
                    pass
        members = answer_to(ours[0], RemotingCommand(38, 81, ext_fields={"consumerGroup": GROUP}, version=407))
        names = json.loads(bytes(members.body))["consumerIdList"]
        assert {f"c{clients.index(client)}" for client in ours} <= set(names)

        def is_there_again() -> bool:
            with suppress(ConnectionError):  # the kernel may deal one more to the dead front's port
                return sent(connected(broker), b"after")
            return False

        await_that(is_there_again, "it is there again")
        bodies = [bytes(one.body) for one in messages_of(broker.store, counters.max_physical_offset.read())]
        assert bodies.count(b"before") == len(clients) and bodies.count(b"meanwhile") == len(ours)


def test_a_broker_that_was_killed_leaves_no_shared_memory_to_the_next(tmp_path: Path) -> None:
    seen: list[Path] = []
    for turn in range(3):
        with LocalBroker(tmp_path / "b", **SMALL) as broker:
            client = connected(broker)
            assert await_that(lambda client=client, turn=turn: sent(client, b"%d" % turn), "it is taken")  # type: ignore[misc]
            regions = extent.require_running(broker.store).region_directory
            await_that(lambda: not any(path.exists() for path in seen), "what those before had is gone")
            seen.append(regions)
            if turn < 2:
                kill_broker(broker)
    assert len(set(seen)) == 3 and not any(path.exists() for path in seen)
