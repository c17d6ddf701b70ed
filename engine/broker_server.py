"""Speaks remoting for a broker: answers at both of its ports, registers at the name servers, follows a master's tables.

Implements: BrokerController's NettyRemotingServers, registerBrokerAll's timers, SlaveSynchronize's timer
Follows:    topics.json, which the writer adds new topics to
Publishes:  listen_port; ha_server_address, where a slave's registration says that its master sends the log from
The only writer of the other config files. A port that cannot be bound is tried again: the log does not need it. One
event loop, run while the role idles; the decisions are in engine/protocol.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from engine import addresses
from engine.config import BrokerConfig, BrokerRole
from engine.config_keys import KEYS
from engine.cursors import Board
from engine.protocol import slave_synchronize
from engine.protocol.broker_requests import BrokerRequests, Facts
from engine.protocol.metadata import FILES, TOPICS, Identity, Metadata
from engine.protocol.register_body import Member
from engine.protocol.registration import Learned, Registration
from engine.protocol.remoting import RemotingCommand
from engine.remoting_link import NoAnswer, RemotingLink
from engine.remoting_server import RemotingServer
from engine.role import wall_clock_ms
from engine.runtime_figures import ha_status, runtime_info
from ipc import waiting
from store import broker_json
from store.directory import StoreDirectory
from store.errors import StoreError
from store.segment_files import SegmentFiles

log = logging.getLogger("slipstream.remoting")

ANSWER_SECONDS, UNREGISTER_SECONDS = 6.0, 1.0  # registerBrokerTimeoutMills
BIND_RETRY_MS = 1000
LOOK_MS = 1000
TURN_MS_MAX = 500  # the longest time from a wish to stop to its fulfilment
FAST_BELOW = slave_synchronize.FAST_PORT_BELOW


class BrokerServer:
    """The role of the remoting server."""

    name = "remoting"

    def __init__(self, config: BrokerConfig, board: Board) -> None:
        self._config, self._board, self._loop = config, board, asyncio.new_event_loop()
        self._directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._topics_seen = (0, 0)
        identity = Identity(
            config.compat == "5", config.broker_cluster_name, config.broker_name, config.default_topic_queue_nums,
            config.auto_create_topic_enable,
        )  # fmt: skip
        values = {name: broker_json.read(self._directory.config / name) for name in FILES}
        now_ms = wall_clock_ms()
        self._metadata = Metadata(identity, values, now_ms)
        self._requests = BrokerRequests(config.compat, self._metadata, self._facts(), is_slave=self._is_slave)
        self._servers: dict[int, RemotingServer] = {}
        self._bind_at_ms = self._look_at_ms = 0
        self._registrations: dict[str, tuple[Registration, RemotingLink]] = {}  # made once the HA port is known
        self._synchronize = slave_synchronize.SlaveSynchronize(config.compat, now_ms)
        self._masters: dict[str, RemotingLink] = {}
        self._master_address: str | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def _facts(self) -> Facts:
        config, board = self._config, self._board
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        root = os.fspath(config.store_path_root_dir)
        slave, fallbehind = self._is_slave, config.ha_slave_fallbehind_max_bytes
        return Facts(
            lambda: runtime_info(root, board, files, config.compat),
            lambda: ha_status(board, is_slave=slave, fallbehind_max_bytes=fallbehind),
            lambda: settings_of(config),
        )

    def _registration(self) -> Registration:
        config, ha_listen_port = self._config, self._board.ha_listen_port.read()
        member = Member(
            config.broker_cluster_name, config.broker_name, config.broker_id,
            f"{config.broker_ip1}:{config.listen_port}", f"{config.broker_ip2}:{ha_listen_port}",
        )  # fmt: skip
        period_ms = config.register_name_server_period_ms
        return Registration(
            member, config.compat, period_ms=min(max(period_ms, 10_000), 60_000), force=config.force_register
        )

    # turns

    def do_work(self, now_ms: int) -> int:
        """Look at the clock and begin what is due; the event loop does it while the role idles."""
        if now_ms >= self._bind_at_ms and len(self._servers) < 2:
            self._bind_at_ms = now_ms + BIND_RETRY_MS
            self._loop.run_until_complete(self._bind())
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_MS
            self._look_at_topics()
        self._save()
        if not self._registrations and self._board.ha_listen_port.read():
            links = {address: RemotingLink(address, ANSWER_SECONDS) for address in self._config.name_servers}
            self._registrations = {address: (self._registration(), link) for address, link in links.items()}
        if self._requests.wants_registration:
            self._requests.wants_registration = False
            for registration, _link in self._registrations.values():
                registration.hurry()
        for address, (registration, link) in self._registrations.items():
            if address not in self._tasks:
                request = registration.next_request(self._metadata, self._requests.permission, now_ms)
                if request is not None:
                    self._begin(address, self._register(registration, link, request))
        if self._is_slave and "synchronize" not in self._tasks:
            questions = self._synchronize.due(self._master_address, now_ms)
            if questions:
                self._begin("synchronize", self._ask_master(questions))
        return 0

    def idle(self, timeout_ms: int) -> None:
        """Serve."""
        self._loop.run_until_complete(asyncio.sleep(min(timeout_ms, TURN_MS_MAX) / 1000))

    def close(self) -> None:
        """Say goodbye to the name servers, hang up, save."""
        self._loop.run_until_complete(self._leave())
        self._save()
        self._loop.close()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = self._loop.create_task(work, name=name)
        task.add_done_callback(lambda _done: self._tasks.pop(name, None))

    # serving

    async def _bind(self) -> None:
        """The port of everybody, and the one two below it, where slaves ask for topics."""
        for port in (self._config.listen_port, self._config.listen_port - FAST_BELOW):
            if port in self._servers or port <= 0:
                continue
            server = RemotingServer(self._answer, lambda _connection: None)
            try:
                bound = await server.start("0.0.0.0", port)
            except OSError as error:
                log.error("port %d of this broker cannot be served (%s); it is tried again", port, error.strerror)
                continue
            self._servers[port] = server
            if port == self._config.listen_port:
                waiting.publish(self._board.listen_port, bound)

    def _answer(self, request: RemotingCommand, connection: int) -> RemotingCommand | None:
        return self._requests.answer(request, connection, wall_clock_ms())

    # files

    def _look_at_topics(self) -> None:
        """Take what the writer added to topics.json."""
        path = self._directory.config / TOPICS
        with suppress(FileNotFoundError):
            found = path.stat()
            seen = (found.st_mtime_ns, found.st_ino)
            if seen != self._topics_seen:
                self._topics_seen = seen
                if self._metadata.take_served_topics(broker_json.read(path)):
                    self._requests.wants_registration = True

    def _save(self) -> None:
        """Write what changed; a file that cannot be written is tried again at the next turn."""
        for name in sorted(self._metadata.changed):
            path = self._directory.config / name
            try:
                with broker_json.exclusive(path.parent):
                    if name == TOPICS and not self._is_slave:
                        self._metadata.take_served_topics(broker_json.read(path))
                    broker_json.write(path, self._metadata.value(name))
                self._metadata.saved(name)
            except (OSError, StoreError) as error:
                log.error("%s: cannot be written: %s", path, error)

    # name servers

    async def _register(self, registration: Registration, link: RemotingLink, request: RemotingCommand) -> None:
        try:
            answer = await link.ask(request)
        except NoAnswer as error:
            log.warning("name server %s", error)
            registration.lost(wall_clock_ms())
            return
        learned = registration.on_answer(request, answer, wall_clock_ms())
        if answer.code:
            log.warning("name server %s refuses this broker: code %d, %s", link.address, answer.code, answer.remark)
        if learned is not None:
            await self._learn(learned)

    async def _learn(self, learned: Learned) -> None:
        if not self._is_slave:
            return
        self._master_address = learned.master_address or self._master_address
        if learned.ha_server_address is None or self._config.ha_master_address is not None:
            return
        host, port = addresses.split(learned.ha_server_address)
        try:
            found = await self._loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            packed = addresses.pack(str(found[0][4][0]), int(port))
        except (OSError, ValueError) as error:
            log.warning("the master's HA address %r is none: %s", learned.ha_server_address, error)
            return
        if packed != addresses.read(self._board.ha_server_address):
            log.info("the master sends its log from %s", learned.ha_server_address)
            addresses.publish(self._board.ha_server_address, str(found[0][4][0]), int(port))

    async def _leave(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        goodbyes = [link.ask(registration.unregister()) for registration, link in self._registrations.values()]
        if goodbyes:
            with suppress(TimeoutError):
                together = asyncio.gather(*goodbyes, return_exceptions=True)
                await asyncio.wait_for(together, UNREGISTER_SECONDS)
        for link in (*self._masters.values(), *(link for _registration, link in self._registrations.values())):
            link.close()
        for server in self._servers.values():
            await server.stop()

    # the master's tables

    async def _ask_master(self, questions: list[slave_synchronize.Question]) -> None:
        for question in questions:
            link = self._masters.setdefault(question.address, RemotingLink(question.address, ANSWER_SECONDS))
            try:
                answer = await link.ask(question.request)
                self._synchronize.take(self._metadata, question.request.code, answer)
            except (NoAnswer, StoreError) as error:
                log.warning("the master's answer to request %d: %s", question.request.code, error)
                self._synchronize.failed(wall_clock_ms())
                return
        self._synchronize.done(wall_clock_ms())


def settings_of(config: BrokerConfig) -> dict[str, str]:
    """The settings by RocketMQ's names, as GET_BROKER_CONFIG shows them."""
    found = {}
    for key in KEYS:
        value = getattr(config, key.field)
        text = str(value).lower() if isinstance(value, bool) else value
        found[key.name] = ":".join(map(str, text)) if isinstance(text, tuple) else str(text if text is not None else "")
    return found


def open_role(config: BrokerConfig, board: Board) -> BrokerServer:
    """The remoting server of a broker."""
    return BrokerServer(config, board)
