"""A name server of ours, served in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from engine.protocol.naming.name_server import NameServer
from engine.remoting.sockets.server import RemotingServer
from ipc.clock import wall_ms
from tests.harness.conditions import SECONDS


class Serving:
    """A name server of ours in a thread."""

    def __init__(self, compat: str = "4.9") -> None:
        self.state, self._loop = NameServer(compat), asyncio.new_event_loop()
        self._server = RemotingServer(
            lambda request, connection: self.state.answer(request, connection, wall_ms()),
            self.state.routes.connection_closed,
        )
        self.port = self._loop.run_until_complete(self._server.start("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], Any]) -> Any:
        """Have something done in its thread, which nobody else's may disturb; what comes of it."""

        async def done() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(SECONDS)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
