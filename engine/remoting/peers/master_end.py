"""Where a master's log ends, asked over remoting by its slave, of RocketMQ's too: who is behind is not ready.

The answer is kept for a moment, and one question is under way at a time: frequent callers rarely reach the master.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.net.tls import RenewedContext
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.settings.config import BrokerConfig
from engine.shared_memory.addresses import host_and_port
from store.errors import MalformedData
from store.tables import fastjson

ANSWER_SECONDS, FRESH_SECONDS = 1.0, 1.0
BODY_BYTES_MAX = 1 << 20
END = "commitLogMaxOffset"


class MasterEnd:
    """Asks the master that `registered` names, else the one beside whose HA port `haMasterAddress` says it listens."""

    def __init__(
        self, config: BrokerConfig, registered: Callable[[], str | None], how: RenewedContext | None = None
    ) -> None:
        self._config, self._registered, self._how = config, registered, how
        self._link: RemotingLink | None = None
        self._asking = asyncio.Lock()
        self._asked_at = -FRESH_SECONDS
        self._end: int | None = None

    async def read(self) -> int | None:
        """Return the end of the master's log, at most FRESH_SECONDS old; None where the master does not answer."""
        async with self._asking:
            now = time.monotonic()
            if now - self._asked_at >= FRESH_SECONDS:
                self._asked_at, self._end = now, await self._ask()
            return self._end

    def close(self) -> None:
        """Close the connection to the master."""
        if self._link is not None:
            self._link.close()

    def _address(self) -> str | None:
        of_file = self._config.ha_master_address
        return self._registered() or (host_and_port(of_file[0], of_file[1] - 1) if of_file else None)

    async def _ask(self) -> int | None:
        address = self._address()
        if self._link is not None and self._link.address != address:
            self._link.close()
            self._link = None
        if address is None:
            return None
        self._link = self._link or RemotingLink(address, ANSWER_SECONDS, self._how)
        try:
            answer = await self._link.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, version=REQUEST_VERSION))
        except NoAnswer:
            return None
        return end_of(answer)


def end_of(answer: RemotingCommand) -> int | None:
    """The end of the log in a broker's figures; a stranger's word."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        table = fastjson.loads(answer.body, "runtime info", BODY_BYTES_MAX)["table"]
        return fastjson.whole_number(table[END], 0, fastjson.INT64_MAX)
    except (MalformedData, LookupError, TypeError, ValueError):
        return None
