"""Registers a broker at its name servers, each by a task of its own: one that is slow or down holds nobody else up.

Implements: BrokerController.registerBrokerAll's timer, BrokerOuterAPI
When and what is decided by `engine.protocol.naming.registration`; what the answers say of a master is handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from engine.net.rare_lines import RareLines
from engine.net.tls import RenewedContext
from engine.protocol.naming.registration import Heartbeats, Learned, Making, Registration
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import Member
from engine.remoting.loop.role_tasks import RoleTasks
from engine.remoting.loop.slices import in_slices
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.remoting.peers.name_servers import NameServers
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, Reign
from ipc.clock import monotonic_ms


# What a broker tells a name server of itself, out of its settings.
def registration_of(config: BrokerConfig, counters: BrokerCounters) -> Registration:
    """Return the registration at one name server, once the HA port is known."""
    ha_listen_port = counters.ha_listen_port.read()
    member = Member(
        config.broker_cluster_name,
        config.broker_name,
        config.broker_id,
        f"{config.broker_ip1}:{config.listen_port}",
        f"{config.broker_ip2}:{ha_listen_port}",
    )
    beats = Heartbeats(
        config.broker_heartbeat_interval_ms,
        config.broker_not_active_timeout_ms,
        config.compatible_with_old_name_srv,
    )
    return Registration(
        member,
        config.compat,
        period_ms=counters.register_name_server_period_ms.read(),
        force=config.force_register,
        heartbeats=beats if config.enable_slave_acting_master else None,
    )


LOOKED_FOR = "a name server to be looked up"
ANSWER_SECONDS, UNREGISTER_SECONDS = 6.0, 1.0  # registerBrokerTimeoutMills
SAID_CHARACTERS_MAX = 500

Registrations = dict[str, tuple[Registration, RemotingLink]]


class Registrar:
    """One broker's registrations. `learn` gets each answer, `lost` a name server without one; `hurry` ends a turn.

    A promoted master that has not asked yet who else is one is registered under `asking_id`, that of the slave it was.
    A name server has one broker of each id: two that were promoted at once would hide each other there.
    """

    def __init__(
        self,
        name_servers: NameServers,
        counters: BrokerCounters,
        metadata: Metadata,
        tasks: RoleTasks,
        lines: RareLines,
        learn: Callable[[str, Learned], Awaitable[None]],
        lost: Callable[[str], None],
        end_turn: Callable[[], None],
    ) -> None:
        self.name_servers, config = name_servers, name_servers.config
        self.asking_id = config.broker_id
        self._config, self._counters, self._metadata = config, counters, metadata
        self._tasks, self._lines = tasks, lines
        self._learn, self._lost, self._end_turn = learn, lost, end_turn
        self.registrations: Registrations = {}  # made once the HA port is known
        self._asked = 0  # how often `registered` was called
        self._answered: dict[str, int] = {}  # by name server: up to which of these calls it was asked, and answered
        self._waiting: set[asyncio.Future[None]] = set()

    def hurry(self) -> None:
        """Register at the next turn, which begins now: what name servers have to know has changed."""
        for registration, _link in self.registrations.values():
            registration.hurry()
        self._end_turn()

    async def registered(self, seconds: float) -> list[str]:
        """Return once every name server was asked after this moment, and answered or could not; or after that time.

        The addresses of those that did neither. Also where none could be asked yet: a broker is ready a moment before
        it knows what it registers."""
        self._asked += 1
        number = self._asked
        self.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._silent(number):
                    answered = asyncio.get_running_loop().create_future()
                    self._waiting.add(answered)
                    await answered
        return self._silent(number)

    def _silent(self, number: int) -> list[str]:
        return [address for address in self._wanted() if self._answered.get(address, 0) < number]

    def _wanted(self) -> tuple[str, ...]:
        return self.name_servers.now or ((LOOKED_FOR,) if self._config.has_name_servers else ())

    def known_at(self) -> tuple[str, ...]:
        """The name servers that have answered this broker's last registration."""
        return tuple(address for address, (registration, _link) in self.registrations.items() if registration.is_known)

    def is_known_at_all(self) -> bool:
        """Whether there is no name server but those in `known_at`."""
        return set(self._wanted()) <= set(self.known_at())

    def relay(self, texts: tuple[str, ...]) -> None:
        """Have the name servers hand these words on to another master of this name."""
        for registration, _link in self.registrations.values():
            registration.relay(texts)

    def set_period(self) -> None:
        """Register as often as its counter says from now on."""
        for registration, _link in self.registrations.values():
            registration.set_period(self._counters.register_name_server_period_ms.read())

    def turn(self, now_ms: int, how: RenewedContext | None) -> None:
        """Ask where it is due; `how` TLS is spoken."""
        self.name_servers.turn(now_ms)
        if self.registrations.keys() != set(self.name_servers.now) and self._counters.ha_listen_port.read():
            self._follow(how)
        is_asking = self._counters.reign.read() == Reign.ASKS
        for address, (registration, link) in self.registrations.items():
            registration.register_as(self.asking_id if is_asking else self._config.broker_id)
            if address not in self._tasks:
                permission = self._counters.broker_permission.read()
                making = registration.next_request(self._metadata, permission, now_ms)
                if making is not None:
                    self._tasks.begin(address, self._register(registration, link, making))
            beat = registration.heartbeat(self._metadata, now_ms)
            if beat is not None and f"heartbeat {address}" not in self._tasks:
                self._tasks.begin(f"heartbeat {address}", self._send_heartbeat(link, beat))

    def _follow(self, how: RenewedContext | None) -> None:
        """Register at the name servers of now alone; others take the broker for dead."""
        for address in self.registrations.keys() - set(self.name_servers.now):
            self.registrations.pop(address)[1].close()
            self._lost(address)
        for address in self.name_servers.now:
            if address not in self.registrations:
                link = RemotingLink(address, ANSWER_SECONDS, how)
                self.registrations[address] = registration_of(self._config, self._counters), link

    async def _register(self, registration: Registration, link: RemotingLink, making: Making) -> None:
        asked, request = self._asked, await in_slices(making)
        try:
            answer = await link.ask(request)
            learned = registration.on_answer(request, answer, monotonic_ms())
        except (NoAnswer, MalformedFrame) as error:
            self._without_answer(registration, link, error)
            self._note_answer(link.address, asked)
            return
        if answer.code:
            self._lines.tell(
                "refused registrations",
                monotonic_ms(),
                "name server %s refuses this broker: code %d, %s",
                link.address,
                answer.code,
                (answer.remark or "")[:SAID_CHARACTERS_MAX],
            )
        if learned is not None:
            await self._learn(link.address, learned)
        if request.code == RequestCode.REGISTER_BROKER or registration.due_ms:
            self._note_answer(link.address, asked)

    def _note_answer(self, address: str, asked: int) -> None:
        self._answered[address] = asked
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)
        if asked < self._asked:  # somebody waits for an answer to a later request, which is due
            self._end_turn()

    def _without_answer(self, registration: Registration, link: RemotingLink, error: Exception) -> None:
        """Log a missing or malformed answer: what this name server said of the master no longer counts."""
        now_ms = monotonic_ms()
        self._lines.tell("registrations without an answer", now_ms, "name server %s: %s", link.address, error)
        registration.lost(now_ms)
        self._lost(link.address)

    async def _send_heartbeat(self, link: RemotingLink, request: RemotingCommand) -> None:
        with suppress(NoAnswer):  # the next registration says so
            await link.tell(request)

    async def leave(self) -> None:
        """Unregister everywhere, within UNREGISTER_SECONDS, and close the connections."""
        goodbyes = [link.ask(registration.unregister()) for registration, link in self.registrations.values()]
        if goodbyes:
            with suppress(TimeoutError):
                together = asyncio.gather(*goodbyes, return_exceptions=True)
                await asyncio.wait_for(together, UNREGISTER_SECONDS)
        for _registration, link in self.registrations.values():
            link.close()
