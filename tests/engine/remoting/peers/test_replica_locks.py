"""Locks that a group gives together: who answers counts, who hangs or talks nonsense does not; all has bounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.net.rare_lines import RareLines
from engine.protocol.clients import lock_bodies
from engine.protocol.clients.lock_bodies import LockRequest
from engine.protocol.remoting.answers import Refused, body_of
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from engine.protocol.remoting.places import Place
from engine.remoting.loop.role_tasks import RoleTasks
from engine.remoting.peers import replica_locks
from engine.remoting.peers.name_servers import NameServers
from engine.remoting.peers.replica_locks import ReplicaLocks
from engine.settings.config import from_mapping
from tests.harness.conditions import await_that

QUEUES = [Place("t", "broker-a", number) for number in range(4)]
ASKED = LockRequest("g", "client", QUEUES, only_this_broker=False)
Answer = Callable[[RemotingCommand], RemotingCommand | None]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name servers are asked once in a test: they answer, however slow this machine is."""
    monkeypatch.setattr(replica_locks, "MEMBERS_SECONDS", 600.0)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A broker, or name server, whose answers a test makes; its address."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        splitter = FrameSplitter()
        while data := await reader.read(1 << 16):
            for request in map(decode, splitter.feed(data)):
                if (said := answer(request)) is not None:
                    writer.write(encode(said))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()
    for writer in writers:
        writer.close()


def group_of(*addresses: str) -> Answer:
    """A name server that knows these brokers, the first of them ourselves."""
    group = {"brokerAddrs": dict(enumerate(addresses)), "brokerName": "broker-a", "cluster": "DefaultCluster"}

    def answer(request: RemotingCommand) -> RemotingCommand:
        assert request.code == RequestCode.GET_BROKER_MEMBER_GROUP and request.ext_fields is not None
        return request.answer(ResponseCode.SUCCESS, body=body_of({"brokerMemberGroup": group}), version=479)

    return answer


def gives(*queues: Place) -> Answer:
    """A replica that has these queues to give."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        asked = lock_bodies.request_of(request.body)
        assert asked.only_this_broker and (asked.group, asked.client_id) == ("g", "client")
        given = [queue for queue in asked.queues if queue in queues]
        return request.answer(ResponseCode.SUCCESS, body=body_of(lock_bodies.answer_value(given)), version=479)

    return answer


@asynccontextmanager
async def opened(directory: Path, names: str, replicas: int, known: int) -> AsyncIterator[ReplicaLocks]:
    config = from_mapping({
        "storePathRootDir": directory, "compat": "5", "lockInStrictMode": "true", "totalReplicas": replicas,
        "namesrvAddr": names, "brokerName": "broker-a", "brokerIP1": "127.0.0.1",
    })  # fmt: skip
    tasks = RoleTasks(asyncio.get_running_loop())
    lines = RareLines(logging.getLogger("slipstream.remoting"))
    locks = ReplicaLocks(NameServers(config, tasks, lines), tasks, lines, None)
    locks.turn(0)
    await asyncio.to_thread(await_that, lambda: len(locks._replicas) == known, "the group is known")
    yield locks
    await tasks.cancel()
    locks.close()


def test_most_of_the_group_must_give_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in ("ANSWER_SECONDS", "ALL_SECONDS"):  # all of them answer, however slow this machine is
        monkeypatch.setattr(replica_locks, seconds, 600.0)
    asyncio.run(_most_must_give(tmp_path))


async def _most_must_give(directory: Path) -> None:
    def refuses(request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SYSTEM_ERROR, "not now", version=479)

    def babbles(request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=b"[1", version=479)

    async with (
        serving(gives(*QUEUES[:3])) as first,
        serving(gives(*QUEUES[2:])) as second,
        serving(refuses) as third,
        serving(babbles) as fourth,
        serving(group_of("127.0.0.1:1", first, second, third, fourth, "nonsense")) as names,
    ):
        for replicas, expected in ((1, QUEUES), (3, QUEUES), (5, [QUEUES[2]]), (9, [])):
            async with opened(directory, names, replicas, 4) as locks:
                assert await locks.locked(ASKED, QUEUES) == expected, replicas
                assert await locks.locked(ASKED, []) == []


def test_a_replica_that_hangs_holds_up_no_more_than_it_may(tmp_path: Path) -> None:
    asyncio.run(_hangs(tmp_path))


async def _hangs(directory: Path) -> None:
    async with (
        serving(lambda _request: None) as silent,
        serving(group_of("127.0.0.1:1", silent)) as names,
        opened(directory, names, 2, 1) as locks,
    ):
        asking = [asyncio.create_task(locks.locked(ASKED, QUEUES)) for _ in range(6)]
        assert await asyncio.gather(*asking) == [[]] * 6


def test_no_more_is_under_way_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_locks, "UNDER_WAY_MAX", 6)
    for seconds in ("ANSWER_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(replica_locks, seconds, 600.0)
    asyncio.run(_is_bounded(tmp_path))


async def _is_bounded(directory: Path) -> None:
    heard: list[RemotingCommand] = []

    def silent(request: RemotingCommand) -> None:
        heard.append(request)

    async with (
        serving(silent) as replica,
        serving(group_of("127.0.0.1:1", replica)) as names,
        opened(directory, names, 2, 1) as locks,
    ):
        asking = [asyncio.create_task(locks.locked(ASKED, QUEUES)) for _ in range(6)]
        await asyncio.to_thread(await_that, lambda: len(heard) == replica_locks.LINKS_MAX, "some were heard")
        with pytest.raises(Refused) as refused:
            await locks.locked(ASKED, QUEUES)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        for _ in range(20):
            locks.unlock(ASKED)
        assert len(locks._unlocking) == 6, "nobody waits for them"
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
