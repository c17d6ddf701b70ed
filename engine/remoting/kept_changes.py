"""Holds an administrator's answer back until the change is on disk and the name servers know of it.

Implements: ConfigManager.persist and BrokerController.registerBrokerAll before AdminBrokerProcessor's answers
A change that the disk does not take is answered as failed, with the reason. A name server that does not answer is
waited for REGISTERED_SECONDS, less than a client waits for its answer. Then the change is answered as done.
The log names that name server, at which the broker registers again every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from engine.net.rare_lines import RareLines
from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.files.broker_files import BrokerFiles
from engine.remoting.files.saves import NotSaved
from engine.remoting.peers.registrar import Registrar
from engine.remoting.sockets.server import Answered
from ipc.clock import monotonic_ms
from store.names import CONSUMER_OFFSETS, GROUPS, TOPICS

SAVED_SECONDS, REGISTERED_SECONDS = 10.0, 3.0
OF_OFFSETS = frozenset({
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET, RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
})  # fmt: skip


class KeptChanges:
    """The changes of one broker; `end_turn` has the tables' next writing begin."""

    def __init__(
        self, files: BrokerFiles, registrar: Registrar, lines: RareLines, end_turn: Callable[[], None]
    ) -> None:
        self._files, self._registrar, self._lines, self._end_turn = files, registrar, lines, end_turn

    async def saved(self, names: Sequence[str]) -> None:
        """Wait until these files say on disk what their tables say now. Raises NotSaved."""
        wait = self._files.saved(names)
        if wait is None:
            return
        self._end_turn()
        try:
            await asyncio.wait_for(wait, SAVED_SECONDS)
        except TimeoutError:
            raise NotSaved(names[0], f"it was not written to disk within {SAVED_SECONDS:.0f} s") from None

    def answer(
        self, request: RemotingCommand, answer: Answered | Awaitable[Answered], *, registers: bool
    ) -> Answered | Awaitable[Answered]:
        """The answer to a request, or what it is awaited from; `registers`: name servers are to know what changed."""
        if KINDS.get(request.code) is not RequestKind.CHANGE and not registers:
            return answer
        names = (TOPICS, GROUPS, *([CONSUMER_OFFSETS] if request.code in OF_OFFSETS else []))
        is_made = isinstance(answer, RemotingCommand | None)
        if is_made and not registers and all(map(self._files.is_saved, names)):
            return answer
        return self._kept(request, answer, names, registers=registers)

    async def _kept(
        self, request: RemotingCommand, answer: Answered | Awaitable[Answered], names: Sequence[str], *, registers: bool
    ) -> Answered:
        made = answer if isinstance(answer, RemotingCommand | None) else await answer
        registering = asyncio.ensure_future(self._registered()) if registers else None
        try:
            if made is None or not made.code:
                await self.saved(names)
        except NotSaved as error:
            return None if made is None else request.answer(ResponseCode.SYSTEM_ERROR, str(error), version=made.version)
        if registering is not None:
            await registering
        return made

    async def _registered(self) -> None:
        for address in await self._registrar.registered(REGISTERED_SECONDS):
            self._lines.tell(
                "changes that a name server does not know",
                monotonic_ms(),
                "name server %s did not confirm an administrator's change within %.0f s; will retry until it answers",
                address,
                REGISTERED_SECONDS,
            )
