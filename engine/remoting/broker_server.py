"""Speaks remoting for a broker: answers at both of its ports, registers at the name servers, follows a master's tables.

Implements: BrokerController's NettyRemotingServers, registerBrokerAll's timers, SlaveSynchronize's timer
Publishes:  listen_port; ha_server_address, where a slave's registration says that its master sends the log from;
            the words of live_settings, once an administrator changes them
A port that cannot be bound is tried again: the log does not need it. One
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

import uvloop

from engine.board import address_cursors, addresses, live_settings
from engine.board.cursors import Board, TlsOutcome
from engine.board.ha_samples import read_ha_samples
from engine.figures.metrics import TableSizes
from engine.figures.metrics_server import MetricsServer
from engine.figures.runtime_info import ha_status, runtime_info
from engine.net import tls
from engine.net.listeners import bind_address
from engine.net.rare_lines import RareLines
from engine.net.tls import BrokerTls
from engine.protocol.access.rights import Rules
from engine.protocol.broker import slave_synchronize
from engine.protocol.broker.requests import BrokerRequests, Facts
from engine.protocol.ha.client import HaClientState
from engine.protocol.naming.registration import Learned, Registration
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand
from engine.remoting import last_offsets
from engine.remoting.broker_files import BrokerFiles
from engine.remoting.link import NoAnswer, RemotingLink
from engine.remoting.log_answers import LogAnswers
from engine.remoting.master_end import MasterEnd
from engine.remoting.registrations import registration_of
from engine.remoting.server import Answered, Limits, RemotingServer
from engine.remoting.shown_settings import settings_of
from engine.role import stop_alarm
from engine.settings.config import BrokerConfig, BrokerRole
from ipc import waiting
from ipc.clock import monotonic_ms, wall_ms
from store.errors import StoreError
from store.files.segment_files import SegmentFiles

log = logging.getLogger("slipstream.remoting")

ANSWER_SECONDS, UNREGISTER_SECONDS = 6.0, 1.0  # registerBrokerTimeoutMills
SYNCHRONIZE_SECONDS = 3.0  # for each of a slave's questions to its master
BIND_RETRY_MS = 1000
SAID_CHARACTERS_MAX = 500
LOOK_MS = 1000
TURN_MS_MAX = 500  # how late the clock is looked at
FAST_BELOW = slave_synchronize.FAST_PORT_BELOW


class BrokerServer:
    """The role of the remoting server."""

    name = "remoting"

    def __init__(
        self, config: BrokerConfig, board: Board, how: BrokerTls | None = None, tables_from: str = ""
    ) -> None:  # fmt: skip
        self._config, self._board, self._loop = config, board, uvloop.new_event_loop()
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._files = BrokerFiles(config, wall_ms(), board.directory)
        self._requests = BrokerRequests(
            config.compat, self._files.metadata, self._facts(), is_slave=self._is_slave,
            has_timers=config.timer_wheel_enable,
        )  # fmt: skip
        self._log_answers = LogAnswers(config, board)
        self._tls = how or tls.of_broker(config)
        self._servers: dict[int, RemotingServer] = {}
        self._unbound: dict[int, str] = {}  # port: why not, as it was told
        self._master_end = MasterEnd(config, lambda: self._master_address, self._tls.client)
        self._metrics = MetricsServer(config, board, self._sizes, self._master_end.read)
        self._bind_at_ms = self._look_at_ms = 0
        self._topics_seen: tuple[int, int] | None = (0, 0)  # no state that a file has: what was told before is unknown
        self._registrations: dict[str, tuple[Registration, RemotingLink]] = {}  # made once the HA port is known
        self._synchronize = slave_synchronize.SlaveSynchronize(
            config.compat, monotonic_ms(), has_timers=config.timer_wheel_enable
        )
        self._masters: dict[str, RemotingLink] = {}
        self._master_address: str | None = None
        self._learned: dict[str, Learned] = {}  # by name server, of those that answer
        self._lines = RareLines(log)
        self._ha_server_name: str | None = None
        self._unresolved: str | None = None  # the last name that led nowhere, and was told
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends_turn = asyncio.Event()
        self._loop.add_reader(stop_alarm(), self._on_alarm)
        if tables_from and not self._is_slave:
            self._begin("last offsets", last_offsets.take_over(tables_from, self._files.metadata, self._tls.client))

    def _change_settings(self) -> None:
        """See that what was changed just now is used, and kept until the broker ends."""
        wanted, self._requests.changed_settings = self._requests.changed_settings, {}
        before = settings_of(self._config, self._board)
        changed = live_settings.change(self._board, wanted)
        waiting.add(self._board.topics_changes, 1)  # a topic's permission is the broker's, too
        now = settings_of(self._config, self._board)
        for name in changed:
            log.info(
                "an administrator set %s=%s (it was %s) until this broker ends; its file is unchanged",
                name, now[name], before[name],
            )  # fmt: skip
        for registration, _link in self._registrations.values():
            registration.set_period(self._board.register_name_server_period_ms.read())

    def _facts(self) -> Facts:
        config, board = self._config, self._board
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        root = os.fspath(config.store_path_root_dir)
        slave, fallbehind = self._is_slave, config.ha_slave_fallbehind_max_bytes
        samples = board.directory
        return Facts(
            lambda: runtime_info(root, board, files, config.compat),
            lambda: ha_status(board, read_ha_samples(samples), is_slave=slave, fallbehind_max_bytes=fallbehind),
            lambda: settings_of(config, board),
            live_settings.changeable(),
        )

    # turns

    def do_work(self, now_ms: int) -> int:
        """Look at the clock and begin what is due; the event loop does it while the role idles."""
        if now_ms >= self._bind_at_ms and not (len(self._servers) == 2 and self._metrics.is_served):
            self._bind_at_ms = now_ms + BIND_RETRY_MS
            self._loop.run_until_complete(self._bind())
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_MS
            self._lines.flush(now_ms)
            self._look()
        self._files.save(now_ms)
        self._note_topics()
        if not self._registrations and self._board.ha_listen_port.read():
            how = self._tls.client
            links = {address: RemotingLink(address, ANSWER_SECONDS, how) for address in self._config.name_servers}
            self._registrations = {
                address: (registration_of(self._config, self._board), link) for address, link in links.items()
            }
        self._register_where_due(now_ms)
        if self._is_slave and "synchronize" not in self._tasks:
            questions = self._synchronize.due(self._master_address, now_ms)
            if questions:
                self._begin("synchronize", self._ask_master(questions))
        return 0

    def _note_topics(self) -> None:
        """Tell producers when topics.json is another file than before, whoever wrote it."""
        state = self._files.state_of_topics()
        if state != self._topics_seen:
            self._topics_seen = state
            waiting.add(self._board.topics_changes, 1)

    def _register_where_due(self, now_ms: int) -> None:
        if self._requests.wants_registration:
            self._requests.wants_registration = False
            for registration, _link in self._registrations.values():
                registration.hurry()
        for address, (registration, link) in self._registrations.items():
            if address not in self._tasks:
                permission = self._board.broker_permission.read()
                request = registration.next_request(self._files.metadata, permission, now_ms)
                if request is not None:
                    self._begin(address, self._register(registration, link, request))
            beat = registration.heartbeat(self._files.metadata, now_ms)
            if beat is not None and f"heartbeat {address}" not in self._tasks:
                self._begin(f"heartbeat {address}", self._send_heartbeat(link, beat))

    def idle(self, timeout_ms: int) -> None:
        """Serve, until a request changed what name servers are to know, or the stop comes."""
        self._loop.run_until_complete(self._serve_for(min(timeout_ms, TURN_MS_MAX) / 1000))

    async def _serve_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ends_turn.wait(), seconds)
        self._ends_turn.clear()

    def _on_alarm(self) -> None:
        """The descriptor stays readable: it is heard once."""
        self._loop.remove_reader(stop_alarm())
        self._ends_turn.set()

    def close(self) -> None:
        """Say goodbye to the name servers, hang up, save."""
        self._loop.run_until_complete(self._leave())
        self._files.save(monotonic_ms(), is_last=True)
        self._loop.close()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = self._loop.create_task(work, name=name)
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", name, exc_info=task.exception())

    # serving

    async def _bind(self) -> None:
        """The port of everybody, and the one two below it, where slaves ask for topics."""
        for port in (self._config.listen_port, self._config.listen_port - FAST_BELOW):
            if port in self._servers or port <= 0:
                continue
            config = self._config
            rules = Rules(config.remoting_allow_list, config.admin_allow_list, follow=config.ha_allow_list)
            server = RemotingServer(
                self._answer, lambda _connection: None, Limits(connections=config.remoting_connections_max),
                rules=rules, how=self._tls.server, on_tls=self._count_tls,
            )  # fmt: skip
            try:
                bound = await server.start(bind_address(self._config.bind_address, self._config.broker_ip1), port)
            except OSError as error:
                if self._unbound.get(port) != error.strerror:
                    log.error("this broker cannot serve %s (listenPort, bindAddress); tried again", error.strerror)
                self._unbound[port] = str(error.strerror)
                continue
            self._servers[port] = server
            if port == self._config.listen_port:
                waiting.publish(self._board.listen_port, bound)

        await self._metrics.start()

    def _count_tls(self, outcome: TlsOutcome) -> None:
        waiting.add(self._board.tls_outcomes[outcome], 1)

    def _sizes(self) -> TableSizes:
        tables = self._files.metadata
        return TableSizes(self._board.broker_permission.read(), len(tables.topics), len(tables.groups))

    def _answer(self, request: RemotingCommand, connection: int) -> Answered | asyncio.Future[Answered]:
        if (of_log := self._log_answers.begin(request, connection, wall_ms())) is not None:
            return of_log
        answer = self._requests.answer(request, connection, wall_ms())
        if self._requests.changed_settings:
            self._change_settings()
        if self._requests.wants_registration:
            self._ends_turn.set()
        return answer

    def _look(self) -> None:
        """Take what others wrote into the files; ask again for a master's name that leads nowhere."""
        board = self._board
        dispatched = board.reput_from_offset.read() == board.max_physical_offset.read()
        if self._files.look(wall_ms(), dispatched):
            self._requests.wants_registration = True
        is_lost = self._is_slave and board.ha_client.state.read() != HaClientState.TRANSFER
        if is_lost and self._ha_server_name is not None and "resolve" not in self._tasks:
            self._begin("resolve", self._resolve(self._ha_server_name))

    # name servers

    async def _register(self, registration: Registration, link: RemotingLink, request: RemotingCommand) -> None:
        try:
            answer = await link.ask(request)
        except NoAnswer as error:
            self._lost(registration, link, error)
            return
        try:
            learned = registration.on_answer(request, answer, monotonic_ms())
        except MalformedFrame as error:
            self._lost(registration, link, error)
            return
        if answer.code:
            self._lines.tell(
                "refused registrations", monotonic_ms(), "name server %s refuses this broker: code %d, %s",
                link.address, answer.code, (answer.remark or "")[:SAID_CHARACTERS_MAX],
            )  # fmt: skip
        if learned is not None:
            await self._learn(link.address, learned)

    def _lost(self, registration: Registration, link: RemotingLink, error: Exception) -> None:
        """No answer, or nonsense: what this name server said of our master is not its word any longer."""
        now_ms = monotonic_ms()
        self._lines.tell("registrations without an answer", now_ms, "name server %s: %s", link.address, error)
        registration.lost(now_ms)
        self._learned.pop(link.address, None)

    async def _send_heartbeat(self, link: RemotingLink, request: RemotingCommand) -> None:
        with suppress(NoAnswer):  # the next registration says so
            await link.tell(request)

    async def _learn(self, name_server: str, learned: Learned) -> None:
        if not self._is_slave:
            ordered = learned.order_topics
            if ordered is not None and self._files.metadata.set_order_topics(ordered, wall_ms()):
                self._requests.wants_registration = True
            return
        self._learned[name_server] = learned
        said = [self._learned[name] for name in self._config.name_servers if name in self._learned]
        first = next((one for one in said if one.master_address), learned)  # in the order of namesrvAddr
        self._follow(first.master_address or None)
        if first.ha_server_address is not None and self._config.ha_master_address is None:
            self._ha_server_name = first.ha_server_address
            await self._resolve(first.ha_server_address)

    def _follow(self, master_address: str | None) -> None:
        """Ask this master for its tables from now on; nobody, while the name servers know of none."""
        if master_address is not None and not slave_synchronize.is_address(master_address):
            self._lines.tell("addresses of masters", monotonic_ms(), "the master's address %r is none", master_address)
            master_address = None
        if master_address == f"{self._config.broker_ip1}:{self._config.listen_port}":
            master_address = None  # ourselves
        if master_address == self._master_address:
            return
        log.info("the master's tables are asked for at %s", master_address or "nobody: no name server knows a master")
        self._master_address = master_address
        for link in self._masters.values():
            link.close()
        self._masters.clear()

    async def _resolve(self, address: str) -> None:
        """Publish where the master sends its log from; the receiver reads that at each connect."""
        host, port = addresses.split(address)
        try:
            answers = await self._loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            packed = addresses.pack(str(answers[0][4][0]), int(port))
        except (OSError, ValueError) as error:
            if self._unresolved != address:
                log.warning("the master's HA address %r is none: %s; it is tried again", address, error)
            self._unresolved = address
            return
        self._unresolved = None
        if packed != address_cursors.read(self._board.ha_server_address):
            log.info("the master sends its log from %s", address)
            address_cursors.publish(self._board.ha_server_address, str(answers[0][4][0]), int(port))

    async def _leave(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        goodbyes = [link.ask(registration.unregister()) for registration, link in self._registrations.values()]
        if goodbyes:
            with suppress(TimeoutError):
                together = asyncio.gather(*goodbyes, return_exceptions=True)
                await asyncio.wait_for(together, UNREGISTER_SECONDS)
        for link in (*self._masters.values(), *(link for _registration, link in self._registrations.values())):
            link.close()
        for server in self._servers.values():
            await server.stop()
        self._log_answers.close()
        await self._metrics.stop()
        self._master_end.close()

    # the master's tables

    async def _ask_master(self, questions: list[slave_synchronize.Question]) -> None:
        """All of them, at both ports at once: one that is not answered, or refused, holds up none of the others."""
        by_address: dict[str, list[slave_synchronize.Question]] = {}
        for question in questions:
            by_address.setdefault(question.address, []).append(question)
        taken = await asyncio.gather(*(self._ask_at(address, asked) for address, asked in by_address.items()))
        if all(taken):
            self._synchronize.done(monotonic_ms())

    async def _ask_at(self, address: str, questions: list[slave_synchronize.Question]) -> bool:
        """Ask one port; whether all was answered and taken in."""
        new, all_of_it = RemotingLink(address, SYNCHRONIZE_SECONDS, self._tls.client), True
        link = self._masters.setdefault(address, new)
        for question in questions:
            code = question.request.code
            try:
                self._synchronize.take(self._files.metadata, code, await link.ask(question.request))
                continue
            except slave_synchronize.Refused as error:  # it will say so again: asked when all are asked
                reason: Exception = error
            except (NoAnswer, StoreError) as error:
                reason = error
                self._synchronize.failed(code, monotonic_ms())
            all_of_it = False
            self._lines.tell(
                f"answers to request {code}", monotonic_ms(), "the master's answer to request %d at %s: %s", code,
                address, reason,
            )  # fmt: skip
        return all_of_it


def open_role(
    config: BrokerConfig, board: Board, how: BrokerTls | None = None, tables_from: str = ""
) -> BrokerServer:  # fmt: skip
    """The remoting server of a broker; `how` are its certificates, read now where they are not given.

    `tables_from` is the address of the master before it, of one that was promoted.
    """
    return BrokerServer(config, board, how, tables_from)
