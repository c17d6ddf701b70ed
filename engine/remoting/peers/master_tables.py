"""Follows a slave's master: where the name servers say it is, where it sends its log from, what its tables say.

Implements: SlaveSynchronize's timer; what a slave takes from the answer to its registration
Publishes:  ha_server_address, where a slave's registration says that its master sends the log from
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from itertools import islice

from engine.net.rare_lines import RareLines
from engine.net.tls import RenewedContext
from engine.protocol.broker import slave_synchronize
from engine.protocol.ha.client import HaClientState
from engine.protocol.naming.registration import Learned
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.remoting.loop.role_tasks import RoleTasks
from engine.remoting.loop.slices import in_slices
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.remoting.peers.name_servers import NameServers
from engine.settings.config import BrokerRole
from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.clock import monotonic_ms
from store.errors import StoreError

log = logging.getLogger("slipstream.remoting")

GIVEN_MAX, SAID_CHARACTERS_MAX = 1000, 200  # offsets in one round; of a remark
SYNCHRONIZE_SECONDS = 3.0  # for each of a slave's questions to its master


class MasterTables:
    """A slave's view of its master; a master's has none."""

    def __init__(
        self,
        name_servers: NameServers,
        counters: BrokerCounters,
        metadata: Metadata,
        tasks: RoleTasks,
        lines: RareLines,
        how: RenewedContext | None,
    ) -> None:
        self._name_servers, config = name_servers, name_servers.config
        self._config, self._counters, self._metadata = config, counters, metadata
        self._tasks, self._lines, self._how = tasks, lines, how
        self.synchronize = slave_synchronize.SlaveSynchronize(
            config.compat, monotonic_ms(), has_timers=config.timer_wheel_enable
        )
        self.address: str | None = None
        self._links: dict[str, RemotingLink] = {}
        self._learned: dict[str, Learned] = {}  # by name server, of those that answer
        self._ha_server_name: str | None = None
        self._unresolved: str | None = None  # the last name that was not resolved, and was logged
        self._believes_greeting = bool(config.ha_secret_file)  # a name server's word is proved by nobody
        if config.broker_role is BrokerRole.SLAVE and not counters.tables_taken_ms.read():
            waiting.publish(counters.tables_taken_ms, -monotonic_ms())  # none since now

    def turn(self, now_ms: int) -> None:
        """Ask for tables where that is due: the master that a name server names, else the one that sends the log."""
        said = address_cursors.text_of(self._counters.ha_client.remoting)
        if said != addresses.NOWHERE and (self._believes_greeting or not self._learned):
            self._follow(said)
        if "synchronize" not in self._tasks:
            questions = self.synchronize.due(self.address, now_ms)
            if questions:
                self._tasks.begin("synchronize", self._ask_master(questions))

    def look(self) -> None:
        """Ask again for a master's name that leads nowhere."""
        is_lost = self._counters.ha_client.state.read() != HaClientState.TRANSFER
        if is_lost and self._ha_server_name is not None and "resolve" not in self._tasks:
            self._tasks.begin("resolve", self._resolve(self._ha_server_name))

    def forget(self, name_server: str) -> None:
        """Drop what a name server said of our master."""
        self._learned.pop(name_server, None)

    async def learn(self, name_server: str, learned: Learned) -> None:
        """Take over what a name server says of our master."""
        self._learned[name_server] = learned
        said = [self._learned[name] for name in self._name_servers.now if name in self._learned]
        first = next((one for one in said if one.master_address), learned)
        if not self._believes_greeting or not self._counters.ha_client.remoting.word.read():
            self._follow(first.master_address or None)
        if first.ha_server_address is not None and self._config.ha_master_address is None:
            self._ha_server_name = first.ha_server_address
            await self._resolve(first.ha_server_address)

    def _follow(self, master_address: str | None) -> None:
        """Ask this master for its tables from now on; nobody, while the name servers know of none."""
        if master_address is not None and not slave_synchronize.is_address(master_address):
            what = "the master's address %r is invalid"
            self._lines.tell("addresses of masters", monotonic_ms(), what, master_address)
            master_address = None
        if master_address == f"{self._config.broker_ip1}:{self._config.listen_port}":
            master_address = None  # ourselves
        if master_address == self.address:
            return
        log.info("copying the master's tables from %s", master_address or "unknown: no name server knows a master")
        self.address = master_address
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def _resolve(self, address: str) -> None:
        """Publish where the master sends its log from; the receiver reads that at each connect."""
        host, port = addresses.split(address)
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            packed = addresses.pack(str(answers[0][4][0]), int(port))
        except (OSError, ValueError) as error:
            if self._unresolved != address:
                log.warning("the master's HA address %r is invalid: %s; will retry", address, error)
            self._unresolved = address
            return
        self._unresolved = None
        if packed != address_cursors.read(self._counters.ha_server_address):
            log.info("the master's HA address is %s", address)
            address_cursors.publish(self._counters.ha_server_address, str(answers[0][4][0]), int(port))

    async def _ask_master(self, questions: list[slave_synchronize.Question]) -> None:
        """Ask all questions, at both ports at once: one that is not answered, or refused, holds up no other."""
        by_address: dict[str, list[slave_synchronize.Question]] = {}
        for question in questions:
            by_address.setdefault(question.address, []).append(question)
        taken = await asyncio.gather(*(self._ask_at(address, asked) for address, asked in by_address.items()))
        if all(taken):
            if not self.synchronize.last_ms:
                gc.freeze()  # most of it stays: collections that looked at 10,000 topics' would be turns of 0.02 s
            self.synchronize.done(monotonic_ms())
            if any(question.request.code == RequestCode.GET_ALL_CONSUMER_OFFSET for question in questions):
                waiting.publish(self._counters.tables_taken_ms, monotonic_ms())

    async def _ask_at(self, address: str, questions: list[slave_synchronize.Question]) -> bool:
        """Ask one port; whether all was answered and taken in."""
        new, all_of_it = RemotingLink(address, SYNCHRONIZE_SECONDS, self._how), True
        link = self._links.setdefault(address, new)
        for question in questions:
            code = question.request.code
            try:
                if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
                    await self._give_offsets(link)
                answer = await link.ask(question.request)
                await in_slices(self.synchronize.take(self._metadata, code, answer))
                continue
            except slave_synchronize.Refused as error:  # it will say so again: asked when all are asked
                reason: Exception = error
            except (NoAnswer, StoreError) as error:
                reason = error
                self.synchronize.failed(code, monotonic_ms())
            all_of_it = False
            self._lines.tell(
                f"answers to request {code}",
                monotonic_ms(),
                "the master's answer to request %d at %s: %s",
                code,
                address,
                reason,
            )
        return all_of_it

    async def _give_offsets(self, link: RemotingLink) -> None:
        """Tell the master what consumers committed here while it was away, where it is behind. Raises NoAnswer."""
        given = self._metadata.consumer_offsets.given_here.items()
        every = ((key, *pair) for key, of_key in given for pair in of_key.items())
        for key, queue_id, offset in list(islice(every, GIVEN_MAX)):
            fields = {"topic": key[0], "consumerGroup": key[1], "queueId": str(queue_id)}
            known = await link.ask(_request(RequestCode.QUERY_CONSUMER_OFFSET, fields))
            said = (known.ext_fields or {}).get("offset", "")
            if known.code or not said.isdecimal() or int(said) < offset:
                fields["commitOffset"] = str(offset)
                answer = await link.ask(_request(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
                if answer.code:
                    self._lines.tell(
                        "offsets that a master does not accept",
                        monotonic_ms(),
                        "the master at %s refuses an offset of group %s in %s: code %d, %s",
                        link.address,
                        key[1],
                        key[0],
                        answer.code,
                        (answer.remark or "")[:SAID_CHARACTERS_MAX],
                    )
                    continue
            self._metadata.given(key, queue_id, offset)

    def close(self) -> None:
        """Close the connections to masters and name servers."""
        for link in self._links.values():
            link.close()


def _request(code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=dict(fields), version=REQUEST_VERSION)
