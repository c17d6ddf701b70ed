"""Locks of queues that a group of brokers gives together: each asks the others, and waits no longer than it may.

Implements: AdminBrokerProcessor.lockBatchMQ and unlockBatchMQ of 5.x with lockInStrictMode; BrokerOuterAPI's of both,
    BrokerController.syncBrokerMemberGroup
Who is in the group the name servers say, once a second; who cannot be reached has locked nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.net.rare_lines import RareLines
from engine.net.tls import RenewedContext
from engine.protocol.broker.slave_synchronize import is_address
from engine.protocol.clients import lock_bodies
from engine.protocol.clients.lock_bodies import LockRequest
from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.places import Place
from engine.remoting.loop.role_tasks import RoleTasks
from engine.remoting.loop.work_pool import BUSY
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.remoting.peers.name_servers import NameServers
from engine.settings.client_keys import REPLICAS_MAX
from ipc.clock import monotonic_ms
from store.compat import line_of
from store.errors import StoreError
from store.tables import fastjson

ANSWER_SECONDS, ALL_SECONDS = 1.0, 2.0  # of one broker; of all together
PERIOD_MS = 1000  # syncBrokerMemberGroupPeriod
MEMBERS_SECONDS, MEMBERS_BYTES_MAX = 3.0, 1 << 20
LINKS_MAX = 4  # to one broker
UNDER_WAY_MAX = 1000  # questions to all of them
TASK = "members of the group"


class Replica:
    """Another broker of the group: some connections, each with one question at a time."""

    def __init__(self, address: str, how: RenewedContext | None) -> None:
        self._address, self._how = address, how
        self._idle: list[RemotingLink] = []
        self._free = asyncio.Semaphore(LINKS_MAX)
        self._is_gone = False

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        """Return the replica's answer. Raises NoAnswer."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._free:
                return await self._ask(request)
        except TimeoutError as late:
            raise NoAnswer(self._address, late) from late

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        link = self._idle.pop() if self._idle else RemotingLink(self._address, ANSWER_SECONDS, self._how)
        try:
            answer = await link.ask(request)
        except BaseException:  # also a deadline of all: half an answer may have come
            link.close()
            raise
        if self._is_gone:
            link.close()
        else:
            self._idle.append(link)
        return answer

    def close(self) -> None:
        """Close the idle connections; others close after their answer."""
        self._is_gone = True
        while self._idle:
            self._idle.pop().close()


class ReplicaLocks:
    """The other brokers of one group."""

    def __init__(
        self, name_servers: NameServers, tasks: RoleTasks, lines: RareLines, how: RenewedContext | None
    ) -> None:
        self._name_servers, config = name_servers, name_servers.config
        self._config, self._tasks, self._lines, self._how = config, tasks, lines, how
        self.is_strict = config.lock_in_strict_mode and line_of(config.compat).groups.locks_by_quorum
        self._quorum = config.total_replicas // 2 + 1
        self._replicas: dict[str, Replica] = {}
        self._names: dict[str, RemotingLink] = {}
        self._due_ms = self._under_way = 0
        self._unlocking: set[asyncio.Task[None]] = set()

    # who they are

    def turn(self, now_ms: int) -> None:
        """Ask who is in the group, where that matters."""
        if self.is_strict and now_ms >= self._due_ms and TASK not in self._tasks:
            self._due_ms = now_ms + PERIOD_MS
            self._tasks.begin(TASK, self._learn())

    async def _learn(self) -> None:
        fields = {"clusterName": self._config.broker_cluster_name, "brokerName": self._config.broker_name}
        request = RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields, version=REQUEST_VERSION)
        for address in self._names.keys() - set(self._name_servers.now):
            self._names.pop(address).close()
        for address in self._name_servers.now:
            link = self._names.setdefault(address, RemotingLink(address, MEMBERS_SECONDS, self._how))
            try:
                self._follow(_members_of(await link.ask(request), self._config.broker_id))
            except (NoAnswer, StoreError) as error:
                self._lines.tell(TASK, monotonic_ms(), "name server %s on the group's members: %s", link.address, error)
                continue
            return

    def _follow(self, addresses: Sequence[str]) -> None:
        for address in self._replicas.keys() - set(addresses):
            self._replicas.pop(address).close()
        for address in addresses:
            if address not in self._replicas:
                self._replicas[address] = Replica(address, self._how)

    # what they are asked

    async def locked(self, asked: LockRequest, own: list[Place]) -> list[Place]:
        """Return which queues that this broker locked enough of its group did, too. Raises Refused."""
        if self._quorum <= 1 or not own:
            return own
        if self._under_way >= UNDER_WAY_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, BUSY)
        self._under_way += 1
        try:
            return lock_bodies.by_quorum(own, await self._ask_all(asked, own), self._quorum)
        finally:
            self._under_way -= 1

    async def _ask_all(self, asked: LockRequest, own: list[Place]) -> list[list[Place]]:
        body = lock_bodies.request_body(asked.group, asked.client_id, own, only_this_broker=True)
        request = RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=body, version=REQUEST_VERSION)
        tasks = [asyncio.create_task(self._lock_at(replica, request)) for replica in self._replicas.values()]
        if not tasks:
            return []
        try:
            done, _late = await asyncio.wait(tasks, timeout=ALL_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() for task in done]

    async def _lock_at(self, replica: Replica, request: RemotingCommand) -> list[Place]:
        try:
            answer = await replica.ask(request)
            if answer.code == ResponseCode.SUCCESS:
                return lock_bodies.locked_of(bytes(answer.body))
            error: object = f"code {answer.code}, {answer.remark}"
        except (NoAnswer, StoreError) as reason:
            error = reason
        self._lines.tell("locks elsewhere", monotonic_ms(), "queues are not locked at another broker: %s", error)
        return []

    def unlock(self, asked: LockRequest) -> None:
        """Have the others give the queues back, too; nobody waits for that, and a lock that stays has its end."""
        body = lock_bodies.request_body(asked.group, asked.client_id, asked.queues, only_this_broker=True)
        request = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=body, version=REQUEST_VERSION)
        for replica in self._replicas.values():
            if len(self._unlocking) < UNDER_WAY_MAX:
                task = asyncio.get_running_loop().create_task(self._unlock_at(replica, request))
                self._unlocking.add(task)
                task.add_done_callback(self._unlocking.discard)

    async def _unlock_at(self, replica: Replica, request: RemotingCommand) -> None:
        try:
            await replica.ask(request)
        except NoAnswer as error:
            self._lines.tell("unlocks elsewhere", monotonic_ms(), "queues stay locked at another broker: %s", error)

    def close(self) -> None:
        """Cancel unlocks under way, and close all connections."""
        for task in self._unlocking:
            task.cancel()
        for replica in self._replicas.values():
            replica.close()
        for link in self._names.values():
            link.close()


def _members_of(answer: RemotingCommand, own_id: int) -> list[str]:
    """The addresses of the others in a group. Raises NoAnswer and MalformedData."""
    if answer.code != ResponseCode.SUCCESS:
        raise NoAnswer("GET_BROKER_MEMBER_GROUP", f"code {answer.code}, {answer.remark}")
    value: Any = fastjson.loads(bytes(answer.body), "members of a group", MEMBERS_BYTES_MAX)
    group = value.get("brokerMemberGroup") if isinstance(value, dict) else None
    addresses = group.get("brokerAddrs") if isinstance(group, dict) else None
    if not isinstance(addresses, dict):
        return []
    others = [text for number, text in addresses.items() if str(number) != str(own_id)]
    return [text for text in others[:REPLICAS_MAX] if isinstance(text, str) and is_address(text)]
