"""An event loop in a thread of its own, for clients whose users do not write asyncio: one loop for each client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from engine.errors import EngineError

T = TypeVar("T")
Last = Callable[[], Coroutine[Any, Any, None]]

ENDED_SECONDS = 10.0


class ForeignClient(EngineError):
    """Raised by every call of a client in a process that did not make it: a forked child has no thread of its loop.

    Next: make a client of its own in each process.
    """

    code = "FOREIGN_CLIENT"

    def __init__(self, owner: int) -> None:
        super().__init__(f"process {owner} made this client; make one of its own in process {os.getpid()}")


class ClientClosed(EngineError):
    """Raised by a call of a client that was closed.

    Next: make a new client.
    """

    code = "CLIENT_CLOSED"

    def __init__(self) -> None:
        super().__init__("this client was closed; make a new one")


async def _nothing() -> None:
    pass


class LoopThread:
    """A running loop. `user` is the client: once it is dropped without `close`, or Python ends, the loop ends, too.

    `last` is done in the loop at its end, behind all else. It must not keep the client alive.
    """

    def __init__(self, user: object, name: str, last: Last = _nothing) -> None:
        self.loop = asyncio.new_event_loop()
        self._owner = os.getpid()
        self._gate, self._is_over = threading.RLock(), False  # once over, nothing is submitted
        self._thread = threading.Thread(target=self._run, args=(last,), name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(user, _stop, self.loop, self._owner)

    @property
    def is_closed(self) -> bool:
        """Whether the loop was ended."""
        return not self._end.alive

    @property
    def is_foreign(self) -> bool:
        """Whether another process made this client."""
        return os.getpid() != self._owner

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin work in the loop; a future of what it returns. Raises ForeignClient, ClientClosed."""
        try:
            self.require_owned()
            with self._gate:
                if self._is_over:  # closed since: nobody would end the future
                    raise ClientClosed()
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what work in the loop returns; an interrupted wait cancels it. Raises what it raises, as `submit`."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def require_owned(self) -> None:
        """Raise ForeignClient in another process than the client's, ClientClosed once it was closed."""
        if self.is_foreign:
            raise ForeignClient(self._owner)
        if self.is_closed:
            raise ClientClosed()
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback of this client must not wait for the client: its loop is this thread")

    def close(self) -> None:
        """End the loop, and wait for its thread. What is still under way is cancelled."""
        self._end()
        if not self.is_foreign and threading.current_thread() is not self._thread:
            self._thread.join(ENDED_SECONDS)

    def _run(self, last: Last) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            with self._gate:
                self._is_over = True
            self.loop.run_until_complete(_ended(last))
        finally:
            self.loop.close()


async def _ended(last: Last) -> None:
    await asyncio.sleep(0)  # what was submitted just now begins, and is cancelled with the rest
    under_way = asyncio.all_tasks() - {asyncio.current_task()}
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    await asyncio.wait_for(last(), ENDED_SECONDS)


def _stop(loop: asyncio.AbstractEventLoop, owner: int) -> None:
    if os.getpid() == owner and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
