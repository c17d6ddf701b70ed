"""A name server as it serves: its requests on the loop, what takes long beside it, its changes on disk.

Implements: NamesrvController
A registration's body is read on another thread, one at a time; the loop goes on answering. An answer to a change of the
key-value config or of write permissions waits until that is on disk, written once for all changes that came meanwhile;
to one of settings, until the name server's file has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from engine.net import tls
from engine.net.log_lines import Seldom
from engine.net.tls import ServerTls
from engine.protocol.access.rights import Rules
from engine.protocol.naming.name_server import NameServer
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.kept_settings import KeptSettings
from engine.remoting.sockets.server import Answered, RemotingServer, ServerLimits

log = logging.getLogger("slipstream.namesrv")

SCAN_SECONDS = 5.0
SAVED = (  # before the answer
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ServingNames:
    """The server; `write(content)` puts what it keeps on disk, from another thread."""

    def __init__(
        self,
        state: NameServer,
        write: Callable[[bytes], None],
        limits: ServerLimits | None = None,
        rules: Rules | None = None,
        how: ServerTls = tls.PLAINTEXT,
        file: str = "",
    ) -> None:
        self._state, self._write = state, write
        self._settings = KeptSettings(file)
        routes = state.routes
        self._server = RemotingServer(
            self._answer, routes.connection_closed, limits, routes.is_registrar, rules=rules, how=how
        )
        self._reader = ThreadPoolExecutor(1, "registrations")
        self._writer = ThreadPoolExecutor(1, "key-values")
        self._saving = asyncio.Lock()
        self._saved = 0  # how many changes are on disk
        self._seldom = Seldom(log)

    async def start_on(self, listening: socket.socket) -> int:
        """Serve on a listening socket; return its port."""
        return await self._server.start_on(listening)

    async def serve(self, stop: asyncio.Event) -> None:
        """Forget brokers that are silent for too long, until `stop`; then hang up."""
        saving: asyncio.Future[None] | None = None
        while not stop.is_set():
            for connection in self._state.routes.expire(_now_ms()):
                self._server.close_connection(connection)
            if saving is None or saving.done():
                saving = asyncio.ensure_future(self._save_quietly())
            try:
                await asyncio.wait_for(stop.wait(), SCAN_SECONDS)
            except TimeoutError:
                continue
        await self._server.stop()
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown()
        self._settings.close()

    def _answer(self, request: RemotingCommand, connection: int) -> Answered | asyncio.Future[Answered]:
        if request.code == RequestCode.REGISTER_BROKER and len(request.body):
            return asyncio.ensure_future(self._register(request, connection))
        if request.code in SAVED:
            return asyncio.ensure_future(self._change_kept(request, connection))
        answer = self._state.answer(request, connection, _now_ms())
        if changed := self._state.settings.changed:
            self._state.settings.changed = {}
            texts = {name: str(value).lower() for name, value in changed.items()}
            tell = partial(log.info, "an administrator set %s %s", ", ".join(map("=".join, texts.items())))
            return asyncio.ensure_future(self._settings.change(request, answer, texts, tell))
        return answer

    async def _register(self, request: RemotingCommand, connection: int) -> Answered:
        ahead = await asyncio.get_running_loop().run_in_executor(self._reader, self._state.work_ahead, request)
        return self._state.answer(request, connection, _now_ms(), ahead)

    async def _change_kept(self, request: RemotingCommand, connection: int) -> Answered:
        answer = self._state.answer(request, connection, _now_ms())
        try:
            if answer is None or not answer.code:
                await self._save()
        except OSError as error:
            self._seldom.tell("the name server's file cannot be saved: %s", error, level=logging.ERROR)
            remark = f"the change is not on disk: {error.strerror}"
            return None if request.is_oneway else self._state.answered(request, ResponseCode.SYSTEM_ERROR, remark)
        return answer

    async def _save_quietly(self) -> None:
        """Save changes that no administrator ordered. An error is not told here; the next order is answered with it."""
        with suppress(OSError):
            await self._save()

    async def _save(self) -> None:
        """Wait until all changes so far are on disk. Raises OSError."""
        mine = self._state.changes
        async with self._saving:
            if self._saved >= mine:
                return
            upto, kept = self._state.changes, self._state.kept()
            content = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            await asyncio.get_running_loop().run_in_executor(self._writer, self._write, content)
            self._saved = upto
